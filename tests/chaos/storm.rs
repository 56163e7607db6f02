//! Many jobs, many kills, and Postgres going away under a load of creates.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures::StreamExt;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use reqwest::Method;
use serde_json::json;
use sqlx::PgConnection;

use crate::{
    api::Answer,
    books::{self, Tally, Witness, printer},
    is_long, seed,
    world::World,
};

const LINES: u32 = 15;

/// What was in which phase when something was hit: by target, by phase, how many jobs.
type Histogram = BTreeMap<&'static str, (u64, BTreeMap<String, i64>)>;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_jobs_queued_at_once_end_once_under_random_kills() {
    let seed = seed();
    let (jobs, kills) = if is_long() { (1_000, 3_000) } else { (1_000, 36) };
    println!("seed {seed}: {jobs} jobs, {kills} kills");
    let mut dice = StdRng::seed_from_u64(seed);
    let mut world = World::new(2, &[]).await;
    let witness = Witness::new(&world);
    let mut document = printer("small", LINES, 5, 0.1, 0, &witness);
    document["restart"] = json!({ "max": 50, "backoff": "1s" });

    let began = Instant::now();
    let ids = submit_all(&world, &document, jobs).await;
    println!("{jobs} jobs were queued in {:.1} s", began.elapsed().as_secs_f64());
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), jobs);

    let mut histogram = Histogram::new();
    let mut more = BTreeSet::new();
    let mut done = 0;
    while done < kills {
        if unfinished(&world).await < 50 {
            // A long storm outlives its first thousand jobs; a short one that does is over.
            if !is_long() {
                break;
            }
            more.extend(submit_all(&world, &document, 500).await);
        }
        tokio::time::sleep(Duration::from_millis(dice.random_range(200..2_500))).await;
        hit(&mut world, &mut dice, &mut histogram).await;
        done += 1;
    }
    let stormed = began.elapsed();
    print(&histogram);
    until_all_ended(&world).await;
    println!(
        "{done} kills in {:.0} s, all over after {:.0} s",
        stormed.as_secs_f64(),
        began.elapsed().as_secs_f64()
    );

    let runs = witness.runs();
    let all: Vec<String> = ids.into_iter().chain(more).collect();
    let mut tally = Tally::default();
    let api = &world.api;
    let runs = &runs;
    let mut checks = futures::stream::iter(&all)
        .map(|id| async move {
            let job = api.job(id).await;
            assert_eq!(job["phase"], "succeeded", "{job:#}");
            books::check(api, id, LINES, runs).await
        })
        .buffer_unordered(8);
    while let Some(one) = checks.next().await {
        tally.add(one);
    }
    println!("{tally}");
    println!("checked after {:.0} s", began.elapsed().as_secs_f64());
    assert!(tally.is_clean(), "seed {seed}: {tally}");
    assert!(done >= 10, "the jobs were over before the storm was: {done} kills");
}

async fn submit_all(world: &World, document: &serde_json::Value, count: usize) -> Vec<String> {
    let api = world.api.clone();
    futures::stream::iter(0..count)
        .map(|_| api.submit(document))
        .buffer_unordered(16)
        .collect()
        .await
}

/// Kills one thing at random, and notes which jobs were where.
async fn hit(world: &mut World, dice: &mut StdRng, histogram: &mut Histogram) {
    let mut phases = phases(world).await;
    let target = match dice.random_range(0..100) {
        0..40 => {
            let index = dice.random_range(0..world.workers.len());
            world.kill_worker(index);
            "worker"
        }
        40..60 => {
            world.kill_server();
            "server"
        }
        60..88 => {
            let shims = world.shims();
            if shims.is_empty() {
                return;
            }
            let (pid, attempt) = &shims[dice.random_range(0..shims.len())];
            phases = BTreeMap::from([(phase_of(world, attempt).await, 1)]);
            let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
            "shim"
        }
        88..95 => {
            world.postgres().kill_and_restart();
            "postgres, killed"
        }
        _ => {
            world.postgres().restart(Duration::from_millis(500));
            "postgres, restarted"
        }
    };
    let (times, seen) = histogram.entry(target).or_default();
    *times += 1;
    for (phase, jobs) in phases {
        *seen.entry(phase).or_default() += jobs;
    }
}

fn print(histogram: &Histogram) {
    println!("what was hit, and how many jobs were in which phase then:");
    for (target, (times, phases)) in histogram {
        let phases: Vec<String> = phases.iter().map(|(phase, jobs)| format!("{phase} {jobs}")).collect();
        println!("  {target:<20}{times:>5} times: {}", phases.join(", "));
    }
}

const PHASES: &str = "
    select case when j.ended_at is null then j.phase when a.output_stored_at is null then 'storing' else 'clearing' end,
        count(*)
    from jobs j left join attempts a on a.job_id = j.id and a.number = j.attempt
    where j.ended_at is null or a.released_at is null group by 1";

async fn phases(world: &World) -> BTreeMap<String, i64> {
    let rows: Vec<(String, i64)> = ask(world, async |database| sqlx::query_as(PHASES).fetch_all(database).await).await;
    rows.into_iter().collect()
}

async fn phase_of(world: &World, attempt: &str) -> String {
    let id: trainyard_core::model::AttemptId = attempt.parse().expect("an attempt's id");
    let phase = "select phase from attempts where id = $1";
    ask(world, async |database| {
        sqlx::query_scalar(phase).bind(id.0).fetch_one(database).await
    })
    .await
}

async fn unfinished(world: &World) -> i64 {
    let count = "select count(*) from jobs where ended_at is null";
    ask(world, async |database| {
        sqlx::query_scalar(count).fetch_one(database).await
    })
    .await
}

/// Asks the database, however often it has to be asked.
async fn ask<T>(world: &World, question: impl AsyncFn(&mut PgConnection) -> Result<T, sqlx::Error>) -> T {
    loop {
        let mut database = world.database().await;
        if let Ok(answer) = question(&mut database).await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// As long as jobs end, it is waited.
async fn until_all_ended(world: &World) {
    let mut left = unfinished(world).await;
    let mut deadline = Instant::now() + Duration::from_secs(120);
    while left > 0 {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = unfinished(world).await;
        if now < left {
            deadline = Instant::now() + Duration::from_secs(120);
        }
        left = now;
        assert!(
            Instant::now() < deadline,
            "{left} jobs do not end: {:?}",
            phases(world).await
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres_goes_away_under_a_load_of_creates_and_nothing_acknowledged_is_lost() {
    let mut world = World::new(0, &[]).await;
    let witness = Witness::new(&world);
    let document = printer("created", 1, 1, 0.0, 0, &witness);
    let over = Arc::new(AtomicBool::new(false));
    let (turned_away, without_hint, broken) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicU64::new(0)),
    );
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..8 {
        let (api, document, over) = (world.api.clone(), document.clone(), over.clone());
        let (turned_away, without_hint, broken) = (turned_away.clone(), without_hint.clone(), broken.clone());
        clients.spawn(async move {
            let mut acknowledged = Vec::new();
            while !over.load(Ordering::Relaxed) {
                match api.once(Method::POST, "/api/v1/jobs", None, Some(&document)).await {
                    Answer::Done(job) => acknowledged.push(job["id"].as_str().expect("an id").to_owned()),
                    Answer::ComeBack { status, retry_after } => {
                        assert_eq!(status, 503);
                        turned_away.fetch_add(1, Ordering::Relaxed);
                        without_hint.fetch_add(u64::from(!retry_after), Ordering::Relaxed);
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Answer::Broken => {
                        broken.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            acknowledged
        });
    }
    for round in 0..4 {
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        match round % 2 {
            0 => world.postgres().restart(Duration::from_millis(1_500)),
            _ => world.postgres().kill_and_restart(),
        }
        world.api.ready().await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    over.store(true, Ordering::Relaxed);
    let acknowledged: Vec<String> = clients.join_all().await.into_iter().flatten().collect();
    let mut database = world.database().await;
    let stored: BTreeSet<String> = sqlx::query_scalar::<_, uuid::Uuid>("select id from jobs")
        .fetch_all(&mut database)
        .await
        .expect("the jobs")
        .into_iter()
        .map(|id| trainyard_core::model::JobId(id).to_string())
        .collect();
    let lost = acknowledged.iter().filter(|id| !stored.contains(*id)).count();
    let turned_away = turned_away.load(Ordering::Relaxed);
    println!(
        "4 outages of Postgres: {} creates acknowledged, {lost} of them lost, {} stored, {turned_away} answered with 503 \
         and Retry-After",
        acknowledged.len(),
        stored.len()
    );
    assert_eq!(lost, 0);
    assert_eq!(without_hint.load(Ordering::Relaxed), 0, "503 without Retry-After");
    assert_eq!(broken.load(Ordering::Relaxed), 0, "the server itself never went away");
    assert!(
        turned_away > 0 && acknowledged.len() > 100,
        "too little happened to prove anything"
    );
}
