//! The end of an attempt, and what follows for the job.
//!
//! The attempt's outcome tells what happened to it. The job's next phase is where that meets the wish: an end that
//! is final by itself is told as it is (a job that failed for good is `failed` even if a cancel was under way), and
//! where more would have followed, the wish decides.

use super::{
    AttemptEnd, AttemptFacts, ConditionKind, Decision, FirstFailure, Reason, ReplicaFacts, Step, StopCause, desk::Desk,
    first_failure,
};
use crate::{
    model::{Outcome, Phase, ReplicaPhase, Wanted},
    plan::{
        exits,
        retry::{self, Verdict},
        words,
    },
};

/// Every replica has ended: records the attempt's end and moves the job on.
pub(super) fn end(mut desk: Desk<'_>, attempt: &AttemptFacts) -> Decision {
    for &kind in ConditionKind::ALL {
        desk.clear_condition(kind);
    }
    let end = outcome(&desk, attempt);
    desk.steps.push(Step::EndAttempt(end.clone()));
    settle(&mut desk, &end);
    desk.settled()
}

/// Moves a job whose attempt has ended to where the end and the wish lead.
pub(super) fn settle(desk: &mut Desk<'_>, end: &AttemptEnd) {
    let wanted = desk.job.wanted;
    let stay = |desk: &mut Desk<'_>, phase| desk.move_job(phase, end.reason, end.message.clone(), end.at);
    match end.outcome {
        Outcome::Succeeded => stay(desk, Phase::Succeeded),
        Outcome::Cancelled => stay(desk, Phase::Cancelled),
        Outcome::Suspended => match wanted {
            Wanted::Run => {
                let message = "Resumed while it was being suspended.".to_owned();
                desk.requeue(Reason::Resumed, message, end.at, None);
            }
            Wanted::Suspend => stay(desk, Phase::Suspended),
            Wanted::Cancel | Wanted::Delete => stay(desk, Phase::Cancelled),
        },
        Outcome::Failed | Outcome::Lost => {
            let policy = desk.job.policy.restart;
            let verdict = retry::after_failure(policy, desk.job.failures_before, end.reason, end.code, end.at);
            let message = format!("{} {}", end.message, verdict.in_words());
            match (verdict, wanted) {
                (Verdict::Final { .. }, _) => desk.move_job(Phase::Failed, end.reason, message, end.at),
                (Verdict::Again { not_before, .. }, Wanted::Run) => {
                    desk.requeue(Reason::Retry, message, end.at, Some(not_before));
                }
                (_, Wanted::Suspend) => {
                    let message = format!("{} It is not retried, since a person suspended it.", end.message);
                    desk.move_job(Phase::Suspended, Reason::Suspended, message, end.at);
                }
                (_, Wanted::Cancel | Wanted::Delete) => {
                    let message = format!("{} It is not retried, since a person cancelled it.", end.message);
                    desk.move_job(Phase::Cancelled, Reason::Cancelled, message, end.at);
                }
            }
        }
    }
}

fn outcome(desk: &Desk<'_>, attempt: &AttemptFacts) -> AttemptEnd {
    let first = first_failure(&attempt.replicas);
    let failed = first
        .as_ref()
        .and_then(|first| attempt.replicas.iter().find(|one| one.key == first.key));
    let (outcome, reason, message) = match (success(desk, attempt), attempt.stop_cause, &first, failed) {
        (Some((reason, message)), ..) => (Outcome::Succeeded, reason, message),
        (_, Some(StopCause::Suspend), ..) => (Outcome::Suspended, Reason::Suspended, "Suspended.".to_owned()),
        (_, Some(StopCause::Cancel), ..) => (Outcome::Cancelled, Reason::Cancelled, "Cancelled.".to_owned()),
        (_, Some(StopCause::Delete), ..) => (Outcome::Cancelled, Reason::Deleted, "Deleted.".to_owned()),
        (_, Some(StopCause::StartDeadline), ..) => {
            let message = "Not every rank ran within the start deadline (deadlines.start).";
            (Outcome::Failed, Reason::StartDeadline, message.to_owned())
        }
        (_, Some(StopCause::RunDeadline), ..) => {
            let message = "It ran as long as it may (deadlines.run).";
            (Outcome::Failed, Reason::RunDeadline, message.to_owned())
        }
        (_, Some(StopCause::SilenceDeadline), ..) => {
            let message = "No rank printed or made a step within the silence deadline (deadlines.silence).";
            (Outcome::Failed, Reason::SilenceDeadline, message.to_owned())
        }
        (.., Some(first), Some(failed)) => {
            let reason = reason_of_failure(failed);
            let outcome = match reason {
                Reason::ReplicaLost => Outcome::Lost,
                _ => Outcome::Failed,
            };
            let message = format!("{}.", words::sentence(&failure_in_words(first, failed)));
            (outcome, reason, message)
        }
        _ => stopped_by_nobody(desk),
    };
    let end_of_last = attempt.replicas.iter().filter_map(|replica| replica.ended_at).max();
    // An attempt ends no earlier than it began, and a clock that ran ahead does not make it end in the future.
    let from = attempt.running_at.unwrap_or(attempt.admitted_at);
    AttemptEnd {
        outcome,
        reason,
        message,
        at: end_of_last.unwrap_or(desk.now).min(desk.now).max(from),
        code: failed.and_then(|failed| failed.exit.as_ref()).and_then(exits::code),
        first_failure: first,
    }
}

/// Every replica succeeded, or every one of the role that the job ends with.
fn success(desk: &Desk<'_>, attempt: &AttemptFacts) -> Option<(Reason, String)> {
    let role = desk.job.policy.ends_with;
    let mut counted = 0;
    for replica in attempt
        .replicas
        .iter()
        .filter(|replica| role.is_none_or(|role| replica.key.role == role))
    {
        if replica.phase != ReplicaPhase::Succeeded {
            return None;
        }
        counted += 1;
    }
    match (counted, role) {
        (0, _) => None,
        (_, Some(role)) => Some((Reason::LauncherSucceeded, format!("The {role} ended with exit code 0."))),
        (1, None) => Some((Reason::AllSucceeded, "It ended with exit code 0.".to_owned())),
        (many, None) => Some((
            Reason::AllSucceeded,
            format!("All {many} ranks ended with exit code 0."),
        )),
    }
}

/// Every process was stopped on request, and no cause is on record: whoever asked, the wish is the best account.
fn stopped_by_nobody(desk: &Desk<'_>) -> (Outcome, Reason, String) {
    match desk.job.wanted {
        Wanted::Suspend => (Outcome::Suspended, Reason::Suspended, "Suspended.".to_owned()),
        Wanted::Cancel => (Outcome::Cancelled, Reason::Cancelled, "Cancelled.".to_owned()),
        Wanted::Delete => (Outcome::Cancelled, Reason::Deleted, "Deleted.".to_owned()),
        Wanted::Run => {
            let message = "Its ranks were stopped, and no cause is on record.";
            (Outcome::Failed, Reason::ExitUnknown, message.to_owned())
        }
    }
}

/// "rank 3 (worker-3) failed first: exit code 1", without a full stop.
pub(super) fn failure_in_words(first: &FirstFailure, replica: &ReplicaFacts) -> String {
    let message = replica.message.as_deref().unwrap_or("no reason is known");
    match (replica.phase, &replica.exit) {
        (ReplicaPhase::Lost, _) => format!("rank {} ({}) was lost: {message}", first.rank, first.key),
        (_, None) => format!("rank {} ({}) could not start: {message}", first.rank, first.key),
        (_, Some(exit)) => format!("{}: {}", first.in_words(), exits::brief(exit)),
    }
}

fn reason_of_failure(replica: &ReplicaFacts) -> Reason {
    match &replica.exit {
        _ if replica.phase == ReplicaPhase::Lost => Reason::ReplicaLost,
        None => Reason::StartFailed,
        Some(exit) if exit.oom => Reason::OutOfMemory,
        Some(exit) if exit.unknown || (exit.code.is_none() && exit.signal.is_none()) => Reason::ExitUnknown,
        Some(exit) if exit.signal.is_some() => Reason::Signal,
        Some(_) => Reason::ExitCode,
    }
}

pub(super) fn reason_of_cause(cause: StopCause) -> Reason {
    match cause {
        StopCause::ReplicaFailed => Reason::ExitCode,
        StopCause::ReplicaLost => Reason::ReplicaLost,
        StopCause::StartFailed => Reason::StartFailed,
        StopCause::StartDeadline => Reason::StartDeadline,
        StopCause::RunDeadline => Reason::RunDeadline,
        StopCause::SilenceDeadline => Reason::SilenceDeadline,
        StopCause::LauncherEnded => Reason::LauncherSucceeded,
        StopCause::Suspend => Reason::Suspended,
        StopCause::Cancel => Reason::Cancelled,
        StopCause::Delete => Reason::Deleted,
    }
}
