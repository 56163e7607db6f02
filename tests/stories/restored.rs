//! Records that were restored: nothing is decided about them until an admin says so.

use serde_json::json;
use sqlx::AssertSqlSafe;
use trainyard::db::installation;

use crate::world::{World, document};

#[tokio::test]
async fn nothing_is_started_or_stopped_before_an_admin_confirms() {
    let mut world = World::new().await;
    let runs = world.submit(document("runs", 2, "2", json!({}))).await;
    world.pass(2.0).await;
    world.assert_phase(&runs, "running").await;
    let restore = installation::after_restore(world.now());
    sqlx::raw_sql(AssertSqlSafe(restore))
        .execute(world.db.pool())
        .await
        .expect("it is so");
    let waits = world.submit(document("waits", 1, "1", json!({}))).await;
    world.wish(&runs, "cancel").await;
    // One rank is gone: that is not concluded from, either.
    world.runtime.exit(&runs, 1, 1, 1);
    world.later(100).await;
    world.pass(60.0).await;
    world.assert_phase(&runs, "running").await;
    world.assert_phase(&waits, "queued").await;
    world
        .runtime
        .with(&runs, 1, |attempt| assert!(attempt.stop_asked.is_none()));
    let why = world.why(&waits).await;
    assert_eq!(why["why"]["reasons"][0]["code"], "restored", "{why:#}");
    let (status, _) = world.send("GET", "/readyz", None).await;
    assert!(status.is_success());

    for _ in 0..2 {
        let told = world.ask("POST", "/api/v1/installation/confirm-restore", None).await;
        assert!(told["restored_at"].is_null(), "{told:#}");
    }
    world.pass(5.0).await;
    world.assert_phase(&waits, "running").await;
    assert!(["failed", "cancelled"].contains(&world.job(&runs).await["phase"].as_str().expect("a phase")));
    let audit = world.get("/api/v1/audit?action=installation.confirm_restore").await;
    assert_eq!(
        audit["items"].as_array().expect("items").len(),
        1,
        "twice is once: {audit:#}"
    );
    assert!(audit["items"][0]["actor_name"].is_string(), "{audit:#}");
}
