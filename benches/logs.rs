//! How fast output is stored, read, searched and followed: `cargo bench --bench logs`. Prints figures, asserts counts.
//!
//! One thread of ours, so the figures are per core; Postgres is another process. The source is memory.

#[path = "../tests/support/mod.rs"]
mod support;
#[path = "../tests/logs/world.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod world;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use chrono::Utc;
use futures::{StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use trainyard::{
    db::{listen::Listener, notify},
    hub::{Hub, logs::Slow},
    logs::{
        download::{self, Shape},
        merge::Begin,
        page::{Filter, Query, page},
        search::{Limits, Needle, search},
        stream::From,
    },
    runtimes::OutputRef,
    worker::ingest::Settings,
};

use world::{World, at};

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        flood_and_reading(1, 1_500_000).await;
        flood_and_reading(16, 100_000).await;
        silence(1000).await;
        for clients in [1, 100, 1000] {
            tails(clients).await;
        }
    });
}

fn text(lines: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(lines * 100);
    for line in 0..lines {
        out.extend_from_slice(
            format!(
                "2026-11-30 12:00:00 INFO train.loop epoch {} batch {line} of {lines}: time {:.3} ms, memory {} MiB\n",
                line / 1000,
                (line % 977) as f64 / 7.0,
                8000 + line % 83
            )
            .as_bytes(),
        );
    }
    out
}

async fn flood_and_reading(replicas: u32, lines: usize) {
    let world = World::with_secrets(&["a secret that never comes"]).await;
    let outputs = world.attempt(1, replicas).await;
    let stdout: Vec<&OutputRef> = outputs.iter().step_by(2).collect();
    let text = text(lines);
    for output in &stdout {
        world.runtime.write(output, &text);
    }
    let total = lines * stdout.len();
    let megabytes = (text.len() * stdout.len()) as f64 / 1e6;
    let (mut ingest, holding) = world.worker().await;
    let begun = Instant::now();
    let mut flushes = 0;
    loop {
        flushes += 1;
        if !ingest
            .flush(&holding, at(flushes), true)
            .await
            .expect("a flush")
            .backlog
        {
            break;
        }
    }
    let rate = |what: &str, begun: Instant, total: usize| {
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{replicas:3} streams  {what:28} {:10.0} lines/s  {:7.0} MB/s",
            total as f64 / seconds,
            megabytes * total as f64 / (lines * stdout.len()) as f64 / seconds
        );
    };
    rate("stored (masked, caught)", begun, total);
    let streams = world.streams().await;
    assert_eq!(streams.iter().map(|row| row.lines).sum::<u64>(), total as u64);

    for (what, shape) in [
        ("read as JSON lines", Shape::Ndjson { raw: false }),
        ("read as text, merged", Shape::Text),
    ] {
        let begun = Instant::now();
        let parts = download::lines(&world.db, streams.clone(), Begin::From(From::Start), shape, None);
        let found = parts
            .try_fold(0, |sum, part| async move {
                Ok(sum + memchr::memchr_iter(b'\n', &part).count())
            })
            .await
            .expect("a download");
        rate(what, begun, total);
        assert_eq!(found, total);
    }
    let one = streams.iter().find(|row| row.lines > 0).expect("a stream").clone();
    let begun = Instant::now();
    let found: usize = download::bytes(&world.db, one.clone())
        .try_fold(0, |sum, part| async move { Ok(sum + part.len()) })
        .await
        .expect("a download");
    assert_eq!(found, text.len());
    rate("one stream, raw", begun, lines);
    for (what, pattern, is_regex) in [
        ("searched, text", "no such words", false),
        ("searched, regex", r"batch \d+x", true),
    ] {
        let needle = Needle::new(pattern, is_regex, false).expect("a pattern");
        let limits = Limits {
            bytes: u64::MAX,
            ..Limits::default()
        };
        let begun = Instant::now();
        let found = search(&world.db, &streams, &needle, None, limits)
            .await
            .expect("a search");
        assert!(found.groups.is_empty());
        rate(what, begun, total);
    }
    let begun = Instant::now();
    let query = Query {
        begin: Begin::From(From::Tail(1000)),
        until: None,
        lines: 1000,
        bytes: usize::MAX,
        mpi_rank: None,
        look: 0,
    };
    let tail = page(&world.db, &streams, &query).await.expect("a page");
    assert_eq!(tail.runs.iter().map(|placed| placed.run.count()).sum::<usize>(), 1000);
    println!(
        "{replicas:3} streams  last 1000 lines              {:10.1} ms",
        begun.elapsed().as_secs_f64() * 1e3
    );
}

async fn silence(replicas: u32) {
    let world = World::new().await;
    let outputs = world.attempt(1, replicas).await;
    for output in &outputs {
        world.runtime.write(output, b"one line\n");
    }
    let (mut ingest, holding) = world.worker().await;
    let begun = Instant::now();
    ingest.flush(&holding, at(1), true).await.expect("a flush");
    println!(
        "{} new streams with a line each: {:.0} ms",
        outputs.len(),
        begun.elapsed().as_secs_f64() * 1e3
    );
    let begun = Instant::now();
    for time in 2..102 {
        ingest.flush(&holding, at(time), true).await.expect("a flush");
    }
    println!(
        "{} silent streams: {:.2} ms per flush",
        outputs.len(),
        begun.elapsed().as_secs_f64() * 10.0
    );
    for output in &outputs {
        world.runtime.write(output, b"another line\n");
    }
    let begun = Instant::now();
    ingest.flush(&holding, at(200), true).await.expect("a flush");
    println!(
        "{} streams with a line each: {:.0} ms",
        outputs.len(),
        begun.elapsed().as_secs_f64() * 1e3
    );
}

/// One stream of 100 lines a second, from the process's write to each reader.
async fn tails(clients: usize) {
    const LINES: usize = 500;
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let stop = CancellationToken::new();
    let (_, holding) = world.worker().await;
    let (seals, _asked) = mpsc::channel(1000);
    let about = Arc::new(world::Secrets(Vec::new()));
    let ingest = trainyard::worker::ingest::Ingest::new(
        world.db.clone(),
        world.runtime.clone(),
        world.cluster,
        about,
        Settings::default(),
        seals,
    );
    let listener = Listener::start(&world.db, &[notify::LOGS, notify::FOLLOWS], stop.clone());
    let run = ingest.run(holding, Arc::new(Utc::now), listener.subscribe(), stop.clone());
    tokio::spawn(async move { run.await.ok() });
    let hub = Hub::start(&world.db, &listener, Arc::new(Utc::now), stop.clone());
    let written: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let (told, mut delays) = mpsc::unbounded_channel();
    world.runtime.write(&outputs[0], b"start\n");
    for _ in 0..clients {
        let mut stream = hub.follow_logs(world.key, Filter::default(), Begin::From(From::Start), Slow::ReadsAll);
        let (told, written) = (told.clone(), written.clone());
        tokio::spawn(async move {
            let mut seen = 0;
            while let Some(message) = stream.next().await {
                let now = Instant::now();
                let lines = memchr::memmem::find_iter(&message, b"data: {\"line\"").count();
                let written = written.lock().expect("no panic");
                for _ in 0..lines {
                    // The first line only says that the reader is there.
                    if seen > 0 {
                        told.send(now - written[seen - 1]).ok();
                    } else {
                        told.send(Duration::MAX).ok();
                    }
                    seen += 1;
                }
                if seen > LINES {
                    return;
                }
            }
        });
    }
    for _ in 0..clients {
        delays.recv().await;
    }
    let cpu = cpu_seconds();
    let begun = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(10));
    for line in 0..LINES {
        tick.tick().await;
        written.lock().expect("no panic").push(Instant::now());
        world.runtime.write(
            &outputs[0],
            format!("line {line} of a run that prints quite evenly\n").as_bytes(),
        );
    }
    let mut all = Vec::with_capacity(LINES * clients);
    while all.len() < LINES * clients {
        all.push(delays.recv().await.expect("every line comes").as_secs_f64() * 1e3);
    }
    let used = (cpu_seconds() - cpu) / begun.elapsed().as_secs_f64();
    all.sort_by(f64::total_cmp);
    println!(
        "{clients:4} readers of 100 lines/s: p50 {:.0} ms, p99 {:.0} ms, worst {:.0} ms, {} of {} lines, {:.0} % of a core",
        all[all.len() / 2],
        all[all.len() * 99 / 100],
        all[all.len() - 1],
        all.len(),
        LINES * clients,
        used * 100.0
    );
    stop.cancel();
}

/// What this process has used so far.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<f64>().ok())
            .unwrap_or(0.0)
    };
    (ticks(11) + ticks(12)) / 100.0
}
