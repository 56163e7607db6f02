//! What the runtime shows, folded into the records of an attempt: which replicas have moved, and since when it runs.

use std::collections::HashMap;

use chrono::{DateTime, Utc};

use super::{AttemptFacts, ReplicaFacts, Step, StopCause, desk::Desk};
use crate::model::{
    AttemptPhase, Exit, IncarnationId, Observed, ObservedReplica, Phase, ReplicaKey, ReplicaPhase, ReplicaState,
};

use super::Reason;

/// Moves every replica that is seen to have moved, and the attempt to `running` once all have started.
pub(super) fn fold(desk: &mut Desk<'_>, attempt: &mut AttemptFacts, observed: &Observed) {
    let seen: HashMap<&ReplicaKey, &ObservedReplica> = observed
        .replicas
        .iter()
        .map(|replica| (&replica.key, replica))
        .collect();
    let mut replicas = std::mem::take(&mut attempt.replicas);
    for replica in replicas.iter_mut().filter(|replica| !replica.phase.is_final()) {
        let before = replica.phase;
        match seen.get(&replica.key) {
            Some(shown) => take_over(desk, attempt, replica, shown, observed.at),
            None => missing(desk, attempt, replica, observed.at),
        }
        if replica.phase != before {
            desk.steps.push(moved(replica));
        }
    }
    attempt.replicas = replicas;
    promote(desk, attempt);
}

/// Whether the runtime still shows a process of the attempt, whatever the records say of it.
pub(super) fn anything_alive(observed: &Observed) -> bool {
    observed
        .replicas
        .iter()
        .any(|replica| matches!(replica.state, ReplicaState::Starting | ReplicaState::Running))
}

/// A start that the runtime refused for good (`RuntimeError::Refused`), as an observation: each replica that has
/// not started could not. What runs already is shown as running.
pub fn refused(attempt: &AttemptFacts, reason: &str, message: &str, at: DateTime<Utc>) -> Observed {
    let replicas = attempt
        .replicas
        .iter()
        .filter(|replica| !replica.phase.is_final())
        .map(|replica| ObservedReplica {
            key: replica.key.clone(),
            incarnation: replica.incarnation.unwrap_or(IncarnationId(uuid::Uuid::nil())),
            identity: None,
            state: match replica.phase {
                ReplicaPhase::Running => ReplicaState::Running,
                _ => ReplicaState::StartFailed {
                    reason: reason.to_owned(),
                    message: message.to_owned(),
                    at,
                },
            },
            started_at: replica.started_at,
        })
        .collect();
    Observed { at, replicas }
}

fn take_over(
    desk: &Desk<'_>,
    attempt: &AttemptFacts,
    replica: &mut ReplicaFacts,
    shown: &ObservedReplica,
    seen_at: DateTime<Utc>,
) {
    // Times from elsewhere never run backwards here, nor ahead of us.
    let clamp = |at: DateTime<Utc>, from: DateTime<Utc>| at.min(desk.now).max(from);
    replica.incarnation = Some(shown.incarnation);
    let started = shown.started_at.or(match shown.state {
        ReplicaState::Running | ReplicaState::Ended(_) => Some(seen_at),
        _ => None,
    });
    replica.started_at = replica.started_at.or(started).map(|at| clamp(at, attempt.admitted_at));
    let from = replica.started_at.unwrap_or(attempt.admitted_at);
    match &shown.state {
        ReplicaState::Starting if replica.phase == ReplicaPhase::Waiting => replica.phase = ReplicaPhase::Starting,
        ReplicaState::Starting => {}
        ReplicaState::Running => replica.phase = ReplicaPhase::Running,
        ReplicaState::Ended(exit) => {
            replica.phase = phase_after(desk, attempt, exit);
            replica.ended_at = Some(clamp(exit.at, from));
            replica.exit = Some(exit.clone());
        }
        ReplicaState::StartFailed { message, at, .. } => {
            replica.phase = match attempt.stop_asked_at {
                Some(_) => ReplicaPhase::Stopped,
                None => ReplicaPhase::Failed,
            };
            replica.ended_at = Some(clamp(*at, from));
            replica.message = Some(message.clone());
        }
        ReplicaState::Lost { message } => {
            replica.phase = ReplicaPhase::Lost;
            replica.ended_at = Some(clamp(seen_at, from));
            replica.message = Some(message.clone());
        }
    }
}

/// A process that ended because we asked is `stopped`, whatever its status: a program that catches SIGTERM and ends
/// with 0 has not finished its work. The same goes for one that ends once a suspension has asked for a checkpoint,
/// since many write it and leave; running a finished job once more costs less than calling a half-done one done.
fn phase_after(desk: &Desk<'_>, attempt: &AttemptFacts, exit: &Exit) -> ReplicaPhase {
    let after_checkpoint = attempt.stop_cause == Some(StopCause::Suspend)
        && desk.job.policy.checkpoints.signal.is_some()
        && attempt.stopping_at.is_some_and(|asked| exit.at >= asked);
    if exit.stop_requested || (exit.succeeded() && after_checkpoint) {
        ReplicaPhase::Stopped
    } else if exit.succeeded() {
        ReplicaPhase::Succeeded
    } else {
        ReplicaPhase::Failed
    }
}

/// The runtime has nothing of a replica. One that ran is lost; one that never did is yet to be started, or was
/// overtaken by a stop.
fn missing(desk: &Desk<'_>, attempt: &AttemptFacts, replica: &mut ReplicaFacts, seen_at: DateTime<Utc>) {
    let stopped = attempt.phase == AttemptPhase::Stopping && attempt.stop_asked_at.is_some_and(|asked| seen_at > asked);
    let at = Some(seen_at.min(desk.now).max(attempt.admitted_at));
    if replica.phase == ReplicaPhase::Running {
        replica.phase = ReplicaPhase::Lost;
        replica.message = Some("it ran, and the runtime knows nothing of it any more".to_owned());
        replica.ended_at = at;
    } else if stopped {
        replica.phase = ReplicaPhase::Stopped;
        replica.ended_at = at;
    }
}

/// The attempt runs from when its last replica started, if all were up together then. A program so short that its
/// first rank is done before the last one starts also counts as having run, unless that rank failed.
fn promote(desk: &mut Desk<'_>, attempt: &mut AttemptFacts) {
    if attempt.phase != AttemptPhase::Starting {
        return;
    }
    let mut last_start = attempt.admitted_at;
    for replica in &attempt.replicas {
        match replica.started_at {
            Some(at) if !matches!(replica.phase, ReplicaPhase::Waiting | ReplicaPhase::Starting) => {
                last_start = last_start.max(at);
            }
            _ => return,
        }
    }
    let failed_before = attempt
        .replicas
        .iter()
        .filter(|replica| matches!(replica.phase, ReplicaPhase::Failed | ReplicaPhase::Lost))
        .any(|replica| replica.ended_at.is_none_or(|ended| ended < last_start));
    if failed_before {
        return;
    }
    attempt.phase = AttemptPhase::Running;
    attempt.running_at = Some(last_start);
    desk.steps.push(Step::AttemptRuns { at: last_start });
    let message = match attempt.replicas.len() {
        1 => "The rank runs.".to_owned(),
        many => format!("All {many} ranks run."),
    };
    if desk.phase == Phase::Starting {
        desk.move_job(Phase::Running, Reason::AllRunning, message, last_start);
    }
}

fn moved(replica: &ReplicaFacts) -> Step {
    Step::MoveReplica {
        key: replica.key.clone(),
        phase: replica.phase,
        incarnation: replica.incarnation,
        started_at: replica.started_at,
        ended_at: replica.ended_at,
        exit: replica.exit.clone(),
        message: replica.message.clone(),
    }
}
