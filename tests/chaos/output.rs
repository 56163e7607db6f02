//! One job's output, exit code and attempt, while everything around it is killed.

use std::time::{Duration, Instant};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    books::{self, Tally, Witness, printer},
    world::World,
};

const LINES: u32 = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_lines_survive_ten_kills_and_a_restart_of_postgres() {
    let mut world = World::new(2, &[]).await;
    let witness = Witness::new(&world);
    let job = world
        .api
        .submit(&printer("printer", LINES, 20, 0.22, 7, &witness))
        .await;
    let mut hit = Vec::new();
    for round in 0..5 {
        let lines = grown(&world, &job).await;
        hit.push(lines);
        // The worker that holds the machine is the one that stores; which one that is changes with each kill.
        world.kill_worker(round % 2);
        world.kill_server();
        if round == 2 {
            world.postgres().restart(Duration::from_secs(1));
        }
    }
    let ended = world.api.ended(&job, Duration::from_secs(240)).await;
    let attempts = books::stored(&world.api, &job).await;
    let replicas = world.api.all(&format!("/api/v1/jobs/{job}/replicas")).await;
    let tally = books::check(&world.api, &job, LINES, &witness.runs()).await;
    println!("5 kill -9 of a worker and of the server with {hit:?} lines stored, 1 restart of Postgres: {tally}");
    println!("exit code {}, {} attempt", replicas[0]["exit_code"], attempts.len());
    assert_eq!(ended["phase"], "failed");
    assert_eq!(replicas[0]["exit_code"], 7);
    assert_eq!(attempts.len(), 1);
    assert!(tally.is_clean(), "{tally}");
    assert_eq!(tally.lines, u64::from(LINES) * 2);
    assert!(
        hit.last() < Some(&(i64::from(LINES) * 2)),
        "the kills came too late to prove anything: {hit:?}"
    );
}

/// Waits until more lines are stored than a moment ago, and says how many.
async fn grown(world: &World, job: &str) -> i64 {
    let mut database = world.database().await;
    let mut stored = async || {
        let lines = "select coalesce(sum(s.lines), 0)::bigint from log_streams s join jobs j on j.id = s.job_id
                     where j.name = 'printer'";
        loop {
            match sqlx::query_scalar::<_, i64>(lines).fetch_one(&mut database).await {
                Ok(lines) => return lines,
                Err(_) => database = world.database().await,
            }
        }
    };
    let before = stored().await;
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let now = stored().await;
        if now > before {
            return now;
        }
        assert!(
            Instant::now() < deadline,
            "nothing more of {job} is stored than {before} lines"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_shim_means_exit_unknown_with_the_output_whole_and_the_policy_applied() {
    let world = World::new(1, &[]).await;
    let witness = Witness::new(&world);
    let mut document = printer("unseen", 600, 10, 0.1, 0, &witness);
    document["restart"] = serde_json::json!({ "max": 1, "backoff": "1s" });
    let job = world.api.submit(&document).await;
    world
        .api
        .until(&job, Duration::from_secs(60), |job| job["phase"] == "running")
        .await;
    let (shim, _) = world.shims().pop().expect("a shim runs");
    kill(Pid::from_raw(shim), Signal::SIGKILL).expect("it was there");
    let ended = world.api.ended(&job, Duration::from_secs(120)).await;
    let attempts = books::stored(&world.api, &job).await;
    let mut tally = Tally::default();
    for number in [1, 2] {
        for (stream, word) in [("stdout", "out"), ("stderr", "err")] {
            let lines = world.api.lines(&job, number, 0, stream).await;
            books::compare(&mut tally, &format!("attempt {number} {stream}"), &lines, word, 600);
        }
    }
    let told: Vec<String> = attempts
        .iter()
        .map(|a| format!("{}: {} {}", a["number"], a["outcome"], a["reason"]))
        .collect();
    println!("a killed shim: {told:?}, {} lines, {tally}", tally.lines);
    assert_eq!(ended["phase"], "succeeded", "{ended:#}");
    assert_eq!(attempts.len(), 2);
    assert_eq!(attempts[1]["reason"], "exit_unknown", "{attempts:#?}");
    assert!(tally.is_clean(), "{tally}");
}
