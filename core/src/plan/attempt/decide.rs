//! The decision itself. Truth first (what has ended, what has failed), then wishes, then deadlines.

use chrono::{DateTime, Duration, Utc};

use super::{
    AttemptFacts, ConditionKind, Decision, JobFacts, Reason, Sight, Step, StopCause,
    desk::Desk,
    end::{self, failure_in_words},
    first_failure, fold,
};
use crate::{
    model::{AttemptPhase, Observed, Phase, ReplicaPhase, RestartOwner, Severity, Wanted},
    plan::{hang::Judgement, words},
};

/// How often an attempt is looked at when nothing wakes us earlier. Runtimes wake; this is the safety net.
const LOOK_STARTING: Duration = Duration::seconds(2);
const LOOK_RUNNING: Duration = Duration::seconds(30);
/// What reports steps, or may yet begin to, is looked at more often than the least time after which a step is slow, so
/// that none is missed and a flag goes soon after it goes on.
const LOOK_MEASURED: Duration = Duration::seconds(2);
const YOUNG: Duration = Duration::minutes(5);
const LOOK_STOPPING: Duration = Duration::seconds(1);
pub(super) const LOOK_BLIND: Duration = Duration::seconds(10);

/// A document that names a checkpoint signal and no wait gets this one.
const CHECKPOINT_WAIT: Duration = Duration::seconds(60);
/// A start that takes longer is flagged.
const START_IS_SLOW: Duration = Duration::minutes(5);
/// A stop that takes this much longer than its grace is flagged.
const STOP_IS_OVERDUE: Duration = Duration::seconds(60);

/// Decides about one job. `attempt` is its newest one, ended or not. `sight` is what the runtime shows of it, needed
/// only while it lives; without one nothing is concluded. `hang` is the newest judgement, if one was made.
pub fn decide(
    job: &JobFacts<'_>,
    attempt: Option<&AttemptFacts>,
    sight: Option<Sight<'_>>,
    hang: Option<&Judgement>,
    now: DateTime<Utc>,
) -> Decision {
    let desk = Desk::new(job, now);
    match attempt {
        Some(attempt) if attempt.phase != AttemptPhase::Ended => live(desk, attempt.clone(), sight, hang),
        attempt => idle(desk, attempt),
    }
}

/// No attempt lives: the wish alone decides, after an end that is recorded was drawn to its conclusion.
fn idle(mut desk: Desk<'_>, attempt: Option<&AttemptFacts>) -> Decision {
    desk.mark_seen(None);
    for &kind in ConditionKind::ALL {
        desk.clear_condition(kind);
    }
    if desk.phase.is_active() {
        match attempt.and_then(|attempt| attempt.end.as_ref()) {
            Some(end) => end::settle(&mut desk, end),
            None => {
                let message = "No live attempt of it is recorded, so it waits again.".to_owned();
                let now = desk.now;
                desk.requeue(Reason::AttemptMissing, message, now, None);
            }
        }
        return desk.settled();
    }
    let now = desk.now;
    match (desk.phase, desk.job.wanted) {
        (Phase::Queued, Wanted::Run) => desk.wait_in_queue(desk.job.queued_at, desk.job.not_before),
        (Phase::Queued, Wanted::Suspend) => {
            desk.move_job(
                Phase::Suspended,
                Reason::Suspended,
                "Suspended while it waited.".to_owned(),
                now,
            );
        }
        (Phase::Suspended, Wanted::Run) => desk.requeue(Reason::Resumed, "Resumed.".to_owned(), now, None),
        (Phase::Queued | Phase::Suspended, Wanted::Cancel) => {
            desk.move_job(
                Phase::Cancelled,
                Reason::Cancelled,
                "Cancelled before it ran.".to_owned(),
                now,
            );
        }
        (Phase::Queued | Phase::Suspended, Wanted::Delete) => {
            desk.move_job(
                Phase::Cancelled,
                Reason::Deleted,
                "Deleted before it ran.".to_owned(),
                now,
            );
        }
        _ => {}
    }
    desk.settled()
}

fn live(mut desk: Desk<'_>, mut attempt: AttemptFacts, sight: Option<Sight<'_>>, hang: Option<&Judgement>) -> Decision {
    follow(&mut desk, &attempt);
    let (observed, since) = match sight {
        Some(Sight::Seen { observed, since }) => (observed, since),
        blind => {
            // Nothing is concluded about what can't be seen. A wish is recorded all the same, so that it shows.
            if let Some(Sight::NotObservable { since }) = blind {
                desk.mark_seen(Some(since));
            }
            if let Some((cause, message)) = wish(&desk, &attempt) {
                desk.stop_attempt(&mut attempt, cause, message);
            }
            return desk.timed(LOOK_BLIND);
        }
    };
    desk.mark_seen(None);
    fold::fold(&mut desk, &mut attempt, observed);
    let all_final = attempt.replicas.iter().all(|replica| replica.phase.is_final());
    if all_final && !fold::anything_alive(observed) {
        return end::end(desk, &attempt);
    }
    let stop = truth(&desk, &attempt)
        .or_else(|| wish(&desk, &attempt))
        .or_else(|| deadline(&mut desk, &attempt, since));
    if let Some((cause, message)) = stop {
        desk.stop_attempt(&mut attempt, cause, message);
    }
    flag(&mut desk, &attempt, hang);
    match attempt.phase {
        AttemptPhase::Starting => {
            if attempt
                .replicas
                .iter()
                .any(|replica| not_there(replica.phase, observed, replica))
            {
                desk.steps.push(Step::StartProcesses);
            }
            desk.timed(LOOK_STARTING)
        }
        AttemptPhase::Running => {
            let unmeasured = matches!(hang, None | Some(Judgement::TooEarly { .. }));
            let old = attempt.running_at.is_some_and(|at| desk.now - at > YOUNG);
            desk.timed(if unmeasured && old { LOOK_RUNNING } else { LOOK_MEASURED })
        }
        AttemptPhase::Stopping | AttemptPhase::Ended => stop_processes(desk, &attempt),
    }
}

/// The job's phase follows its attempt's, should a crash have come between the two.
fn follow(desk: &mut Desk<'_>, attempt: &AttemptFacts) {
    let at = attempt.admitted_at;
    if desk.phase == Phase::Queued {
        desk.move_job(Phase::Starting, Reason::Admitted, "Admitted.".to_owned(), at);
    }
    if desk.phase == Phase::Starting && attempt.phase == AttemptPhase::Running {
        let at = attempt.running_at.unwrap_or(at);
        desk.move_job(Phase::Running, Reason::AllRunning, "All ranks run.".to_owned(), at);
    }
    if attempt.phase == AttemptPhase::Stopping {
        let reason = attempt.stop_cause.map_or(Reason::Cancelled, end::reason_of_cause);
        let at = attempt.stopping_at.unwrap_or(at);
        desk.move_job(Phase::Stopping, reason, "Its attempt is stopping.".to_owned(), at);
    }
}

/// A replica that still has to be started, as far as the runtime shows.
fn not_there(phase: ReplicaPhase, observed: &Observed, replica: &super::ReplicaFacts) -> bool {
    phase == ReplicaPhase::Waiting
        || (phase == ReplicaPhase::Starting && !observed.replicas.iter().any(|shown| shown.key == replica.key))
}

type Stop = Option<(StopCause, String)>;

/// What has happened to the attempt that ends it as a whole.
fn truth(desk: &Desk<'_>, attempt: &AttemptFacts) -> Stop {
    if attempt.phase == AttemptPhase::Stopping {
        return None;
    }
    if !desk.phase.is_active() {
        return Some((
            StopCause::Cancel,
            format!("The job is {} and this attempt still lived.", desk.phase),
        ));
    }
    // Another owner restarts what failed inside the attempt; then only the end of all of it counts.
    let ours = desk.job.policy.restart.owner == RestartOwner::Trainyard;
    if let Some(first) = first_failure(&attempt.replicas).filter(|_| ours) {
        let replica = attempt.replicas.iter().find(|replica| replica.key == first.key)?;
        let cause = match replica.phase {
            ReplicaPhase::Lost => StopCause::ReplicaLost,
            _ if replica.exit.is_none() => StopCause::StartFailed,
            _ => StopCause::ReplicaFailed,
        };
        let message = format!("{}; the other ranks are stopped.", failure_in_words(&first, replica));
        return Some((cause, words::sentence(&message)));
    }
    let role = desk.job.policy.ends_with?;
    let mut launchers = attempt
        .replicas
        .iter()
        .filter(|replica| replica.key.role == role)
        .peekable();
    launchers.peek()?;
    launchers
        .all(|replica| replica.phase == ReplicaPhase::Succeeded)
        .then(|| {
            (
                StopCause::LauncherEnded,
                format!("The {role} succeeded; the other ranks are stopped."),
            )
        })
}

/// What a person asks for. A cancel or delete also overtakes a suspension that still waits for its checkpoint.
fn wish(desk: &Desk<'_>, attempt: &AttemptFacts) -> Stop {
    let open = match attempt.stop_cause {
        _ if attempt.phase != AttemptPhase::Stopping => true,
        Some(StopCause::Suspend) => desk.job.wanted != Wanted::Suspend,
        _ => false,
    };
    match desk.job.wanted {
        _ if !open => None,
        Wanted::Run => None,
        Wanted::Suspend => Some((StopCause::Suspend, "A person asked to suspend it.".to_owned())),
        Wanted::Cancel => Some((StopCause::Cancel, "A person asked to cancel it.".to_owned())),
        Wanted::Delete => Some((StopCause::Delete, "A person asked to delete it.".to_owned())),
    }
}

/// Which deadline has passed; the next one that may is looked at in time.
fn deadline(desk: &mut Desk<'_>, attempt: &AttemptFacts, watched_since: DateTime<Utc>) -> Stop {
    let deadlines = desk.job.policy.deadlines;
    let mut passed = |limit: Option<crate::document::units::Duration>, from: DateTime<Utc>| {
        let limit = limit?.as_chrono();
        if from + limit <= desk.now {
            return Some(words::duration(limit));
        }
        desk.look_by(from + limit);
        None
    };
    match (attempt.phase, attempt.running_at) {
        (AttemptPhase::Starting, _) => {
            let limit = passed(deadlines.start, attempt.admitted_at)?;
            let message = format!("Not every rank ran within {limit} of admission (deadlines.start).");
            Some((StopCause::StartDeadline, message))
        }
        (AttemptPhase::Running, Some(running_at)) => {
            let last_sign = attempt
                .replicas
                .iter()
                .flat_map(|replica| [replica.last_output_at, replica.step_at])
                .flatten()
                .fold(running_at.max(watched_since), DateTime::max);
            let run = passed(deadlines.run, running_at);
            let silence = passed(deadlines.silence, last_sign);
            let run = run.map(|limit| {
                (
                    StopCause::RunDeadline,
                    format!("It ran for {limit}, as long as it may (deadlines.run)."),
                )
            });
            run.or(silence.map(|limit| {
                let message = format!("No rank printed or made a step for {limit} (deadlines.silence).");
                (StopCause::SilenceDeadline, message)
            }))
        }
        _ => None,
    }
}

/// What is true besides the phase. All of it is told with times, so that the words don't age.
fn flag(desk: &mut Desk<'_>, attempt: &AttemptFacts, hang: Option<&Judgement>) {
    let slow_at = attempt.admitted_at + START_IS_SLOW;
    if attempt.phase != AttemptPhase::Starting {
        desk.clear_condition(ConditionKind::StartSlow);
    } else if desk.now >= slow_at {
        let missing: Vec<u32> = attempt
            .replicas
            .iter()
            .filter(|replica| matches!(replica.phase, ReplicaPhase::Waiting | ReplicaPhase::Starting))
            .map(|replica| replica.rank)
            .collect();
        let message = format!(
            "Admitted at {}, and {} did not run {} later.",
            words::exact(attempt.admitted_at),
            words::ranks(&missing),
            words::duration(START_IS_SLOW)
        );
        desk.set_condition(
            ConditionKind::StartSlow,
            Severity::Warning,
            "ranks_missing".to_owned(),
            message,
        );
    } else {
        desk.look_by(slow_at);
    }

    if attempt.phase != AttemptPhase::Running {
        desk.clear_condition(ConditionKind::Hung);
        desk.clear_condition(ConditionKind::Slow);
        return;
    }
    match hang {
        None => {}
        Some(Judgement::Well | Judgement::TooEarly { .. }) => {
            desk.clear_condition(ConditionKind::Hung);
            desk.clear_condition(ConditionKind::Slow);
        }
        Some(Judgement::Slow { message, .. }) => {
            desk.clear_condition(ConditionKind::Hung);
            desk.set_condition(
                ConditionKind::Slow,
                Severity::Info,
                "step_slow".to_owned(),
                message.clone(),
            );
        }
        Some(Judgement::Hung { suspect, message, .. }) => {
            desk.clear_condition(ConditionKind::Slow);
            let reason = match suspect {
                Some(suspect) => format!("rank_{}", suspect.rank),
                None => "rank_unknown".to_owned(),
            };
            desk.set_condition(ConditionKind::Hung, Severity::Critical, reason, message.clone());
        }
    }
}

/// The attempt is to end: a checkpoint first where a suspension may have one, then the processes.
fn stop_processes(mut desk: Desk<'_>, attempt: &AttemptFacts) -> Decision {
    if attempt.stop_asked_at.is_none() && attempt.stop_cause == Some(StopCause::Suspend) && well(attempt) {
        let checkpoints = desk.job.policy.checkpoints;
        let wait = checkpoints.wait.map_or(CHECKPOINT_WAIT, |wait| wait.as_chrono());
        let until = attempt.checkpoint_asked_at.or(attempt.stopping_at).unwrap_or(desk.now) + wait;
        let written = attempt
            .checkpoint_asked_at
            .is_some_and(|asked| attempt.checkpoint_at.is_some_and(|at| at >= asked));
        if let Some(signal) = checkpoints.signal.filter(|_| !written && desk.now < until) {
            if attempt.checkpoint_asked_at.is_none() {
                desk.steps.push(Step::SignalCheckpoint { signal });
            }
            desk.look_by(until);
            return desk.timed(LOOK_STOPPING);
        }
    }
    desk.steps.push(Step::StopProcesses);
    let overdue = attempt
        .stop_asked_at
        .map(|asked| asked + desk.job.policy.stop.grace.as_chrono() + STOP_IS_OVERDUE);
    if let (Some(overdue), Some(asked)) = (overdue, attempt.stop_asked_at)
        && desk.now >= overdue
    {
        let alive: Vec<u32> = attempt
            .replicas
            .iter()
            .filter(|one| !one.phase.is_final())
            .map(|one| one.rank)
            .collect();
        let message = format!(
            "Asked to end at {}; {} still had processes {} after the grace.",
            words::exact(asked),
            if alive.is_empty() {
                "the attempt".to_owned()
            } else {
                words::ranks(&alive)
            },
            words::duration(STOP_IS_OVERDUE)
        );
        desk.set_condition(
            ConditionKind::StopOverdue,
            Severity::Critical,
            "processes_remain".to_owned(),
            message,
        );
    }
    desk.timed(LOOK_STOPPING)
}

/// All ranks were up and none has failed: only then is a checkpoint worth waiting for.
fn well(attempt: &AttemptFacts) -> bool {
    let failed = |phase| matches!(phase, ReplicaPhase::Failed | ReplicaPhase::Lost);
    attempt.running_at.is_some() && !attempt.replicas.iter().any(|replica| failed(replica.phase))
}
