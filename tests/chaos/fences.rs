//! The proof that the proof bites: a worker that slept through its lease, with its fence checked and without.

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::json;
use sqlx::PgConnection;

use crate::{
    books::{self, Tally},
    world::{Process, World},
};

const STEPS: u32 = 5_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_slept_through_its_lease_changes_nothing() {
    let (tally, points) = sleeper(&[]).await;
    println!("fences on: {tally}; {points} points of {STEPS} steps");
    assert!(tally.is_clean(), "{tally}");
    assert_eq!(points, i64::from(STEPS));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_fences_the_same_test_is_red() {
    let (tally, points) = sleeper(&[("TRAINYARD_UNSAFE_SKIP_FENCES", "1")]).await;
    println!("fences off: {tally}; {points} points of {STEPS} steps");
    let red = tally.lost + tally.doubled > 0 || points != i64::from(STEPS);
    assert!(
        red,
        "the test does not see what fences prevent: {tally}, {points} points"
    );
}

/// Two workers store one job's output and the numbers in it. The one that does is stopped until the other one has
/// stored what comes next and has merged it with what was there; then it wakes up and goes on with what it remembers.
/// Bytes are stored by where they lie in their stream, so writing them again is hard to see; a number that is caught
/// twice is two points.
async fn sleeper(extra: &[(&str, &str)]) -> (Tally, i64) {
    let world = World::new(2, extra).await;
    let script = format!(
        "i=0; while [ $i -lt {STEPS} ]; do i=$((i+1)); echo \"step=$i loss=$i\"; [ $((i % 10)) -ne 0 ] || sleep 0.1; done"
    );
    let document = json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "sleeper",
        "roles": [{ "name": "worker", "command": ["sh", "-c", script], "resources": { "cpu": "100m" } }],
    });
    let job = world.api.submit(&document).await;
    // Somebody looks, so output is stored every 50 ms and in small rows.
    let (api, followed) = (world.api.clone(), job.clone());
    let follower = tokio::spawn(async move { api.follow(&followed).await });
    let mut database = world.database().await;
    let deadline = Instant::now() + Duration::from_secs(150);
    let mut at = 0;
    // Which of the two it is can't be seen from outside: each has its turn, and one of them is right.
    for worker in [0, 1] {
        // Once something is stored twice, rows overlap and nothing more is merged: the answer is known.
        if doubled_points(&mut database).await > 0 {
            break;
        }
        while stored(&mut database).await < at + 3_000 {
            assert!(Instant::now() < deadline, "nothing is stored");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let sleeping = world.workers[worker].as_ref().expect("it runs");
        stop_between_transactions(sleeping, &mut database).await;
        at = stored(&mut database).await;
        let merged = "select count(*) from log_chunks c join log_streams s on s.id = c.stream_id
                      where s.stream = 'stdout' and c.byte_offset < $1 and c.byte_offset + c.bytes > $1 + 200";
        loop {
            let over: i64 = sqlx::query_scalar(merged)
                .bind(at)
                .fetch_one(&mut database)
                .await
                .expect("an answer");
            if over > 0 {
                break;
            }
            if doubled_points(&mut database).await > 0 {
                break;
            }
            assert!(Instant::now() < deadline, "the other worker does not take over");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        sleeping.signal(Signal::SIGCONT);
    }
    world.api.ended(&job, Duration::from_secs(180)).await;
    follower.abort();
    let mut tally = Tally {
        jobs: 1,
        attempts: books::stored(&world.api, &job).await.len() as u64,
        ..Tally::default()
    };
    let lines = world.api.lines(&job, 1, 0, "stdout").await;
    let numbers: Vec<String> = lines
        .iter()
        .map(|line| line.split(" loss").next().unwrap_or_default().to_owned())
        .collect();
    books::compare(&mut tally, "stdout", &numbers, "step=", STEPS);
    let points = "select coalesce(sum(cardinality(c.steps)), 0)::bigint from metric_chunks c
                  where c.series = 'loss'";
    (
        tally,
        sqlx::query_scalar(points)
            .fetch_one(&mut database)
            .await
            .expect("an answer"),
    )
}

async fn doubled_points(database: &mut PgConnection) -> i64 {
    let more = "select count(*) - count(distinct step) from metric_chunks, unnest(steps) as s (step)
                where series = 'loss'";
    sqlx::query_scalar(more).fetch_one(database).await.expect("an answer")
}

async fn stored(database: &mut PgConnection) -> i64 {
    let bytes = "select bytes from log_streams where stream = 'stdout'";
    let found: Option<i64> = sqlx::query_scalar(bytes)
        .fetch_optional(database)
        .await
        .expect("an answer");
    found.unwrap_or(0)
}

/// Stopped within a transaction, it would only lose that one: Postgres ends it, and the sleeper finds out.
async fn stop_between_transactions(process: &Process, database: &mut PgConnection) {
    let open = "select count(*) from pg_stat_activity where state like 'idle in transaction%'
                and state_change < clock_timestamp() - interval '250 milliseconds'";
    for _ in 0..200 {
        process.signal(Signal::SIGSTOP);
        tokio::time::sleep(Duration::from_millis(400)).await;
        let open: i64 = sqlx::query_scalar(open)
            .fetch_one(&mut *database)
            .await
            .expect("an answer");
        if open == 0 {
            return;
        }
        process.signal(Signal::SIGCONT);
        tokio::time::sleep(Duration::from_millis(70)).await;
    }
    panic!("it never stood between two transactions");
}
