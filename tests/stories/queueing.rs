//! Who starts when, and what is said to those who wait.

use serde_json::json;

use crate::world::{World, document};

#[tokio::test]
async fn priority_goes_before_age_and_backfill_never_delays_the_large() {
    let mut world = World::new().await;
    let first = world
        .submit(document("first", 1, "3", json!({ "deadlines": { "run": "10m" } })))
        .await;
    world.pass(1.0).await;
    world.assert_phase(&first, "running").await;
    let large = world.submit(document("large", 1, "4", json!({}))).await;
    let low = world.submit(document("low", 1, "2", json!({}))).await;
    let urgent = world
        .submit(document("urgent", 1, "2", json!({ "priority": 100 })))
        .await;
    // It fits beside the first one and is over before the first one must be: it delays nobody.
    let brief = world
        .submit(document("brief", 1, "1", json!({ "deadlines": { "run": "2m" } })))
        .await;
    // It would fit now as well, and nobody knows how long it runs.
    let endless = world.submit(document("endless", 1, "1", json!({}))).await;
    world.pass(2.0).await;
    world.assert_phase(&brief, "running").await;
    for waits in [&large, &low, &urgent, &endless] {
        world.assert_phase(waits, "queued").await;
    }
    let why = world.why(&large).await;
    println!("large: {}", why["sentence"]);
    let why = world.why(&low).await;
    println!("low: {}", why["sentence"]);
    assert!(
        ["no_room", "behind"]
            .iter()
            .any(|code| why["why"]["reasons"][0]["code"] == *code),
        "{why:#}"
    );

    world.runtime.exit_all(&brief, 1, 0);
    world.runtime.exit_all(&first, 1, 0);
    world.pass(3.0).await;
    world.assert_phase(&urgent, "running").await;
    world.assert_phase(&large, "queued").await;
    world.assert_phase(&low, "queued").await;
    world.runtime.exit_all(&urgent, 1, 0);
    world.pass(3.0).await;
    world.assert_phase(&large, "running").await;
    world.assert_phase(&low, "queued").await;
    world.runtime.exit_all(&large, 1, 0);
    world.pass(3.0).await;
    world.assert_phase(&low, "running").await;
    world.assert_phase(&endless, "running").await;
}

#[tokio::test]
async fn what_is_too_big_is_told_so_and_holds_up_nobody() {
    let mut world = World::new().await;
    let mut big = document("big", 1, "64", json!({}));
    big["cluster"] = json!("local");
    let big = world.submit(big).await;
    let small = world.submit(document("small", 1, "1", json!({}))).await;
    world.pass(2.0).await;
    world.assert_phase(&small, "running").await;
    let why = world.why(&big).await;
    println!("{}", why["sentence"]);
    assert_eq!(why["why"]["reasons"][0]["code"], "too_big", "{why:#}");
}

#[tokio::test]
async fn a_missing_secret_is_named_and_the_job_starts_once_it_is_there() {
    let mut world = World::new().await;
    let secret = json!({ "values": { "key": "s3cret-value" } });
    world.ask("PUT", "/api/v1/secrets/wandb", Some(&secret)).await;
    let blocker = world.submit(document("blocker", 1, "4", json!({}))).await;
    let env = json!({ "env": { "WANDB_API_KEY": { "secretRef": { "name": "wandb", "key": "key" } } } });
    let job = world.submit(document("secretive", 1, "1", env)).await;
    world.ask("DELETE", "/api/v1/secrets/wandb", None).await;
    world.wish(&blocker, "cancel").await;
    world.pass(20.0).await;
    world.assert_phase(&job, "queued").await;
    let why = world.why(&job).await;
    println!("{}", why["sentence"]);
    assert_eq!(why["why"]["reasons"][0]["code"], "secret_missing", "{why:#}");
    assert!(
        why["sentence"].as_str().is_some_and(|words| words.contains("wandb")),
        "{why:#}"
    );
    world.ask("PUT", "/api/v1/secrets/wandb", Some(&secret)).await;
    world.pass(20.0).await;
    world.assert_phase(&job, "running").await;
    world
        .runtime
        .with(&job, 1, |attempt| assert_eq!(attempt.launch.secrets.len(), 1));
}

#[tokio::test]
async fn jobs_that_name_no_cluster_are_spread_by_one_look_and_those_alike_hear_the_same() {
    let mut world = World::new().await;
    let _other = world.another_machine("other").await;
    let mut big = Vec::new();
    for name in ["one", "two", "three"] {
        world.submit_unseen(document(name, 1, "1", json!({}))).await;
        big.push(world.submit_unseen(document("big", 1, "64", json!({}))).await);
    }
    world.submit(document("four", 1, "1", json!({}))).await;
    let placed: Vec<i64> =
        sqlx::query_scalar("select count(*) from jobs where cluster_id is not null group by cluster_id")
            .fetch_all(world.db.pool())
            .await
            .expect("an answer");
    assert_eq!(placed, [2, 2]);
    for job in &big {
        world.assert_phase(job, "queued").await;
        let why = world.why(job).await;
        assert_eq!(why["why"]["reasons"][0]["code"], "no_cluster_fits", "{why:#}");
    }
    let told: i64 = sqlx::query_scalar("select count(distinct why -> 'job') from jobs where name = 'big'")
        .fetch_one(world.db.pool())
        .await
        .expect("an answer");
    assert_eq!(told, 3, "each of itself");
}

#[tokio::test]
async fn thousands_of_jobs_without_their_secret_do_not_hide_what_stands_behind_them() {
    let mut world = World::new().await;
    let secret = json!({ "values": { "key": "s3cret-value" } });
    world.ask("PUT", "/api/v1/secrets/wandb", Some(&secret)).await;
    let blocker = world.submit(document("blocker", 1, "4", json!({}))).await;
    let env = json!({ "env": { "WANDB_API_KEY": { "secretRef": { "name": "wandb", "key": "key" } } } });
    let secretive = world.submit(document("secretive", 1, "1", env)).await;
    sqlx::query(
        "insert into jobs select (jsonb_populate_record(j, jsonb_build_object('id', gen_random_uuid()))).*
         from jobs j, generate_series(1, 2000) where j.name = 'secretive'",
    )
    .execute(world.db.pool())
    .await
    .expect("two thousand like it");
    world.ask("DELETE", "/api/v1/secrets/wandb", None).await;
    let plain = world.submit(document("plain", 1, "1", json!({}))).await;
    world.wish(&blocker, "cancel").await;
    world.pass(3.0).await;
    world.assert_phase(&plain, "running").await;
    world.assert_phase(&secretive, "queued").await;
}

#[tokio::test]
async fn a_cluster_whose_worker_is_gone_is_stale_and_says_since_when() {
    let mut world = World::new().await;
    let running = world.submit(document("running", 1, "1", json!({}))).await;
    world.pass(2.0).await;
    world.attend(false);
    world.pass(120.0).await;
    let job = world.job(&running).await;
    assert!(!job["stale_since"].is_null(), "{job:#}");
    let mut waits = document("waits", 1, "1", json!({}));
    waits["cluster"] = json!("local");
    let waits = world.submit(waits).await;
    let why = world.why(&waits).await;
    println!("{}", why["sentence"]);
    assert_eq!(why["why"]["reasons"][0]["code"], "worker_gone", "{why:#}");
    world.attend(true);
    world.pass(30.0).await;
    assert!(world.job(&running).await["stale_since"].is_null());
    world.assert_phase(&running, "running").await;
    world.assert_phase(&waits, "running").await;
}
