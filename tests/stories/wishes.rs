//! What people wish for while a job does something else.

use serde_json::json;

use crate::world::{World, document};

#[tokio::test]
async fn a_suspension_asks_for_a_checkpoint_and_a_resume_goes_on_from_it() {
    let mut world = World::new().await;
    let more = json!({ "checkpoints": { "signal": "USR1", "wait": "60s" } });
    let job = world.submit(document("pauses", 2, "1", more)).await;
    world.pass(2.0).await;
    world.runtime.print(&job, 1, 0, "step=41 loss=0.2\n");
    world.wish(&job, "suspend").await;
    world.pass(5.0).await;
    world.assert_phase(&job, "stopping").await;
    world.runtime.with(&job, 1, |attempt| {
        assert_eq!(attempt.signals, [nix::libc::SIGUSR1]);
        assert!(attempt.stop_asked.is_none(), "the checkpoint is waited for");
    });
    world
        .runtime
        .print(&job, 1, 0, "checkpoint step=41 path=/checkpoints/41\n");
    world.pass(5.0).await;
    world.assert_phase(&job, "suspended").await;
    assert_eq!(world.runtime.running(), 0);
    let why = world.why(&job).await;
    assert_eq!(why["why"]["reasons"][0]["code"], "suspended", "{why:#}");
    world.pass(60.0).await;
    world.assert_phase(&job, "suspended").await;
    world.wish(&job, "resume").await;
    world.pass(3.0).await;
    world.assert_phase(&job, "running").await;
    assert_eq!(world.attempts(&job).await[1]["resume_step"], 41);
    world.runtime.exit_all(&job, 2, 0);
    world.pass(3.0).await;
    world.assert_phase(&job, "succeeded").await;
}

#[tokio::test]
async fn a_cancel_is_heard_in_every_phase() {
    let mut world = World::new().await;
    // Queued.
    let holder = world.submit(document("holder", 1, "4", json!({}))).await;
    let queued = world.submit(document("queued", 1, "4", json!({}))).await;
    world.assert_phase(&queued, "queued").await;
    world.wish(&queued, "cancel").await;
    world.pass(1.0).await;
    world.assert_phase(&queued, "cancelled").await;
    assert!(world.attempts(&queued).await.is_empty());
    // Running.
    world.assert_phase(&holder, "running").await;
    world.wish(&holder, "cancel").await;
    world.pass(2.0).await;
    world.assert_phase(&holder, "cancelled").await;
    // Starting.
    world.runtime.hold_starts(true);
    let starting = world.submit(document("starting", 2, "1", json!({}))).await;
    world.pass(1.0).await;
    world.assert_phase(&starting, "starting").await;
    world.wish(&starting, "cancel").await;
    world.pass(3.0).await;
    world.assert_phase(&starting, "cancelled").await;
    world.runtime.hold_starts(false);
    // Suspended.
    let suspended = world.submit(document("suspended", 1, "1", json!({}))).await;
    world.wish(&suspended, "suspend").await;
    world.pass(3.0).await;
    world.assert_phase(&suspended, "suspended").await;
    world.wish(&suspended, "cancel").await;
    world.pass(1.0).await;
    world.assert_phase(&suspended, "cancelled").await;
    // Between two attempts.
    let backoff = json!({ "restart": { "max": 3, "backoff": "10m" } });
    let failed = world.submit(document("failed", 1, "1", backoff)).await;
    world.pass(1.0).await;
    world.runtime.exit(&failed, 1, 0, 1);
    world.pass(3.0).await;
    world.assert_phase(&failed, "queued").await;
    world.wish(&failed, "cancel").await;
    world.pass(1.0).await;
    world.assert_phase(&failed, "cancelled").await;
    // Stopping: it is being suspended and does not listen, so it ends with its grace, as a cancelled one.
    world.runtime.make_stubborn();
    let stopping = world.submit(document("stopping", 1, "1", json!({}))).await;
    world.pass(1.0).await;
    world.wish(&stopping, "suspend").await;
    world.pass(2.0).await;
    world.assert_phase(&stopping, "stopping").await;
    world.wish(&stopping, "cancel").await;
    world.pass(15.0).await;
    world.assert_phase(&stopping, "cancelled").await;
    assert_eq!(world.replicas(&stopping, 1).await[0]["exit_signal"], 9);
    assert_eq!(world.runtime.running(), 0);
}

#[tokio::test]
async fn a_job_that_was_suspended_before_it_had_a_place_gets_one_when_it_is_resumed() {
    let mut world = World::new().await;
    let job = world.submit_unseen(document("early", 1, "1", json!({}))).await;
    world.wish(&job, "suspend").await;
    world.pass(3.0).await;
    world.assert_phase(&job, "suspended").await;
    assert_eq!(world.job(&job).await["cluster"], json!(null));
    // Long after whatever its create had asked for.
    world.pass(30.0).await;
    world.wish(&job, "resume").await;
    world.pass(3.0).await;
    world.assert_phase(&job, "running").await;
}

#[tokio::test]
async fn a_job_whose_server_died_after_its_create_is_admitted_all_the_same() {
    let mut world = World::new().await;
    let job = world.submit_unseen(document("orphan", 1, "1", json!({}))).await;
    // As if nobody had asked for a place: whatever the server still sends, it is taken away.
    world.forget_the_poke().await;
    world.pass(3.0).await;
    world.assert_phase(&job, "running").await;
}

#[tokio::test]
async fn a_start_that_takes_for_ever_holds_up_nobody_and_can_be_cancelled() {
    let mut world = World::new().await;
    world.runtime.never_starts("slow-code");
    let story = async {
        let mut slow = Vec::new();
        for _ in 0..20 {
            slow.push(world.submit_unseen(document("slow-code", 1, "1m", json!({}))).await);
        }
        let other = world.submit(document("other", 1, "1", json!({}))).await;
        world.pass(5.0).await;
        world.assert_phase(&other, "running").await;
        for job in &slow {
            world.assert_phase(job, "starting").await;
        }
        world.wish(&slow[0], "cancel").await;
        world.pass(3.0).await;
        world.assert_phase(&slow[0], "cancelled").await;
        world.assert_phase(&slow[1], "starting").await;
    };
    tokio::time::timeout(std::time::Duration::from_secs(120), story)
        .await
        .expect("it holds up the worker");
}
