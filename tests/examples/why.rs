//! Why a job does not run: the sentences, the same ones from API and page.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};

use crate::yard::{PATIENCE, Yard, example, shell};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_does_not_run_says_why() {
    let mut yard = Yard::open().await;
    let cores = cores(&yard).await;
    let all = cores.as_str();
    yard.ask(
        Method::PUT,
        "/api/v1/secrets/wandb",
        Some(&json!({ "values": { "key": "a-value-to-miss" } })),
    )
    .await;
    let holder = yard.submit(&shell("holder", all, "exec sleep 600", json!({})));
    yard.world
        .api
        .until(&holder, PATIENCE, |job| job["phase"] == "running")
        .await;

    let too_big = yard.submit(&example("too-big", &[]));
    told(&yard, &too_big, "no_cluster_fits", "GPUs").await;

    let first = yard.submit(&shell("first", all, "true", json!({})));
    told(&yard, &first, "no_room", "holder").await;
    let second = yard.submit(&shell(
        "second",
        all,
        "true",
        json!({ "deadlines": { "queue": "20s" } }),
    ));
    told(&yard, &second, "behind", "first came first").await;
    told(&yard, &second, "queue_deadline", "first came first").await;

    let reference = json!({ "secretRef": { "name": "wandb", "key": "key" } });
    let secretive = yard.submit(&shell(
        "secretive",
        "100m",
        "true",
        json!({ "env": { "WANDB_API_KEY": reference } }),
    ));
    yard.ask(Method::DELETE, "/api/v1/secrets/wandb", None).await;
    told(&yard, &secretive, "secret_missing", "wandb").await;

    // Both deadlines: in the queue, and running.
    let ended = yard.ended(&second).await;
    assert_eq!(
        (&ended["phase"], &ended["reason"]),
        (&json!("failed"), &json!("queue_deadline")),
        "{ended:#}"
    );
    over(&yard, &second, "queue_deadline").await;
    yard.cancel(&holder).await;
    yard.cancel(&secretive).await;
    yard.succeeded(&first).await;
    let runs = yard.submit(&shell(
        "runs",
        "100m",
        "exec sleep 600",
        json!({ "deadlines": { "run": "3s" } }),
    ));
    let ended = yard.ended(&runs).await;
    assert_eq!(ended["phase"], "failed", "{ended:#}");
    over(&yard, &runs, "run_deadline").await;

    // Nobody looks after the cluster: what runs goes on and is stale, what waits says so.
    let goes_on = yard.submit(&shell("goes-on", "100m", "exec sleep 45", json!({})));
    yard.world
        .api
        .until(&goes_on, PATIENCE, |job| job["phase"] == "running")
        .await;
    let worker = yard.world.workers[0].take().expect("it runs");
    worker.kill();
    let waits = yard.submit(&shell(
        "waits",
        "100m",
        "true",
        json!({ "cluster": cluster(&yard).await }),
    ));
    told(&yard, &waits, "worker_gone", "no worker looks after the cluster").await;
    let stale = yard
        .world
        .api
        .until(&goes_on, PATIENCE, |job| !job["stale_since"].is_null())
        .await;
    assert_eq!(stale["phase"], "running", "only what we know of it is old: {stale:#}");
    yard.world.work(0);
    yard.succeeded(&waits).await;
    yard.succeeded(&goes_on).await;
    println!("a worker came back: both jobs succeeded, one attempt each");
}

/// Waits until the job is held up for this reason, and checks that API and page say it in the same words.
async fn told(yard: &Yard, job: &str, code: &str, words: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let answer = yard.get(job, "why").await;
        let reasons = answer["why"]["reasons"].as_array().cloned().unwrap_or_default();
        let page = yard.page(&format!("/jobs/{job}")).await;
        let sentence = answer["sentence"].as_str().expect("a sentence");
        if reasons.iter().any(|reason| reason["code"] == code) && says(&page, sentence) {
            assert!(sentence.contains(words), "{answer:#}");
            println!("why, {code}: {sentence}");
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{code}: the API says {answer:#}\nand the page: {page}"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The page shows the cause and the next step apart from each other, each with a capital letter.
fn says(page: &str, sentence: &str) -> bool {
    let page = page.to_lowercase();
    let mut parts = sentence.split(". Next: ");
    parts.all(|part| page.contains(part.trim_end_matches('.').to_lowercase().as_str()))
}

/// What API and page say of a job that a deadline ended.
async fn over(yard: &Yard, job: &str, what: &str) {
    let found = yard.world.api.job(job).await;
    let message = found["message"].as_str().expect("words");
    let page = yard.page(&format!("/jobs/{job}")).await;
    assert!(page.contains(message), "the page does not say '{message}': {page}");
    println!("{what}: {message}");
}

async fn local(yard: &Yard) -> Value {
    let mut clusters = yard.world.api.all("/api/v1/clusters").await;
    clusters.remove(0)
}

async fn cluster(yard: &Yard) -> String {
    local(yard).await["name"].as_str().expect("a name").to_owned()
}

/// All cores that the machine offers to jobs.
async fn cores(yard: &Yard) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let nodes = yard.world.api.all("/api/v1/nodes").await;
        let milli = nodes.first().and_then(|node| node["allocatable"]["cpu_milli"].as_u64());
        if let Some(milli) = milli {
            return format!("{milli}m");
        }
        assert!(Instant::now() < deadline, "no node tells its cores: {nodes:#?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
