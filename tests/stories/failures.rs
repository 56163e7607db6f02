//! Attempts that end badly, and what comes after.

use serde_json::{Value, json};

use crate::world::{World, document};

#[tokio::test]
async fn one_failing_rank_of_four_restarts_the_whole_and_then_fails_with_its_name() {
    let mut world = World::new().await;
    let job = world
        .submit(document(
            "fails",
            4,
            "1",
            json!({ "restart": { "max": 1, "backoff": "10s" } }),
        ))
        .await;
    world.pass(2.0).await;
    world.assert_phase(&job, "running").await;

    world
        .runtime
        .print(&job, 1, 2, "Traceback (most recent call last):\nKeyError: 'label'\n");
    world.runtime.exit(&job, 1, 2, 1);
    world.pass(3.0).await;
    let attempts = world.attempts(&job).await;
    assert_eq!(
        (&attempts[0]["outcome"], &attempts[0]["reason"]),
        (&json!("failed"), &json!("exit_code"))
    );
    let phases: Vec<Value> = world
        .replicas(&job, 1)
        .await
        .into_iter()
        .map(|replica| replica["phase"].clone())
        .collect();
    assert_eq!(phases, ["stopped", "stopped", "failed", "stopped"]);
    world.assert_phase(&job, "queued").await;
    let why = world.why(&job).await;
    assert_eq!(why["why"]["reasons"][0]["code"], "backoff", "{why:#}");

    world.pass(15.0).await;
    world.assert_phase(&job, "running").await;
    world.runtime.exit(&job, 2, 2, 1);
    world.pass(5.0).await;
    world.assert_phase(&job, "failed").await;
    assert_eq!(world.attempts(&job).await.len(), 2);
    for number in [1, 2] {
        let told = world
            .get(&format!("/api/v1/jobs/{job}/post-mortem?attempt={number}"))
            .await;
        assert_eq!(told["first_failure"]["rank"], 2, "{told:#}");
    }
    let told = world.get(&format!("/api/v1/jobs/{job}/post-mortem?attempt=2")).await;
    println!("the last attempt: {} {}", told["summary"], told["policy_sentence"]);
}

#[tokio::test]
async fn a_backoff_is_not_forgotten_when_another_job_is_admitted_meanwhile() {
    let mut world = World::new().await;
    let restart = json!({ "restart": { "max": 1, "backoff": "10s" } });
    let job = world.submit(document("fails", 1, "1", restart)).await;
    world.pass(2.0).await;
    world.runtime.exit(&job, 1, 0, 1);
    world.pass(5.0).await;
    world.assert_phase(&job, "queued").await;
    let other = world.submit(document("other", 1, "1", json!({}))).await;
    world.pass(2.0).await;
    world.assert_phase(&other, "running").await;
    world.assert_phase(&job, "queued").await;
    world.pass(10.0).await;
    world.assert_phase(&job, "running").await;
}

#[tokio::test]
async fn a_rank_killed_at_step_27_resumes_at_20_and_seven_steps_are_lost() {
    let mut world = World::new().await;
    let job = world
        .submit(document(
            "keeps",
            2,
            "1",
            json!({ "restart": { "max": 2, "backoff": "2s" } }),
        ))
        .await;
    world.pass(1.0).await;
    for step in 1..=27 {
        world.runtime.print(&job, 1, 0, &format!("step={step} loss=0.5\n"));
        world.runtime.print(&job, 1, 1, &format!("step={step} loss=0.5\n"));
        if step % 10 == 0 {
            world.runtime.print(
                &job,
                1,
                0,
                &format!("checkpoint step={step} path=/checkpoints/step-{step}\n"),
            );
        }
        world.pass(0.5).await;
    }
    world.runtime.exit(&job, 1, 1, 137);
    world.pass(8.0).await;
    world.assert_phase(&job, "running").await;
    let attempts = world.attempts(&job).await;
    assert_eq!(
        (&attempts[0]["last_step"], &attempts[0]["kept_step"]),
        (&json!(27), &json!(20)),
        "{attempts:#?}"
    );
    assert_eq!(attempts[1]["resume_step"], 20);
    world.runtime.with(&job, 2, |attempt| {
        assert_eq!(attempt.launch.resume_step, Some(20));
        assert_eq!(attempt.launch.resume_from.as_deref(), Some("/checkpoints/step-20"));
    });
    let told = world.get(&format!("/api/v1/jobs/{job}/post-mortem?attempt=1")).await;
    assert_eq!(told["steps_lost"], 7, "{told:#}");

    // Of the running time, what came before the checkpoint was kept and what came after it was lost.
    let usage = world.get(&format!("/api/v1/jobs/{job}/usage")).await;
    let kept = usage["totals"]["running_kept"].as_f64().expect("a sum");
    let lost = usage["totals"]["running_lost"].as_f64().expect("a sum");
    println!(
        "steps lost {}, running time kept {kept} s, lost {lost} s",
        told["steps_lost"]
    );
    assert!(kept > 8.0 && lost > 3.0, "{usage:#}");
}

#[tokio::test]
async fn deadlines_end_what_they_bound() {
    // The queue: something else holds the node.
    let mut world = World::new().await;
    let holder = world.submit(document("holder", 1, "4", json!({}))).await;
    let waits = world
        .submit(document("waits", 1, "4", json!({ "deadlines": { "queue": "60s" } })))
        .await;
    world.pass(55.0).await;
    world.assert_phase(&waits, "queued").await;
    world.pass(10.0).await;
    let job = world.job(&waits).await;
    assert_eq!(
        (&job["phase"], &job["reason"]),
        (&json!("failed"), &json!("queue_deadline")),
        "{job:#}"
    );
    world.wish(&holder, "cancel").await;
    world.pass(2.0).await;

    // The start: a replica never comes up.
    world.runtime.hold_starts(true);
    let starts = world
        .submit(document("starts", 1, "1", json!({ "deadlines": { "start": "60s" } })))
        .await;
    world.pass(70.0).await;
    world.assert_phase(&starts, "failed").await;
    assert_eq!(world.attempts(&starts).await[0]["reason"], "start_deadline");
    world.runtime.hold_starts(false);

    // The run: not retried, since it would run into the same wall.
    let more = json!({ "deadlines": { "run": "60s" }, "restart": { "max": 3 } });
    let runs = world.submit(document("runs", 1, "1", more)).await;
    world.pass(70.0).await;
    world.assert_phase(&runs, "failed").await;
    assert_eq!(world.attempts(&runs).await[0]["reason"], "run_deadline");

    // Silence: any rank's output keeps it alive.
    let silent = world
        .submit(document("silent", 2, "1", json!({ "deadlines": { "silence": "60s" } })))
        .await;
    for _ in 0..4 {
        world.pass(25.0).await;
        world.runtime.print(&silent, 1, 1, "still here\n");
    }
    world.assert_phase(&silent, "running").await;
    world.pass(75.0).await;
    world.assert_phase(&silent, "failed").await;
    assert_eq!(world.attempts(&silent).await[0]["reason"], "silence_deadline");
}
