//! A machine that never comes back, and one that does after all.

use axum::http::StatusCode;
use serde_json::{Value, json};
use trainyard::{runtimes::Runtime, worker::local};

use crate::world::{World, document};

#[tokio::test]
async fn what_lived_on_a_machine_that_is_gone_is_lost_and_goes_on_elsewhere() {
    let mut world = World::new().await;
    let retried = json!({ "restart": { "max": 1, "backoff": "1s" } });
    let trains = world.submit(document("trains", 2, "1", retried)).await;
    let unwanted = world.submit(document("unwanted", 1, "1", json!({}))).await;
    let once = world
        .submit(document("once", 1, "1", json!({ "restart": { "max": 0 } })))
        .await;
    let here = world
        .submit(document("here", 1, "4", json!({ "cluster": "local" })))
        .await;
    let anywhere = world.submit(document("anywhere", 1, "2", json!({}))).await;
    world.pass(3.0).await;
    world.runtime.print(&trains, 1, 0, "step=7 loss=0.1\nhalf a li");
    world.pass(3.0).await;
    for job in [&trains, &unwanted, &once] {
        world.assert_phase(job, "running").await;
    }

    // The machine falls silent while another one is there.
    let other = world.another_machine("another").await;
    let node = world.get("/api/v1/nodes?cluster=local").await["items"][0].clone();
    let path = format!("/api/v1/nodes/{}/gone", node["id"].as_str().expect("an id"));
    let (status, told) = world.send("POST", &path, None).await;
    assert_eq!(status, StatusCode::CONFLICT, "{told}");
    assert!(told.contains("so it is not gone"), "{told}");
    world.attend(false);
    world.pass(60.0).await;
    world
        .ask("POST", &format!("/api/v1/jobs/{unwanted}/cancel"), Some(&json!({})))
        .await;
    for _ in 0..5 {
        world.work_on(&other).await;
    }
    // Silence alone ends nothing.
    world.assert_phase(&trains, "running").await;
    assert!(!world.job(&trains).await["stale_since"].is_null());

    for _ in 0..2 {
        let gone = world.ask("POST", &path, None).await;
        assert_eq!(gone["phase"], "gone", "{gone:#}");
    }
    for _ in 0..5 {
        world.work_on(&other).await;
    }
    let attempts = world.attempts(&trains).await;
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
    assert_eq!(attempts[0]["outcome"], "lost");
    assert_eq!(attempts[0]["reason"], "replica_lost");
    assert_eq!(attempts[0]["has_post_mortem"], true);
    assert_eq!(attempts[1]["cluster"]["name"], "another", "{attempts:#?}");
    world.assert_phase(&trains, "running").await;
    let replicas = world.replicas(&trains, 1).await;
    for replica in &replicas {
        assert_eq!(replica["phase"], "lost");
        let message = replica["message"].as_str().expect("words");
        assert!(message.contains("said that it will not come back"), "{message}");
    }
    let lines = world.get(&format!("/api/v1/jobs/{trains}/logs?attempt=1")).await;
    let texts: Vec<&str> = lines["items"]
        .as_array()
        .expect("lines")
        .iter()
        .filter_map(|line| line["text"].as_str())
        .collect();
    assert!(
        texts.contains(&"step=7 loss=0.1") && texts.contains(&"half a li"),
        "{texts:?}"
    );
    assert!(
        texts.iter().any(|text| text.contains("its machine is gone")),
        "{texts:?}"
    );
    world.assert_phase(&unwanted, "cancelled").await;
    world.assert_phase(&once, "failed").await;
    world.assert_phase(&anywhere, "running").await;
    assert_eq!(world.job(&anywhere).await["cluster"]["name"], "another");
    assert_eq!(
        world.job(&here).await["cluster"]["name"],
        "local",
        "its document names it"
    );
    let left: i64 = sqlx::query_scalar(
        "select (select count(*) from tasks where machine_id = 'a-machine')
              + (select count(*) from workers where machine_id = 'a-machine')
              + (select count(*) from holdings h join clusters c on c.id = h.subject_id where c.name = 'local')",
    )
    .fetch_one(world.db.pool())
    .await
    .expect("a count");
    assert_eq!(left, 0, "nothing waits for that machine");
    let audit = world.get("/api/v1/audit?action=node.gone").await;
    assert_eq!(audit["items"].as_array().expect("items").len(), 1, "{audit:#}");

    // It comes back: as a new node, and what runs on it is ended and not taken up again.
    world
        .runtime
        .with(&trains, 1, |attempt| assert!(attempt.stop_asked.is_none()));
    world.attend(true);
    world.pass(2.0).await;
    let runtime: &dyn Runtime = &*world.runtime;
    local::sweep(&world.db, runtime).await.expect("a sweep");
    world
        .runtime
        .with(&trains, 1, |attempt| assert!(attempt.stop_asked.is_some()));
    world
        .runtime
        .with(&trains, 2, |attempt| assert!(attempt.stop_asked.is_none()));
    world.pass(10.0).await;
    let again = world.attempts(&trains).await;
    assert_eq!(again.len(), 2);
    assert_eq!(again[0], attempts[0], "an end stays");
    let nodes = world.get("/api/v1/nodes?cluster=local").await;
    let ids: Vec<&Value> = nodes["items"]
        .as_array()
        .expect("items")
        .iter()
        .map(|node| &node["id"])
        .collect();
    assert!(ids.len() == 1 && ids[0] != &node["id"], "{nodes:#}");
    world.assert_phase(&here, "running").await;
}

#[tokio::test]
async fn a_machine_that_comes_back_before_anybody_looked_does_not_take_its_attempts_up_again() {
    let mut world = World::new().await;
    let job = world
        .submit(document(
            "alone",
            1,
            "1",
            json!({ "restart": { "max": 3, "backoff": "1s" } }),
        ))
        .await;
    world.pass(2.0).await;
    let node = world.get("/api/v1/nodes").await["items"][0]["id"].clone();
    world.attend(false);
    world.pass(30.0).await;
    world
        .ask(
            "POST",
            &format!("/api/v1/nodes/{}/gone", node.as_str().expect("an id")),
            None,
        )
        .await;
    world.attend(true);
    world.pass(10.0).await;
    let attempts = world.attempts(&job).await;
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
    assert_eq!(attempts[0]["outcome"], "lost");
    world.assert_phase(&job, "running").await;
    local::sweep(&world.db, &*world.runtime).await.expect("a sweep");
    world
        .runtime
        .with(&job, 1, |attempt| assert!(attempt.stop_asked.is_some()));
    world
        .runtime
        .with(&job, 2, |attempt| assert!(attempt.stop_asked.is_none()));
}
