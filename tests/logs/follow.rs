//! Live readers get every line once, in order, however they come and go.

use std::{sync::Arc, time::Duration};

use chrono::Utc;
use futures::{Stream, StreamExt};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use trainyard::{
    db::{
        Scope,
        events::{self, NewEvent, Subject},
        feed, holdings,
        listen::Listener,
        notify,
    },
    hub::{Hub, Limits, logs::Slow},
    logs::{line::LogLine, merge::Begin, page::Filter, position::Position, stream::From},
    runtimes::OutputRef,
    worker::{
        ingest::Settings,
        seal::{self, SealRequest},
        sequencer,
    },
};
use trainyard_core::model::{JobId, TeamId, WorkerId};
use uuid::Uuid;

use crate::world::{World, at};

const CHANNELS: &[&str] = &[notify::LOGS, notify::EVENTS, notify::FOLLOWS];

/// A server's and a worker's loops on one world; they end with this value.
pub struct Running {
    pub hub: Hub,
    stop: CancellationToken,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

pub fn server(world: &World) -> Running {
    server_with(world, Limits::default())
}

fn server_with(world: &World, limits: Limits) -> Running {
    let stop = CancellationToken::new();
    let listener = Listener::start(&world.db, CHANNELS, stop.clone());
    Running {
        hub: Hub::with_limits(&world.db, &listener, Arc::new(Utc::now), limits, stop.clone()),
        stop,
    }
}

pub async fn worker(world: &World) -> CancellationToken {
    let stop = CancellationToken::new();
    let (seals, requests) = mpsc::channel::<SealRequest>(1000);
    let (_, holding) = world.worker().await;
    let about = Arc::new(crate::world::Secrets(Vec::new()));
    let runtime = world.runtime.clone();
    let ingest = trainyard::worker::ingest::Ingest::new(
        world.db.clone(),
        runtime,
        world.cluster,
        about,
        Settings::default(),
        seals,
    );
    let listener = Listener::start(&world.db, CHANNELS, stop.clone());
    let run = ingest.run(holding.clone(), Arc::new(Utc::now), listener.subscribe(), stop.clone());
    tokio::spawn(async move { run.await.ok() });
    let sealer = seal::run(
        world.db.clone(),
        holding,
        world.cluster,
        Arc::new(Utc::now),
        requests,
        stop.clone(),
    );
    tokio::spawn(async move { sealer.await.ok() });
    stop
}

/// One message of a stream of Server-Sent Events.
#[derive(Debug, Default)]
pub struct Message {
    pub id: Option<String>,
    pub event: String,
    pub data: Vec<Value>,
}

/// Cuts bytes into messages, as a browser does.
pub struct Browser<S> {
    stream: S,
    text: String,
}

impl<S: Stream<Item = bytes::Bytes> + Unpin> Browser<S> {
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            text: String::new(),
        }
    }

    /// `None`: the server closed the stream.
    pub async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let mut found = Message::default();
                for line in message.lines() {
                    match line.split_once(": ") {
                        Some(("id", id)) => found.id = Some(id.to_owned()),
                        Some(("event", event)) => found.event = event.to_owned(),
                        Some(("data", data)) => found.data.push(serde_json::from_str(data).expect(data)),
                        _ => {}
                    }
                }
                self.text = rest.to_owned();
                if !found.event.is_empty() {
                    return Some(found);
                }
                continue;
            }
            let bytes = tokio::time::timeout(Duration::from_secs(60), self.stream.next())
                .await
                .expect("in a minute")?;
            self.text.push_str(std::str::from_utf8(&bytes).expect("UTF-8"));
        }
    }
}

/// Everything that a reader got: whole lines, the last id, whether the end was told.
#[derive(Default)]
struct Got {
    lines: Vec<LogLine>,
    partials: Vec<LogLine>,
    skipped: u64,
    id: Option<String>,
    ended: bool,
}

impl Got {
    fn take(&mut self, message: Message) {
        self.id = message.id.or(self.id.take());
        match message.event.as_str() {
            "lines" => {
                for line in message.data {
                    let line: LogLine = serde_json::from_value(line).expect("a line");
                    if line.partial {
                        &mut self.partials
                    } else {
                        &mut self.lines
                    }
                    .push(line);
                }
            }
            "skipped" => self.skipped += message.data[0]["bytes"].as_u64().expect("a number"),
            "end" => self.ended = true,
            other => panic!("{other}: {:?}", message.data),
        }
    }
}

fn print_numbers(world: &World, outputs: &[OutputRef], from: usize, to: usize) {
    for number in from..to {
        for output in outputs {
            world.runtime.write(output, format!("{number}\n").as_bytes());
        }
    }
}

/// The numbers that a reader got of one stream.
fn numbers(got: &Got, output: &OutputRef) -> Vec<usize> {
    let of = |line: &&LogLine| line.index as u32 == output.key.index && line.stream == output.stream;
    got.lines
        .iter()
        .filter(of)
        .map(|line| line.text.parse().expect("a number"))
        .collect()
}

async fn finish(world: &World, outputs: &[OutputRef]) {
    outputs.iter().for_each(|output| world.runtime.end(output));
    world.end_attempt(outputs[0].attempt).await;
    world.end_job().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_come_and_go_get_every_line_once() {
    for seed in [31u64, 32] {
        println!("seed {seed}");
        let world = World::new().await;
        let outputs = world.attempt(1, 2).await;
        let working = worker(&world).await;
        let mut random = StdRng::seed_from_u64(seed);
        print_numbers(&world, &outputs, 0, 100);
        let printing = async {
            let mut number = 100;
            while number < 3000 {
                let next = (number + random.random_range(1..60)).min(3000);
                print_numbers(&world, &outputs, number, next);
                number = next;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            finish(&world, &outputs).await;
        };
        let reading = async {
            // Its connection breaks now and then, and once the server itself is another.
            let mut random = StdRng::seed_from_u64(seed + 1000);
            let mut got = Got::default();
            let mut server_now = server(&world);
            let mut connections = 0;
            while !got.ended {
                let begin = match &got.id {
                    None => Begin::From(From::Start),
                    Some(id) => Begin::Position(id.parse::<Position>().expect("a position")),
                };
                let stream = server_now
                    .hub
                    .follow_logs(world.key, Filter::default(), begin, Slow::ReadsAll);
                let mut browser = Browser::new(stream);
                connections += 1;
                for _ in 0..random.random_range(1..12) {
                    match browser.next().await {
                        Some(message) => got.take(message),
                        None => break,
                    }
                }
                if connections % 5 == 0 {
                    server_now = server(&world);
                }
            }
            println!("seed {seed}: {connections} connections");
            got
        };
        let other = server(&world);
        let one = Filter {
            index: Some(1),
            ..Filter::default()
        };
        let filtered = async {
            let stream = other
                .hub
                .follow_logs(world.key, one, Begin::From(From::Tail(10)), Slow::ReadsAll);
            let mut browser = Browser::new(stream);
            let mut got = Got::default();
            while !got.ended {
                got.take(browser.next().await.expect("the stream goes on to its end"));
            }
            got
        };
        let ((), got, filtered) = tokio::join!(printing, reading, filtered);
        for output in &outputs {
            assert_eq!(
                numbers(&got, output),
                (0..3000).collect::<Vec<_>>(),
                "seed {seed}: {output:?}"
            );
        }
        let order: Vec<(i32, &str)> = got.lines.iter().map(|line| (line.attempt, line.at.as_str())).collect();
        assert!(order.is_sorted(), "seed {seed}");
        for output in &outputs {
            let found = numbers(&filtered, output);
            if output.key.index == 0 {
                assert!(found.is_empty(), "seed {seed}");
            } else {
                let first = found[0];
                assert_eq!(found, (first..3000).collect::<Vec<_>>(), "seed {seed}");
            }
        }
        working.cancel();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unfinished_line_is_shown_as_it_grows_and_counts_once() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let working = worker(&world).await;
    let running = server(&world);
    world.runtime.write(&outputs[0], b"start\n");
    let stream = running
        .hub
        .follow_logs(world.key, Filter::default(), Begin::From(From::Start), Slow::Skips);
    let mut browser = Browser::new(stream);
    let mut got = Got::default();
    // 120 kB of one line, of which a person sees a few bytes at a time.
    for percent in 1..=6 {
        let bar = format!("\r{percent}0%");
        world
            .runtime
            .write(&outputs[0], format!("\r{}", "#".repeat(20_000)).as_bytes());
        world.runtime.write(&outputs[0], bar.as_bytes());
        while got
            .partials
            .last()
            .is_none_or(|line| line.text != format!("{percent}0%"))
        {
            got.take(browser.next().await.expect("a message"));
        }
    }
    world.runtime.write(&outputs[0], b"\ndone\n");
    finish(&world, &outputs).await;
    while !got.ended {
        got.take(browser.next().await.expect("a message"));
    }
    let texts: Vec<(Option<u64>, &str)> = got.lines.iter().map(|line| (line.line, line.text.as_str())).collect();
    assert_eq!(texts, [(Some(1), "start"), (Some(2), "60%"), (Some(3), "done")]);
    assert!(got.partials.iter().all(|line| line.line == Some(2)));
    working.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_reader_reads_all_or_is_told_what_it_missed() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let working = worker(&world).await;
    let running = server_with(
        &world,
        Limits {
            waiting: 4,
            text: 1 << 20,
        },
    );
    let follow = |slow| {
        let stream = running
            .hub
            .follow_logs(world.key, Filter::default(), Begin::From(From::Start), slow);
        Browser::new(stream)
    };
    let padding = "-".repeat(1000);
    let print = |from: usize, to: usize| {
        for number in from..to {
            world
                .runtime
                .write(&outputs[0], format!("{number} {padding}\n").as_bytes());
        }
    };
    print(0, 10);
    let (mut patient, mut hasty) = (follow(Slow::ReadsAll), follow(Slow::Skips));
    let (mut all, mut some) = (Got::default(), Got::default());
    while all.lines.len() < 10 {
        all.take(patient.next().await.expect("a message"));
    }
    while some.lines.len() < 10 {
        some.take(hasty.next().await.expect("a message"));
    }
    // Neither reads while more is printed than can wait for them: often a little, and once too much for one look.
    let mut number = 10;
    for round in 0..30 {
        let next = number + if round == 10 { 3000 } else { 10 };
        print(number, next);
        number = next;
        while world.stream(&outputs[0]).await.lines < number as u64 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    finish(&world, &outputs).await;
    let reading_all = async {
        while !all.ended {
            all.take(patient.next().await.expect("a message"));
        }
    };
    let reading_some = async {
        while !some.ended {
            some.take(hasty.next().await.expect("a message"));
        }
    };
    tokio::join!(reading_all, reading_some);
    let numbers = |got: &Got| -> Vec<usize> {
        let first = |line: &LogLine| line.text.split(' ').next().expect("a word").parse().expect("a number");
        got.lines.iter().map(first).collect()
    };
    assert_eq!(all.skipped, 0);
    assert!(numbers(&all).into_iter().eq(0..number));
    let bytes = world.runtime.with(&outputs[0], |source| source.bytes.len() as u64);
    let read: u64 = some.lines.iter().map(|line| line.text.len() as u64 + 1).sum();
    println!("skipped {} of {bytes} bytes", some.skipped);
    assert!(some.skipped > 0);
    assert_eq!(read + some.skipped, bytes, "what was not sent is told to the byte");
    assert!(numbers(&some).is_sorted_by(|one, next| one < next));
    working.cancel();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follow_makes_flushes_quick_and_ends_by_itself() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let working = worker(&world).await;
    let running = server(&world);
    let stream = running
        .hub
        .follow_logs(world.key, Filter::default(), Begin::From(From::Start), Slow::Skips);
    let mut browser = Browser::new(stream);
    world.runtime.write(&outputs[0], b"0\n");
    let mut got = Got::default();
    got.take(browser.next().await.expect("a message"));
    let follows = || async {
        let count =
            sqlx::query_scalar::<_, i64>("select count(*) from log_follows where job_id = $1 and until_at > $2");
        count
            .bind(world.job.0)
            .bind(Utc::now())
            .fetch_one(world.db.pool())
            .await
            .expect("a count")
    };
    assert_eq!(follows().await, 1);
    assert_eq!(running.hub.followed_jobs(), 1);
    let mut delays = Vec::new();
    for number in 1..=50 {
        let written = std::time::Instant::now();
        world.runtime.write(&outputs[0], format!("{number}\n").as_bytes());
        while got.lines.len() <= number {
            got.take(browser.next().await.expect("a message"));
        }
        delays.push(written.elapsed().as_millis());
    }
    delays.sort_unstable();
    println!("write to reader: median {} ms, worst {} ms", delays[25], delays[49]);
    drop(browser);
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while running.hub.followed_jobs() > 0 {
        assert!(std::time::Instant::now() < deadline, "the live reader stays");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    working.cancel();
}

async fn append(world: &World, job: JobId, kind: &str) {
    let mut tx = world.db.begin().await.expect("a transaction");
    let event = NewEvent {
        kind,
        actor: None,
        message: kind,
        data: json!({}),
    };
    events::append(&mut tx, Subject::Job(job), event, at(0))
        .await
        .expect("an event");
    tx.commit().await.expect("a commit");
}

async fn another_job(world: &World) -> JobId {
    let job = JobId(Uuid::now_v7());
    sqlx::query("insert into teams (id, name, created_at) values ($1, $2, '2026-01-01')")
        .bind(job.0)
        .bind(format!("t{}", job.0.simple()))
        .execute(world.db.pool())
        .await
        .expect("a team");
    sqlx::query(
        "insert into jobs select (jsonb_populate_record(j, jsonb_build_object('id', $1, 'team_id', $1, 'event_seq', 0))).*
         from jobs j where id = $2",
    )
    .bind(job.0)
    .bind(world.job.0)
    .execute(world.db.pool())
    .await
    .expect("a job");
    job
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_followed_by_subject_and_in_the_feed() {
    let world = World::new().await;
    let other = another_job(&world).await;
    let stop = CancellationToken::new();
    let installation: Uuid = sqlx::query_scalar("select id from installation")
        .fetch_one(world.db.pool())
        .await
        .expect("an installation");
    let term = Duration::from_secs(1_000_000_000);
    let holding = holdings::acquire(
        &world.db,
        holdings::SEQUENCER,
        installation,
        0,
        WorkerId(Uuid::now_v7()),
        term,
        at(0),
    )
    .await
    .expect("an answer")
    .expect("it is free");
    let listener = Listener::start(&world.db, CHANNELS, stop.clone());
    let sequencing = sequencer::run(
        world.db.clone(),
        holding,
        Arc::new(|| at(0)),
        listener.subscribe(),
        stop.clone(),
    );
    tokio::spawn(async move { sequencing.await.ok() });
    let running = server(&world);

    // Forty writers, among them pairs on the same job, while readers follow from the first event on.
    let key = feed::readable(&world.db, &Scope::Everything, Subject::Job(world.job))
        .await
        .expect("a key");
    let mut subject = Browser::new(running.hub.follow_events(key, 0));
    let mut every = Browser::new(running.hub.follow_feed(Scope::Everything, 0));
    let team: Uuid = sqlx::query_scalar("select team_id from jobs where id = $1")
        .bind(world.job.0)
        .fetch_one(world.db.pool())
        .await
        .expect("a team");
    let mut ours = Browser::new(running.hub.follow_feed(Scope::Teams(vec![TeamId(team)]), 0));
    let writing = futures::future::join_all((0..40).map(|number| {
        let world = &world;
        async move {
            for _ in 0..5 {
                append(world, if number % 2 == 0 { world.job } else { other }, "test.event").await;
            }
        }
    }));
    let of_subject = async {
        for expected in 1..=100i64 {
            let message = subject.next().await.expect("an event");
            assert_eq!(
                (message.event.as_str(), &message.data[0]["seq"]),
                ("event", &json!(expected))
            );
            assert_eq!(message.id, Some(expected.to_string()));
        }
    };
    let of_all = async {
        let mut seqs = std::collections::HashMap::new();
        for expected in 1..=200i64 {
            let message = every.next().await.expect("an event");
            assert_eq!(message.id, Some(expected.to_string()), "places have no gaps");
            let subject = message.data[0]["subject"].as_str().expect("a subject").to_owned();
            let last: &mut i64 = seqs.entry(subject).or_default();
            assert_eq!(
                message.data[0]["seq"],
                json!(*last + 1),
                "each subject in its own order"
            );
            *last += 1;
        }
    };
    let of_ours = async {
        for _ in 0..100 {
            let message = ours.next().await.expect("an event");
            assert_eq!(
                message.data[0]["subject"],
                json!(world.job.to_string()),
                "a stranger's event"
            );
        }
    };
    tokio::join!(writing, of_subject, of_all, of_ours);

    // Coming back with an id goes on behind it; what retention took is told.
    let mut again = Browser::new(running.hub.follow_events(key, 97));
    assert_eq!(again.next().await.expect("an event").id, Some("98".to_owned()));
    let mut later = Browser::new(running.hub.follow_feed(Scope::Everything, 198));
    assert_eq!(later.next().await.expect("an event").id, Some("199".to_owned()));
    // As a partition that goes does it.
    for statement in [
        "update installation set feed_pruned = (select max(feed_position) from events where owner_id = $1)",
        "delete from events where owner_id = $1 or seq < 50",
    ] {
        sqlx::query(statement)
            .bind(other.0)
            .execute(world.db.pool())
            .await
            .expect("gone");
    }
    let mut reset = Browser::new(running.hub.follow_feed(Scope::Everything, 3));
    assert_eq!(reset.next().await.expect("a message").event, "reset");
    let mut reset = Browser::new(running.hub.follow_events(key, 10));
    assert_eq!(reset.next().await.expect("a message").event, "reset");
    let mut anew = Browser::new(running.hub.follow_events(key, 0));
    assert_eq!(anew.next().await.expect("an event").id, Some("50".to_owned()));
    stop.cancel();
}
