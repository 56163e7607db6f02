//! Questions to a cluster, and who answers them.

use serde_json::{Value, json};
use trainyard::runtimes::Runtime;
use trainyard_core::model::AttemptId;
use uuid::Uuid;

use crate::world::{World, document};

async fn ask(world: &World, cluster: &str) -> String {
    let question = json!({ "kind": "cluster.look", "cluster": cluster });
    let check = world.ask("POST", "/api/v1/checks", Some(&question)).await;
    assert_eq!(check["phase"], "waiting", "{check:#}");
    check["id"].as_str().expect("an id").to_owned()
}

async fn answer(world: &World, check: &str) -> Value {
    world.get(&format!("/api/v1/checks/{check}")).await
}

async fn id_of(world: &World, name: &str) -> String {
    let clusters = world.get("/api/v1/clusters").await;
    let all = clusters["items"].as_array().expect("items").clone();
    let found = all
        .into_iter()
        .find(|cluster| cluster["name"] == name)
        .expect("it is there");
    found["id"].as_str().expect("an id").to_owned()
}

#[tokio::test]
async fn the_worker_of_the_cluster_compares_what_is_there_with_the_records() {
    let mut world = World::new().await;
    let known = world.submit(document("known", 2, "1", json!({}))).await;
    world.pass(3.0).await;
    // Started by records that a restore brought back from before it.
    let mut stray = world.runtime.with(&known, 1, |attempt| attempt.launch.clone());
    stray.attempt = AttemptId(Uuid::now_v7());
    world.runtime.start(&stray).await.expect("it starts");
    let here = id_of(&world, "local").await;
    let check = ask(&world, &here).await;
    world.settle().await;
    let told = answer(&world, &check).await;
    assert_eq!(told["phase"], "answered", "{told:#}");
    let attempts = &told["answer"]["attempts"];
    assert_eq!(
        (&attempts["live"], &attempts["not_started"]),
        (&json!(1), &json!(0)),
        "{told:#}"
    );
    assert_eq!(attempts["unrecorded"], json!([stray.attempt]), "{told:#}");
    assert_eq!(told["answer"]["cluster"]["processes"], 4, "{told:#}");
    assert_eq!(told["answer"]["worker"]["machine"], "a-machine");
    world.assert_phase(&known, "running").await;
    let (_, page) = world.send("GET", &format!("/clusters/{here}"), None).await;
    assert!(page.contains("1 attempt alive, 1 that no record knows"), "{page}");
}

#[tokio::test]
async fn only_a_worker_there_answers_and_nobody_waits_for_ever() {
    let mut world = World::new().await;
    let other = world.another_machine("another").await;
    let there = id_of(&world, "another").await;
    let check = ask(&world, &there).await;
    // The worker of this machine passes it on.
    world.settle().await;
    assert_eq!(answer(&world, &check).await["phase"], "waiting");
    world.work_on(&other).await;
    let told = answer(&world, &check).await;
    assert_eq!(told["phase"], "answered", "{told:#}");
    assert_eq!(told["answer"]["worker"]["machine"], "another-machine");

    let late = ask(&world, &there).await;
    world.clock.advance(std::time::Duration::from_secs(3000));
    world.look_after().await;
    assert_eq!(answer(&world, &late).await["phase"], "waiting");
    world.clock.advance(std::time::Duration::from_secs(1000));
    world.look_after().await;
    let told = answer(&world, &late).await;
    assert_eq!(told["phase"], "failed", "{told:#}");
    assert!(
        told["answer"]["message"]
            .as_str()
            .expect("words")
            .contains("nobody answered")
    );
    let left: i64 = sqlx::query_scalar("select count(*) from tasks where kind = 'check'")
        .fetch_one(world.db.pool())
        .await
        .expect("a count");
    assert_eq!(left, 0);

    let node = world.get("/api/v1/nodes?cluster=another").await["items"][0]["id"].clone();
    let gone = format!("/api/v1/nodes/{}/gone", node.as_str().expect("an id"));
    world.ask("POST", &gone, None).await;
    let check = ask(&world, &there).await;
    world.settle().await;
    let told = answer(&world, &check).await;
    assert_eq!(told["phase"], "failed", "{told:#}");
    assert_eq!(told["answer"]["message"], "its machine is gone");
}
