//! Every byte once, in order, masked, whoever is killed at whatever point.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
};

use futures::TryStreamExt;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use trainyard::{
    db::{
        DbError,
        logs::keep,
        metrics::{self, Owner, Selection},
    },
    logs::{
        download,
        line::{Form, LineKind},
        merge::Begin,
        page::{Query, page},
        stream::From,
    },
    runtimes::OutputRef,
    worker::{
        ingest::{IngestError, Now, Settings, mask::Masker},
        seal::{self, StreamToSeal},
    },
};

use crate::world::{World, at};

/// Polls a future so many times at most, then drops it: what a kill looks like from inside.
struct Killed<F> {
    future: Pin<Box<F>>,
    polls: usize,
}

impl<F: Future> Future for Killed<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls == 0 {
            return Poll::Ready(None);
        }
        self.polls -= 1;
        match self.future.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.polls == 0 => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    }
}

fn killed_after<F: Future>(polls: usize, future: F) -> Killed<F> {
    Killed {
        future: Box::pin(future),
        polls,
    }
}

pub async fn stored(world: &World, output: &OutputRef) -> Vec<u8> {
    let row = world.stream(output).await;
    let parts: Vec<bytes::Bytes> = download::bytes(&world.db, row)
        .try_collect()
        .await
        .expect("the download");
    parts.concat()
}

fn masked(secrets: &[String], bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Masker::new(secrets.iter().map(String::as_str)).mask(bytes, 0, true, &mut out);
    out
}

fn now_fixed() -> Now {
    Arc::new(|| at(0))
}

const SECRETS: [&str; 3] = ["correct horse battery", "horse battery staple", "s3cr3t"];

/// Text of the kinds that break log readers.
fn some_output(random: &mut StdRng) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..random.random_range(0..20) {
        match random.random_range(0..14) {
            0 => out.extend_from_slice("größe 日本語 🚂".as_bytes()),
            1 => out.extend_from_slice(&"🚂".as_bytes()[..random.random_range(1..4)]),
            2 => out.push(0),
            3 if random.random_ratio(1, 10) => out.extend_from_slice(&b"\r 10% of a bar that grows".repeat(3000)),
            3 => out.extend_from_slice(b"\r 10%\r 20%"),
            4 => out.extend_from_slice(SECRETS[random.random_range(0..3)].as_bytes()),
            5 => out.extend_from_slice(&SECRETS[0].as_bytes()[..random.random_range(1..20)]),
            6 => out.extend_from_slice(b"correct horse battery staple"),
            7 => out.extend_from_slice(b"\x1b[31mred\x1b[0m \"quoted\\\""),
            8 => out.extend_from_slice(b"\r\n"),
            9 => out.extend(std::iter::repeat_n(b'x', random.random_range(0..3000))),
            10 => out.extend((0..random.random_range(0..40)).map(|_| random.random::<u8>())),
            _ => out.extend_from_slice(b"a line of words"),
        }
        if random.random_range(0..3) > 0 {
            out.push(b'\n');
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_byte_is_stored_once_whatever_is_killed() {
    for seed in [1u64, 2, 3, 4] {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let world = World::with_secrets(&SECRETS).await;
        let outputs = world.attempt(1, 2).await;
        let (mut ingest, mut holding) = world.worker().await;
        let (mut kills, mut done) = (0, 0);
        let mut clock = 0;
        for round in 0..80 {
            for output in &outputs {
                if random.random_bool(0.5) {
                    let mut bytes = some_output(&mut random);
                    if random.random_ratio(1, 120) {
                        // A flood: sealed at once.
                        bytes = bytes.repeat(1 + (1 << 20) / bytes.len().max(1));
                    }
                    world.runtime.write(output, &bytes);
                }
            }
            *world.runtime.short.lock().expect("no panic") =
                random.random_bool(0.3).then(|| random.random_range(1..5000));
            if random.random_ratio(1, 10) {
                // Another worker takes over; memory of the old one is gone.
                (ingest, holding) = world.worker().await;
            }
            // Sometimes the clock stands still or goes back.
            clock += random.random_range(-30..100);
            let all = round % 7 == 0 || random.random_bool(0.8);
            let flush = ingest.flush(&holding, at(clock), all);
            if random.random_bool(0.4) {
                match killed_after(random.random_range(1..16), flush).await {
                    Some(result) => drop(result.expect("a flush")),
                    None => kills += 1,
                }
            } else {
                flush.await.expect("a flush");
                done += 1;
            }
            if random.random_ratio(1, 4) {
                for row in world.streams().await {
                    let request = StreamToSeal {
                        key: row.key,
                        stream: row.id,
                        ended: false,
                    };
                    let now = now_fixed();
                    let seal = seal::seal(&world.db, &holding, &now, request);
                    match killed_after(random.random_range(1..12), seal).await {
                        Some(result) => drop(result.expect("a seal")),
                        None => kills += 1,
                    }
                }
            }
        }
        for output in &outputs {
            world.runtime.end(output);
        }
        world.end_attempt(outputs[0].attempt).await;
        let mut stored_attempts = Vec::new();
        for _ in 0..100 {
            clock += 10;
            let flushed = ingest.flush(&holding, at(clock), true).await.expect("a flush");
            stored_attempts.extend(flushed.stored);
            if !stored_attempts.is_empty() {
                break;
            }
        }
        assert_eq!(stored_attempts, [(outputs[0].attempt, world.job)], "seed {seed}");
        for output in &outputs {
            let written = world.runtime.with(output, |source| source.bytes.clone());
            let expected = masked(&world.secrets, &written);
            let found = stored(&world, output).await;
            assert_eq!(found.len(), expected.len(), "seed {seed}: {output:?}");
            assert!(found == expected, "seed {seed}: {output:?} differs");
            for secret in SECRETS {
                assert!(
                    memchr::memmem::find(&found, secret.as_bytes()).is_none(),
                    "seed {seed}: a secret is stored"
                );
            }
            crate::reading::check_lines(&world, output, &expected, &mut random).await;
        }
        // When everything is sealed, the same is read.
        for row in world.streams().await {
            let request = StreamToSeal {
                key: row.key,
                stream: row.id,
                ended: true,
            };
            seal::seal(&world.db, &holding, &now_fixed(), request)
                .await
                .expect("a seal");
            assert!(
                keep::unsealed(&world.db, row.key, row.id)
                    .await
                    .expect("rows")
                    .is_empty()
            );
        }
        for output in &outputs {
            let written = world.runtime.with(output, |source| source.bytes.clone());
            let expected = masked(&world.secrets, &written);
            assert!(
                stored(&world, output).await == expected,
                "seed {seed}: sealing changed bytes"
            );
            crate::reading::check_lines(&world, output, &expected, &mut random).await;
        }
        println!("seed {seed}: {done} flushes, {kills} kills");
        assert!(kills > 5, "the kills must bite");
    }
}

#[tokio::test]
async fn a_worker_that_lost_its_holding_stores_nothing() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    world.runtime.write(&outputs[0], b"one\n");
    let (mut old, lost) = world.worker().await;
    old.flush(&lost, at(1), true).await.expect("a flush");
    let (mut new, holding) = world.worker().await;
    world.runtime.write(&outputs[0], b"two\n");
    let refused = old.flush(&lost, at(2), true).await;
    assert!(matches!(refused, Err(IngestError::Db(DbError::Fenced))), "{refused:?}");
    new.flush(&holding, at(3), true).await.expect("a flush");
    assert_eq!(stored(&world, &outputs[0]).await, b"one\ntwo\n");
}

#[tokio::test]
async fn memory_that_disagrees_with_the_record_is_refused_and_read_anew() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    world.runtime.write(&outputs[0], b"one\n");
    let (mut first, holding) = world.worker().await;
    first.flush(&holding, at(1), true).await.expect("a flush");
    // The same holding twice: what must never be, and does no harm.
    let about = Arc::new(crate::world::Secrets(Vec::new()));
    let mut second = trainyard::worker::ingest::Ingest::new(
        world.db.clone(),
        world.runtime.clone(),
        world.cluster,
        about,
        Settings::default(),
        world.seals.clone(),
    );
    world.runtime.write(&outputs[0], b"two\n");
    second.flush(&holding, at(2), true).await.expect("a flush");
    let stale = first.flush(&holding, at(3), true).await;
    assert!(matches!(stale, Err(IngestError::Db(DbError::Stale))), "{stale:?}");
    world.runtime.write(&outputs[0], b"three\n");
    first.flush(&holding, at(4), true).await.ok();
    first.flush(&holding, at(5), true).await.expect("a flush");
    assert_eq!(stored(&world, &outputs[0]).await, b"one\ntwo\nthree\n");
}

#[tokio::test]
async fn what_was_given_up_leaves_a_gap_in_words() {
    let world = World::with_secrets(&["correct horse battery"]).await;
    let outputs = world.attempt(1, 1).await;
    let (mut ingest, holding) = world.worker().await;
    world.runtime.write(&outputs[0], b"first\nsecond correct ho");
    ingest.flush(&holding, at(1), true).await.expect("a flush");
    let from = world.runtime.with(&outputs[0], |source| source.bytes.len() as u64);
    world.runtime.write(&outputs[0], &vec![b'x'; 5000]);
    world
        .runtime
        .with(&outputs[0], |source| source.dropped.push(from..from + 5000));
    world.runtime.write(&outputs[0], b"battery\nlast\n");
    world.runtime.end(&outputs[0]);
    ingest.flush(&holding, at(2), true).await.expect("a flush");
    let row = world.stream(&outputs[0]).await;
    assert_eq!((row.dropped_bytes, row.lines), (5000, 3));
    let streams = vec![row.clone()];
    let query = Query {
        begin: Begin::From(From::Start),
        until: None,
        lines: 100,
        bytes: 1 << 20,
        mpi_rank: None,
        look: 0,
    };
    let lines = page(&world.db, &streams, &query)
        .await
        .expect("a page")
        .lines(&streams, false);
    let told: Vec<(LineKind, Option<u64>, &str)> = lines
        .iter()
        .map(|line| (line.kind, line.line, line.text.as_str()))
        .collect();
    assert_eq!(
        told,
        [
            (LineKind::Output, Some(1), "first"),
            (
                LineKind::Gap,
                None,
                "5000 bytes of output are missing here: it was written faster than it could be stored, and the limit \
                 for unstored output was passed"
            ),
            (LineKind::Output, Some(2), "second *** [output is missing here] ***"),
            (LineKind::Output, Some(3), "last"),
        ]
    );
    // Sealing keeps the gap where it is.
    let request = StreamToSeal {
        key: row.key,
        stream: row.id,
        ended: true,
    };
    seal::seal(&world.db, &holding, &now_fixed(), request)
        .await
        .expect("a seal");
    assert_eq!(
        page(&world.db, &streams, &query)
            .await
            .expect("a page")
            .lines(&streams, false),
        lines
    );
}

#[tokio::test]
async fn output_that_the_machine_lost_is_said_to_be_missing() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let (mut ingest, holding) = world.worker().await;
    world.runtime.write(&outputs[0], b"first\n");
    ingest.flush(&holding, at(1), true).await.expect("a flush");
    world.runtime.sources.lock().expect("no panic").clear();
    world.end_attempt(outputs[0].attempt).await;
    let flushed = ingest.flush(&holding, at(2), true).await.expect("a flush");
    assert_eq!(flushed.stored.len(), 1);
    let text = String::from_utf8(stored(&world, &outputs[0]).await).expect("text");
    assert_eq!(
        text,
        "first\n\n[output may be missing here: the machine no longer has the rest of this stream]\n"
    );
    assert!(world.stream(&outputs[0]).await.ended_at.is_some());
}

#[tokio::test]
async fn a_line_of_50_mb_is_stored_whole_and_shown_cut() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let (mut ingest, holding) = world.worker().await;
    let long = vec![b'y'; 50_000_000];
    world.runtime.write(&outputs[0], b"before\n");
    world.runtime.write(&outputs[0], &long);
    world.runtime.write(&outputs[0], b"\nafter\n");
    world.runtime.end(&outputs[0]);
    let mut flushes = 0;
    while ingest
        .flush(&holding, at(flushes), true)
        .await
        .expect("a flush")
        .backlog
        || flushes == 0
    {
        flushes += 1;
    }
    assert!(flushes > 0);
    let row = world.stream(&outputs[0]).await;
    assert_eq!((row.bytes, row.lines), (50_000_014, 3));
    let streams = vec![row];
    let query = Query {
        begin: Begin::From(From::Line(1)),
        until: None,
        lines: 100,
        bytes: 1 << 20,
        mpi_rank: None,
        look: 0,
    };
    let found = page(&world.db, &streams, &query).await.expect("a page");
    let lines = found.lines(&streams, false);
    assert_eq!(lines.len(), 2);
    assert_eq!(
        (lines[0].line, lines[0].text.len(), lines[0].missing),
        (Some(2), 65536, 50_000_000 - 65536)
    );
    assert_eq!((lines[1].line, lines[1].text.as_str()), (Some(3), "after"));
    assert!(found.encode(&streams, Form::Ndjson, false).len() < 70_000);
    assert_eq!(stored(&world, &outputs[0]).await.len(), 50_000_014);
}

#[tokio::test]
async fn metrics_and_checkpoints_are_caught_once_across_flushes_and_kills() {
    for seed in [11u64, 12, 13] {
        println!("seed {seed}");
        let mut random = StdRng::seed_from_u64(seed);
        let world = World::new().await;
        let outputs = world.attempt(1, 2).await;
        let (mut ingest, mut holding) = world.worker().await;
        let mut text = String::new();
        for step in 1..=200 {
            text.push_str(&format!("step={step} loss={}\n", 1.0 / f64::from(step)));
            if step % 50 == 0 {
                text.push_str(&format!("checkpoint step={step} path=/ckpt/{step}\n"));
            }
        }
        let mut rest = text.as_bytes();
        let mut clock = 0;
        while !rest.is_empty() {
            let take = random.random_range(1..400).min(rest.len());
            for output in outputs.iter().step_by(2) {
                world.runtime.write(output, &rest[..take]);
            }
            rest = &rest[take..];
            clock += 10;
            if random.random_ratio(1, 8) {
                (ingest, holding) = world.worker().await;
            }
            let polls = if random.random_bool(0.3) {
                random.random_range(1..50)
            } else {
                usize::MAX
            };
            killed_after(polls, ingest.flush(&holding, at(clock), true)).await;
            if random.random_ratio(1, 10) {
                metrics::compact(&world.db, Owner::Job(world.key), true)
                    .await
                    .expect("compacting");
            }
        }
        ingest.flush(&holding, at(clock + 10), true).await.ok();
        ingest.flush(&holding, at(clock + 20), true).await.expect("a flush");
        metrics::compact(&world.db, Owner::Job(world.key), false)
            .await
            .expect("compacting");
        let series = metrics::read(&world.db, Owner::Job(world.key), &Selection::default())
            .await
            .expect("the series");
        assert_eq!(series.len(), 2);
        for (key, points) in series {
            assert_eq!(key.name, "loss");
            let steps: Vec<Option<i64>> = points.iter().map(|point| point.step).collect();
            assert_eq!(steps, (1..=200).map(Some).collect::<Vec<_>>(), "seed {seed}");
            assert_eq!(points[99].value, 0.01);
        }
        let checkpoints: Vec<i64> = sqlx::query_scalar("select step from checkpoints order by step")
            .fetch_all(world.db.pool())
            .await
            .expect("the checkpoints");
        assert_eq!(checkpoints, [50, 100, 150, 200]);
        let events: Vec<(i64, String)> = sqlx::query_as("select seq, kind from events order by seq")
            .fetch_all(world.db.pool())
            .await
            .expect("the events");
        assert_eq!(events.len(), 4);
        assert!(
            events
                .iter()
                .zip(1..)
                .all(|((seq, kind), at)| *seq == at && kind == "job.checkpoint")
        );
        let (step, replica): (i64, i64) =
            sqlx::query_as("select j.step, min(r.step) from jobs j join replicas r on r.job_id = j.id group by j.step")
                .fetch_one(world.db.pool())
                .await
                .expect("the steps");
        assert_eq!((step, replica), (200, 200));
        // An ended series is one row.
        metrics::compact(&world.db, Owner::Job(world.key), true)
            .await
            .expect("compacting");
        let rows: i64 = sqlx::query_scalar("select count(*) from metric_chunks")
            .fetch_one(world.db.pool())
            .await
            .expect("a count");
        assert_eq!(rows, 2);
    }
}

#[tokio::test]
async fn numbers_that_the_database_refuses_hold_up_no_byte() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let (mut ingest, holding) = world.worker().await;
    // Whatever the reason may be one day.
    for statement in [
        "create function refuse() returns trigger language plpgsql as $$ begin raise 'no such number'; end $$",
        "create trigger refuse before insert on metric_chunks for each row execute function refuse()",
    ] {
        sqlx::query(statement)
            .execute(world.db.pool())
            .await
            .expect("a statement");
    }
    world.runtime.write(&outputs[0], b"step=1 loss=0.5\n");
    ingest.flush(&holding, at(1), true).await.expect("a flush");
    assert_eq!(stored(&world, &outputs[0]).await, b"step=1 loss=0.5\n");
    // What is not refused is kept.
    let step: Option<i64> = sqlx::query_scalar("select max(step) from replicas")
        .fetch_one(world.db.pool())
        .await
        .expect("a step");
    assert_eq!(step, Some(1));
    world.runtime.write(&outputs[0], b"and on\n");
    ingest.flush(&holding, at(2), true).await.expect("a flush");
    assert_eq!(stored(&world, &outputs[0]).await, b"step=1 loss=0.5\nand on\n");
}

#[tokio::test]
async fn many_silent_streams_cost_no_write() {
    let world = World::new().await;
    let outputs = world.attempt(1, 500).await;
    let (mut ingest, holding) = world.worker().await;
    for output in &outputs {
        world.runtime.write(output, b"hello\n");
    }
    let flushed = ingest.flush(&holding, at(1), true).await.expect("a flush");
    assert_eq!((flushed.streams, flushed.lines), (1000, 1000));
    let written = || async {
        sqlx::query_scalar::<_, i64>("select count(distinct xmin::text) from log_streams")
            .fetch_one(world.db.pool())
            .await
            .expect("a count")
    };
    let before = written().await;
    for time in 2..20 {
        let flushed = ingest.flush(&holding, at(time), true).await.expect("a flush");
        assert_eq!((flushed.streams, flushed.bytes), (0, 0));
    }
    assert_eq!(written().await, before);
}

#[tokio::test]
async fn dropping_a_flush_leaves_no_connection_behind() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let (mut ingest, holding) = world.worker().await;
    for round in 0..60 {
        world.runtime.write(&outputs[0], b"x\n");
        let flush = pin!(ingest.flush(&holding, at(round), true));
        killed_after(round as usize % 30 + 1, flush).await;
    }
    ingest.flush(&holding, at(100), true).await.ok();
    ingest.flush(&holding, at(101), true).await.expect("a flush");
    assert_eq!(stored(&world, &outputs[0]).await, b"x\n".repeat(60));
}
