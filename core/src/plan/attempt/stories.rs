//! One job's life, told as stories: each look shows something, and what follows is read off the records.

use chrono::Duration;
use serde_json::json;

use super::{
    Certainty, ConditionKind, Evidence, Owner, Reason, Sight, Step, StopCause, refused,
    world::{Records, admitted, after, document, end, exited, killed, look, observed, phases, running, start, stopped},
};
use crate::{
    model::{AttemptPhase, Exit, Outcome, Phase, ReplicaPhase, ReplicaState, ReplicaState::Running, Wanted},
    plan::hang::{Judgement, Suspect},
};

fn lost() -> ReplicaState {
    ReplicaState::Lost {
        message: "the machine started again at 12:00".into(),
    }
}

#[test]
fn an_admitted_attempt_is_started_until_every_rank_runs() {
    let mut records = admitted(json!({}));
    assert!(look(&mut records, 1, &[]).contains(&Step::StartProcesses));
    assert!(look(&mut records, 2, &[Running]).contains(&Step::StartProcesses));
    assert_eq!(records.phase, Phase::Starting);
    let steps = look(&mut records, 3, &[Running, Running]);
    assert!(!steps.contains(&Step::StartProcesses));
    assert_eq!(
        (records.phase, records.attempt().phase),
        (Phase::Running, AttemptPhase::Running)
    );
}

#[test]
fn a_job_runs_since_its_last_rank_started_even_if_nobody_looked_then() {
    let mut records = admitted(json!({}));
    let mut seen = observed(after(90), &[Running, Running]);
    seen.replicas[0].started_at = Some(after(3));
    seen.replicas[1].started_at = Some(after(5));
    let sight = Sight::Seen {
        observed: &seen,
        since: after(80),
    };
    let decision = records.decide(Some(sight), None, after(90));
    records.apply(&decision.steps, after(90));
    assert_eq!(records.attempt().running_at, Some(after(5)));
}

#[test]
fn when_every_rank_ends_with_0_the_job_succeeded_even_if_it_was_never_seen_running() {
    let mut records = admitted(json!({}));
    look(&mut records, 5, &[exited(after(4), 0), exited(after(3), 0)]);
    assert_eq!(records.phase, Phase::Succeeded);
    assert_eq!(end(&records), (Outcome::Succeeded, Reason::AllSucceeded));
}

#[test]
fn a_rank_0_that_is_done_is_waited_with() {
    let mut records = running(json!({}));
    look(&mut records, 9, &[exited(after(8), 0), Running]);
    assert_eq!(records.phase, Phase::Running);
    assert_eq!(phases(&records), [ReplicaPhase::Succeeded, ReplicaPhase::Running]);
    look(&mut records, 60, &[exited(after(8), 0), exited(after(50), 0)]);
    assert_eq!(records.phase, Phase::Succeeded);
    assert_eq!(records.ended_at, Some(after(50)));
}

#[test]
fn one_failing_rank_ends_the_attempt_as_a_whole_and_is_named() {
    let mut records = running(json!({}));
    let steps = look(&mut records, 9, &[Running, exited(after(8), 3)]);
    assert!(steps.contains(&Step::StopProcesses));
    assert_eq!(records.phase, Phase::Stopping);
    look(&mut records, 12, &[stopped(after(11)), exited(after(8), 3)]);
    assert_eq!(records.phase, Phase::Failed);
    assert_eq!(phases(&records), [ReplicaPhase::Stopped, ReplicaPhase::Failed]);
    let end = records.attempts[0].end.clone().unwrap();
    assert_eq!(end.message, "Rank 1 (worker-1) failed: exit code 3.");
    assert_eq!((end.code, end.at), (Some(3), after(11)));
    assert_eq!(end.first_failure.unwrap().certainty, Certainty::Only);
}

#[test]
fn of_two_that_fail_together_the_one_without_a_lost_peer_in_its_lines_is_named() {
    let mut records = running(json!({}));
    records.attempt().replicas[0].evidence = Some(Evidence::Consequence);
    let half = Duration::milliseconds(500);
    look(&mut records, 9, &[exited(after(8), 1), exited(after(8) + half, 1)]);
    let first = records.attempts[0].end.clone().unwrap().first_failure.unwrap();
    assert_eq!((first.rank, first.certainty), (1, Certainty::ByEvidence));
}

#[test]
fn every_bad_end_has_its_own_reason() {
    let oom = |at| {
        ReplicaState::Ended(Exit {
            at,
            code: None,
            signal: Some(9),
            oom: true,
            unknown: false,
            stop_requested: false,
        })
    };
    let unknown = |at| {
        ReplicaState::Ended(Exit {
            at,
            code: None,
            signal: None,
            oom: false,
            unknown: true,
            stop_requested: false,
        })
    };
    for (state, outcome, reason) in [
        (exited(after(8), 1), Outcome::Failed, Reason::ExitCode),
        (killed(after(8), 11), Outcome::Failed, Reason::Signal),
        (oom(after(8)), Outcome::Failed, Reason::OutOfMemory),
        (unknown(after(8)), Outcome::Failed, Reason::ExitUnknown),
        (lost(), Outcome::Lost, Reason::ReplicaLost),
    ] {
        let mut records = running(json!({}));
        look(&mut records, 9, &[Running, state.clone()]);
        look(&mut records, 10, &[stopped(after(10)), state]);
        assert_eq!((records.phase, end(&records)), (Phase::Failed, (outcome, reason)));
    }
}

#[test]
fn a_program_that_is_not_there_fails_the_start_with_the_runtimes_words() {
    let mut records = admitted(json!({}));
    let seen = refused(
        records.attempts.last().unwrap(),
        "no_program",
        "python3: not found",
        after(1),
    );
    for seconds in [1, 2] {
        let sight = Sight::Seen {
            observed: &seen,
            since: start(),
        };
        let decision = records.decide(Some(sight), None, after(seconds));
        records.apply(&decision.steps, after(seconds));
    }
    assert_eq!(
        (records.phase, end(&records)),
        (Phase::Failed, (Outcome::Failed, Reason::StartFailed))
    );
    let message = &records.attempts[0].end.as_ref().unwrap().message;
    assert_eq!(message, "Rank 0 (worker-0) could not start: python3: not found.");
}

#[test]
fn the_policy_tries_again_after_a_backoff_that_doubles_and_then_gives_up() {
    let mut records = Records::submitted(document(json!({ "restart": { "max": 2, "backoff": "10s" } })));
    let mut now = 0;
    for pause in [Some(10), Some(20), None] {
        records.admit(after(now));
        look(
            &mut records,
            now + 5,
            &[exited(after(now + 5), 1), exited(after(now + 5), 1)],
        );
        let due = records.not_before.filter(|_| records.phase == Phase::Queued);
        assert_eq!(due, pause.map(|pause| after(now + 5 + pause)));
        now += 100;
    }
    assert_eq!(records.phase, Phase::Failed);
    assert_eq!(records.attempts.len(), 3);
}

#[test]
fn a_code_that_never_retries_fails_at_once_and_says_so() {
    let restart = json!({ "restart": { "max": 5, "neverRetryExitCodes": [2] } });
    let mut records = running(restart);
    let steps = look(&mut records, 9, &[exited(after(8), 2), exited(after(8), 2)]);
    let told = steps.iter().any(
        |step| matches!(step, Step::MoveJob { phase: Phase::Failed, message, .. } if message.contains("never retries")),
    );
    assert!(told, "{steps:?}");
}

#[test]
fn after_a_reboot_the_attempt_is_lost_and_the_policy_retries_it() {
    let mut records = running(json!({ "restart": { "max": 1 } }));
    look(&mut records, 600, &[lost(), lost()]);
    assert_eq!(end(&records), (Outcome::Lost, Reason::ReplicaLost));
    assert_eq!(records.phase, Phase::Queued);
}

#[test]
fn a_running_rank_that_the_runtime_has_forgotten_is_lost() {
    let mut records = running(json!({}));
    look(&mut records, 9, &[Running]);
    look(&mut records, 10, &[stopped(after(10))]);
    assert_eq!(phases(&records), [ReplicaPhase::Stopped, ReplicaPhase::Lost]);
    assert_eq!(end(&records).0, Outcome::Lost);
}

#[test]
fn a_lost_rank_that_turns_out_to_live_keeps_the_attempt_from_ending() {
    let mut records = running(json!({}));
    look(&mut records, 9, &[Running, lost()]);
    look(&mut records, 10, &[stopped(after(10)), Running]);
    assert_eq!(records.phase, Phase::Stopping);
    look(&mut records, 11, &[stopped(after(10)), stopped(after(11))]);
    assert_eq!(records.phase, Phase::Failed);
}

#[test]
fn each_deadline_ends_what_it_bounds() {
    for (deadlines, at, states, reason) in [
        (
            json!({ "start": "5m" }),
            300,
            [Running, ReplicaState::Starting],
            Reason::StartDeadline,
        ),
        (json!({ "run": "10m" }), 601, [Running, Running], Reason::RunDeadline),
        (
            json!({ "silence": "2m" }),
            121,
            [Running, Running],
            Reason::SilenceDeadline,
        ),
    ] {
        let mut records = admitted(json!({ "deadlines": deadlines, "restart": { "max": 1 } }));
        look(&mut records, 1, &states);
        look(&mut records, at - 1, &states);
        assert!(records.attempt().stop_cause.is_none(), "{reason} came early");
        look(&mut records, at, &states);
        assert_eq!(records.phase, Phase::Stopping, "{reason}");
        look(&mut records, at + 3, &[stopped(after(at + 2)), stopped(after(at + 2))]);
        assert_eq!(end(&records), (Outcome::Failed, reason));
        let retried = records.phase == Phase::Queued;
        assert_eq!(retried, reason != Reason::RunDeadline, "{reason}");
    }
}

#[test]
fn silence_is_counted_from_the_last_line_or_step_of_any_rank() {
    let mut records = running(json!({ "deadlines": { "silence": "2m" } }));
    records.attempt().replicas[0].last_output_at = Some(after(100));
    records.attempt().replicas[1].step_at = Some(after(200));
    look(&mut records, 319, &[Running, Running]);
    assert_eq!(records.phase, Phase::Running);
    look(&mut records, 320, &[Running, Running]);
    assert_eq!(records.phase, Phase::Stopping);
}

#[test]
fn our_own_absence_is_never_taken_for_a_jobs_silence() {
    let mut records = running(json!({ "deadlines": { "silence": "2m" } }));
    let seen = observed(after(9_000), &[Running, Running]);
    let back_since = after(8_990);
    let decision = records.decide(
        Some(Sight::Seen {
            observed: &seen,
            since: back_since,
        }),
        None,
        after(9_000),
    );
    records.apply(&decision.steps, after(9_000));
    assert_eq!(records.phase, Phase::Running);
    assert!(decision.look_again_at.unwrap() <= back_since + Duration::minutes(2));
}

#[test]
fn a_job_out_of_sight_is_stale_and_otherwise_as_it_was() {
    let mut records = running(json!({ "deadlines": { "run": "1m" } }));
    let blind = Sight::NotObservable { since: after(20) };
    let decision = records.decide(Some(blind), None, after(5_000));
    assert_eq!(
        decision.steps,
        [Step::MarkSeen {
            stale_since: Some(after(20))
        }]
    );
    records.apply(&decision.steps, after(5_000));
    assert_eq!(decision.owner, Owner::Timer);
    // A wish is recorded, so that it shows; nothing can be asked of the runtime yet.
    records.wanted = Wanted::Cancel;
    let decision = records.decide(Some(blind), None, after(5_010));
    records.apply(&decision.steps, after(5_010));
    assert_eq!(records.phase, Phase::Stopping);
    assert!(decision.steps.iter().all(|step| !step.is_act()));
    let steps = look(&mut records, 5_020, &[Running, Running]);
    assert!(steps.contains(&Step::MarkSeen { stale_since: None }));
    assert!(steps.contains(&Step::StopProcesses));
}

#[test]
fn a_queue_deadline_counts_all_waits_but_no_backoff() {
    let mut records = Records::submitted(document(json!({ "deadlines": { "queue": "10m" } })));
    records.waited_before = Duration::minutes(4);
    records.not_before = Some(after(3_600));
    let decision = records.decide(None, None, after(3_600));
    assert_eq!((decision.steps.len(), decision.owner), (0, Owner::Queue));
    assert_eq!(decision.look_again_at, Some(after(3_600 + 360)));
    let decision = records.decide(None, None, after(3_600 + 360));
    records.apply(&decision.steps, after(3_960));
    assert_eq!(records.phase, Phase::Failed);
}

#[test]
fn an_mpi_job_ends_with_its_launcher() {
    let mpi = json!({ "framework": "mpi", "roles": [
        { "name": "launcher", "command": ["mpirun"] }, { "name": "worker", "command": ["sleep"] } ] });
    for (code, expected) in [(0, Phase::Succeeded), (1, Phase::Failed)] {
        let mut records = admitted(mpi.clone());
        let show = |seconds, states: &[ReplicaState]| {
            let mut seen = observed(after(seconds), states);
            (seen.replicas[0].key.role, seen.replicas[1].key.index) = ("launcher".into(), 0);
            seen
        };
        for (seconds, seen) in [
            (1, show(1, &[Running, Running])),
            (9, show(9, &[exited(after(8), code), Running])),
            (11, show(11, &[exited(after(8), code), stopped(after(10))])),
        ] {
            let decision = records.decide(
                Some(Sight::Seen {
                    observed: &seen,
                    since: start(),
                }),
                None,
                after(seconds),
            );
            records.apply(&decision.steps, after(seconds));
        }
        assert_eq!(records.phase, expected);
        let cause = records.attempts[0].stop_cause;
        assert_eq!(cause == Some(StopCause::LauncherEnded), code == 0);
    }
}

#[test]
fn another_owner_of_restarts_is_not_cut_short() {
    let mut records = running(json!({ "restart": { "owner": "torchelastic" } }));
    look(&mut records, 9, &[Running, exited(after(8), 1)]);
    assert_eq!(records.phase, Phase::Running);
    look(&mut records, 20, &[exited(after(19), 0), exited(after(8), 1)]);
    assert_eq!(records.phase, Phase::Failed);
}

#[test]
fn a_slow_start_an_overdue_stop_and_a_hang_are_flagged_once_and_cleared_at_the_end() {
    let mut records = admitted(json!({}));
    look(&mut records, 301, &[Running, ReplicaState::Starting]);
    assert_eq!(records.conditions[0].kind, ConditionKind::StartSlow);
    assert!(
        records.conditions[0]
            .message
            .ends_with("rank 1 did not run 5 min later.")
    );
    assert_eq!(look(&mut records, 302, &[Running, ReplicaState::Starting]), []);
    look(&mut records, 303, &[Running, Running]);
    assert_eq!(records.conditions, []);

    let suspect = Suspect {
        key: records.attempt().replicas[1].key.clone(),
        rank: 1,
        evidence: vec![],
    };
    let hung = Judgement::Hung {
        since: after(400),
        suspect: Some(suspect),
        message: "m".into(),
        looked_at: vec![],
    };
    let seen = observed(after(900), &[Running, Running]);
    let sight = Sight::Seen {
        observed: &seen,
        since: start(),
    };
    for _ in 0..2 {
        let decision = records.decide(Some(sight), Some(&hung), after(900));
        records.apply(&decision.steps, after(900));
    }
    assert_eq!(records.conditions.len(), 1);
    assert_eq!(
        (records.phase, records.conditions[0].reason.as_str()),
        (Phase::Running, "rank_1")
    );

    records.wanted = Wanted::Cancel;
    look(&mut records, 1_000, &[Running, Running]);
    assert_eq!(records.conditions, []);
    look(&mut records, 1_089, &[Running, Running]);
    assert_eq!(records.conditions, []);
    look(&mut records, 1_090, &[Running, stopped(after(1_001))]);
    assert_eq!(records.conditions[0].kind, ConditionKind::StopOverdue);
    look(&mut records, 1_100, &[stopped(after(1_100)), stopped(after(1_001))]);
    assert_eq!((records.phase, records.conditions.len()), (Phase::Cancelled, 0));
}

#[test]
fn records_that_contradict_each_other_are_mended_and_never_moved_illegally() {
    // The job was moved and the attempt's end was not seen by it: the end is drawn to its conclusion.
    let mut records = running(json!({}));
    look(&mut records, 9, &[exited(after(8), 0), exited(after(8), 0)]);
    records.phase = Phase::Running;
    let decision = records.decide(None, None, after(20));
    records.apply(&decision.steps, after(20));
    assert_eq!(records.phase, Phase::Succeeded);
    // Active without any attempt: it waits again.
    let mut records = Records::submitted(document(json!({})));
    records.phase = Phase::Running;
    let decision = records.decide(None, None, after(20));
    records.apply(&decision.steps, after(20));
    assert_eq!(records.phase, Phase::Queued);
    // Admitted, and the job's own move is missing.
    let mut records = admitted(json!({}));
    records.phase = Phase::Queued;
    look(&mut records, 3, &[Running, Running]);
    assert_eq!(records.phase, Phase::Running);
    // A final job with a live attempt: the attempt is stopped, the job stays.
    records.phase = Phase::Failed;
    assert!(look(&mut records, 9, &[Running, Running]).contains(&Step::StopProcesses));
    look(&mut records, 10, &[stopped(after(10)), stopped(after(10))]);
    assert_eq!(
        (records.phase, records.attempt().phase),
        (Phase::Failed, AttemptPhase::Ended)
    );
}
