//! What a person's wish does, whatever the job is doing when it comes.

use serde_json::json;

use super::{
    Step,
    world::{Records, admitted, after, document, end, exited, look, phases, running, stopped},
};
use crate::model::{Outcome, Phase, ReplicaPhase, ReplicaState::Running, Wanted};

#[test]
fn wishes_meet_a_job_that_is_not_running() {
    use Phase::*;
    for (phase, wanted, expected, hidden) in [
        (Queued, Wanted::Run, Queued, false),
        (Queued, Wanted::Suspend, Suspended, false),
        (Queued, Wanted::Cancel, Cancelled, false),
        (Queued, Wanted::Delete, Cancelled, true),
        (Suspended, Wanted::Run, Queued, false),
        (Suspended, Wanted::Suspend, Suspended, false),
        (Suspended, Wanted::Cancel, Cancelled, false),
        (Suspended, Wanted::Delete, Cancelled, true),
        (Succeeded, Wanted::Cancel, Succeeded, false),
        (Failed, Wanted::Run, Failed, false),
        (Succeeded, Wanted::Delete, Succeeded, true),
    ] {
        let mut records = Records::submitted(document(json!({})));
        (records.phase, records.wanted) = (phase, wanted);
        let decision = records.decide(None, None, after(5));
        records.apply(&decision.steps, after(5));
        assert_eq!((records.phase, records.hidden), (expected, hidden), "{phase} {wanted}");
    }
}

#[test]
fn a_cancel_stops_every_rank_and_leaves_the_job_cancelled() {
    let mut records = running(json!({ "restart": { "max": 3 } }));
    records.wanted = Wanted::Cancel;
    assert!(look(&mut records, 9, &[Running, Running]).contains(&Step::StopProcesses));
    look(&mut records, 10, &[stopped(after(10)), Running]);
    assert_eq!(records.phase, Phase::Stopping);
    look(&mut records, 40, &[stopped(after(10)), stopped(after(39))]);
    assert_eq!((records.phase, end(&records).0), (Phase::Cancelled, Outcome::Cancelled));
}

#[test]
fn a_cancel_before_anything_started_ends_without_a_process() {
    let mut records = admitted(json!({}));
    records.wanted = Wanted::Cancel;
    look(&mut records, 1, &[]);
    look(&mut records, 2, &[]);
    assert_eq!(records.phase, Phase::Cancelled);
    assert_eq!(phases(&records), [ReplicaPhase::Stopped, ReplicaPhase::Stopped]);
}

#[test]
fn a_job_that_finished_before_its_cancel_reached_it_succeeded() {
    let mut records = running(json!({}));
    records.wanted = Wanted::Cancel;
    look(&mut records, 9, &[exited(after(8), 0), exited(after(8), 0)]);
    assert_eq!(records.phase, Phase::Succeeded);
}

#[test]
fn a_cancel_during_the_stop_of_a_failed_attempt_prevents_its_retry() {
    for (max, expected) in [(3, Phase::Cancelled), (0, Phase::Failed)] {
        let mut records = running(json!({ "restart": { "max": max } }));
        look(&mut records, 9, &[Running, exited(after(8), 1)]);
        records.wanted = Wanted::Cancel;
        look(&mut records, 10, &[stopped(after(10)), exited(after(8), 1)]);
        assert_eq!((records.phase, end(&records).0), (expected, Outcome::Failed));
    }
}

#[test]
fn a_suspension_asks_for_a_checkpoint_waits_for_it_and_then_stops() {
    let mut records = running(json!({ "checkpoints": { "signal": "USR1", "wait": "5m" } }));
    records.wanted = Wanted::Suspend;
    let steps = look(&mut records, 9, &[Running, Running]);
    assert!(steps.iter().any(|step| matches!(step, Step::SignalCheckpoint { .. })));
    assert!(!steps.contains(&Step::StopProcesses));
    assert_eq!(look(&mut records, 10, &[Running, Running]), []);
    records.attempt().checkpoint_at = Some(after(11));
    assert_eq!(look(&mut records, 12, &[Running, Running]), [Step::StopProcesses]);
    look(&mut records, 14, &[stopped(after(13)), stopped(after(13))]);
    assert_eq!((records.phase, end(&records).0), (Phase::Suspended, Outcome::Suspended));
    records.wanted = Wanted::Run;
    let decision = records.decide(None, None, after(100));
    records.apply(&decision.steps, after(100));
    assert_eq!((records.phase, records.queued_at), (Phase::Queued, after(100)));
}

#[test]
fn a_checkpoint_that_never_comes_delays_a_suspension_by_its_wait_alone() {
    let mut records = running(json!({ "checkpoints": { "signal": "USR1", "wait": "5m" } }));
    records.wanted = Wanted::Suspend;
    look(&mut records, 9, &[Running, Running]);
    assert_eq!(look(&mut records, 308, &[Running, Running]), []);
    assert_eq!(look(&mut records, 309, &[Running, Running]), [Step::StopProcesses]);
}

#[test]
fn a_program_that_leaves_after_its_checkpoint_is_suspended_and_not_done() {
    let mut records = running(json!({ "checkpoints": { "signal": "USR1" } }));
    records.wanted = Wanted::Suspend;
    look(&mut records, 9, &[Running, Running]);
    look(&mut records, 12, &[exited(after(11), 0), exited(after(11), 0)]);
    assert_eq!(records.phase, Phase::Suspended);
}

#[test]
fn a_cancel_overtakes_the_wait_for_a_checkpoint() {
    let mut records = running(json!({ "checkpoints": { "signal": "USR1", "wait": "1h" } }));
    records.wanted = Wanted::Suspend;
    look(&mut records, 9, &[Running, Running]);
    records.wanted = Wanted::Cancel;
    assert!(look(&mut records, 10, &[Running, Running]).contains(&Step::StopProcesses));
    look(&mut records, 11, &[stopped(after(11)), stopped(after(11))]);
    assert_eq!(records.phase, Phase::Cancelled);
}

#[test]
fn a_resume_during_a_suspension_makes_the_job_wait_again_at_once() {
    let mut records = running(json!({}));
    records.wanted = Wanted::Suspend;
    look(&mut records, 9, &[Running, Running]);
    records.wanted = Wanted::Run;
    look(&mut records, 11, &[stopped(after(10)), stopped(after(10))]);
    assert_eq!((records.phase, records.queued_at), (Phase::Queued, after(10)));
    assert_eq!(end(&records).0, Outcome::Suspended);
}

#[test]
fn a_deleted_job_is_stopped_first_and_then_hidden() {
    let mut records = running(json!({}));
    records.wanted = Wanted::Delete;
    look(&mut records, 9, &[Running, Running]);
    assert!(!records.hidden);
    look(&mut records, 10, &[stopped(after(10)), stopped(after(10))]);
    assert_eq!((records.phase, records.hidden), (Phase::Cancelled, true));
}
