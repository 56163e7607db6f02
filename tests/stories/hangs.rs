//! Jobs that stand still, and what is said about them.

use serde_json::{Value, json};

use trainyard::db::{page_reads, steps};
use trainyard_core::model::Retention;

use crate::world::{World, document};

/// Four ranks; `printing` of them report a step a second, thirty times.
async fn thirty_steps(world: &mut World, printing: &[usize]) -> String {
    let job = world.submit(document("hangs", 4, "1", json!({}))).await;
    world.pass(1.0).await;
    for step in 1..=30 {
        for &rank in printing {
            world.runtime.print(&job, 1, rank, &format!("step={step} loss=0.5\n"));
        }
        world.pass(1.0).await;
    }
    job
}

async fn condition(world: &World, job: &str, kind: &str) -> Option<Value> {
    world
        .conditions(job)
        .await
        .into_iter()
        .find(|condition| condition["type"] == kind || condition["kind"] == kind)
}

#[tokio::test]
async fn a_stopped_process_is_named_even_if_it_never_printed() {
    let mut world = World::new().await;
    let job = thirty_steps(&mut world, &[0]).await;
    for rank in [0, 1, 3] {
        world.runtime.set_letter(&job, 1, rank, 'S');
    }
    world.runtime.set_letter(&job, 1, 2, 'T');
    world.pass(90.0).await;
    let hung = condition(&world, &job, "hung").await.expect("it is flagged");
    println!("SIGSTOP of rank 2, only rank 0 prints: {}", hung["message"]);
    assert!(
        hung["message"].as_str().is_some_and(|words| words.contains("Rank 2")),
        "{hung:#}"
    );
    world.assert_phase(&job, "running").await;
    // A list of jobs knows it as well: a row that only said "running" would hide it.
    let id = job.parse().expect("an id");
    let asides = page_reads::asides(&world.db, &[id], world.now())
        .await
        .expect("the asides");
    let aside = &asides[&id];
    assert_eq!(
        (aside.troubles.as_slice(), aside.critical),
        (["hung".to_owned()].as_slice(), true)
    );
    assert!(aside.ran > 100.0 && aside.attempt_ended_at.is_none(), "{aside:?}");
}

#[tokio::test]
async fn without_evidence_no_rank_is_named() {
    let mut world = World::new().await;
    let job = thirty_steps(&mut world, &[0]).await;
    world.pass(90.0).await;
    let hung = condition(&world, &job, "hung").await.expect("it is flagged");
    println!("a hang, only rank 0 prints, no states: {}", hung["message"]);
    assert!(
        hung["message"]
            .as_str()
            .is_some_and(|words| words.contains("Rank unknown")),
        "{hung:#}"
    );
}

#[tokio::test]
async fn a_rank_that_falls_behind_is_named_by_its_steps() {
    let mut world = World::new().await;
    let job = thirty_steps(&mut world, &[0, 1, 2, 3]).await;
    for rank in [0, 1, 3] {
        world.runtime.print(&job, 1, rank, "step=31 loss=0.5\n");
    }
    world.pass(90.0).await;
    let hung = condition(&world, &job, "hung").await.expect("it is flagged");
    println!("rank 2 stands, all print: {}", hung["message"]);
    assert!(
        hung["message"].as_str().is_some_and(|words| words.contains("Rank 2")),
        "{hung:#}"
    );
}

#[tokio::test]
async fn a_slow_evaluation_is_flagged_and_not_killed_and_the_flag_goes() {
    let mut world = World::new().await;
    let job = thirty_steps(&mut world, &[0, 1, 2, 3]).await;
    world.pass(5.0).await;
    let slow = condition(&world, &job, "slow").await.expect("it is flagged");
    println!("an evaluation of five steps' time: {}", slow["message"]);
    assert!(condition(&world, &job, "hung").await.is_none());
    world.assert_phase(&job, "running").await;
    for step in 31..=36 {
        for rank in 0..4 {
            world.runtime.print(&job, 1, rank, &format!("step={step} loss=0.4\n"));
        }
        world.pass(1.0).await;
    }
    assert!(
        condition(&world, &job, "slow")
            .await
            .is_none_or(|slow| slow["status"] == "false")
    );
    assert_eq!(world.attempts(&job).await.len(), 1);
}

#[tokio::test]
async fn many_series_of_one_line_do_not_crowd_out_the_steps_before() {
    let mut world = World::new().await;
    let job = world.submit(document("many-series", 2, "1", json!({}))).await;
    world.pass(1.0).await;
    let numbers: String = (0..20).map(|series| format!(" number_{series}=0.5")).collect();
    for step in 1..=35 {
        for rank in [0, 1] {
            let rare = if step % 5 == 0 { " eval_loss=0.25" } else { "" };
            world
                .runtime
                .print(&job, 1, rank, &format!("step={step}{numbers}{rare}\n"));
        }
        world.pass(1.0).await;
    }
    let found = steps::recent(&world.db, job.parse().expect("an id"), Retention::Standard, 1)
        .await
        .expect("an answer");
    assert_eq!(found.len(), 2, "{found:?}");
    for (replica, steps) in found {
        let steps: Vec<i64> = steps.iter().map(|at| at.step).collect();
        assert_eq!(steps, (6..=35).collect::<Vec<i64>>(), "{replica:?}");
    }
}
