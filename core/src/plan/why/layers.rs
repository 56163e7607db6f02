//! The layers, in the order in which they are asked.

use chrono::{DateTime, Duration, Utc};

use super::{ClusterFacts, Facts, Figure, WhyCode, WhyReason, capacity};
use crate::{
    model::{Layer, Phase, ReplicaPhase},
    plan::{admit::Hold, attempt::StopCause, retry, words},
};

/// A start that takes longer is told as slow.
const START_IS_SLOW: Duration = Duration::minutes(5);

pub(super) fn restored(facts: &Facts<'_>, _: DateTime<Utc>) -> Option<WhyReason> {
    let moves = matches!(facts.phase, Phase::Queued | Phase::Starting | Phase::Stopping);
    let at = facts.restored_at.filter(|_| moves)?;
    let message = format!(
        "these records were restored from a backup at {}, and workers only observe until a person confirms",
        words::exact(at)
    );
    let next = "compare the jobs with what runs, then have an admin confirm (trainyard restore --confirm)".to_owned();
    Some(reason(Layer::Policy, WhyCode::Restored, message, next).since(at))
}

pub(super) fn suspended(facts: &Facts<'_>, _: DateTime<Utc>) -> Option<WhyReason> {
    if facts.phase != Phase::Suspended {
        return None;
    }
    let who = facts.suspended.map_or("somebody", |by| by.who);
    let at = facts.suspended.map_or(facts.since, |by| by.at);
    let message = format!("suspended by {who} at {}", words::exact(at));
    let next = "resume it, and it waits in the queue again".to_owned();
    Some(reason(Layer::Policy, WhyCode::Suspended, message, next).since(at))
}

pub(super) fn stopping(facts: &Facts<'_>, _: DateTime<Utc>) -> Option<WhyReason> {
    let attempt = facts.attempt.as_ref().filter(|_| facts.phase == Phase::Stopping)?;
    let cause = attempt.stop_cause.unwrap_or(StopCause::Cancel);
    let (code, what) = match cause {
        StopCause::Suspend => (WhyCode::Suspending, "a person asked to suspend it"),
        StopCause::Cancel => (WhyCode::Stopping, "a person asked to cancel it"),
        StopCause::Delete => (WhyCode::Stopping, "a person asked to delete it"),
        StopCause::ReplicaFailed => (WhyCode::Stopping, "a rank failed, and the others are stopped"),
        StopCause::ReplicaLost => (WhyCode::Stopping, "a rank was lost, and the others are stopped"),
        StopCause::StartFailed => (WhyCode::Stopping, "a rank could not start, and the others are stopped"),
        StopCause::StartDeadline => (WhyCode::Stopping, "it reached its start deadline"),
        StopCause::RunDeadline => (WhyCode::Stopping, "it reached its run deadline"),
        StopCause::SilenceDeadline => (WhyCode::Stopping, "it was silent for too long"),
        StopCause::LauncherEnded => (WhyCode::Stopping, "its launcher ended, and the others are stopped"),
    };
    let alive = attempt
        .replicas
        .iter()
        .filter(|(_, phase, _)| !phase.is_final())
        .count() as u64;
    let message = format!("{what}; {} still up", isare(alive, "rank"));
    let grace = words::duration(attempt.grace);
    let next = format!("wait; what does not end within {grace} of being asked is killed");
    let mut told = reason(Layer::Runtime, code, message, next).figure("ranks_up", alive, "ranks");
    told.since = attempt.stopping_at;
    Some(told)
}

pub(super) fn team(facts: &Facts<'_>, _: DateTime<Utc>) -> Option<WhyReason> {
    if facts.team_exists || !waits(facts) {
        return None;
    }
    let message = format!("the team {} does not exist any more", facts.team);
    let next = "cancel it, and submit it again for a team that exists".to_owned();
    Some(reason(Layer::Policy, WhyCode::TeamMissing, message, next))
}

pub(super) fn cluster(facts: &Facts<'_>, _: DateTime<Utc>) -> Option<WhyReason> {
    let cluster = facts.cluster.filter(|_| waits(facts))?;
    if !cluster.exists {
        let message = format!("there is no cluster named {}", cluster.name);
        let next = "attach a cluster of that name, or submit it again for another one".to_owned();
        return Some(reason(Layer::Cluster, WhyCode::ClusterMissing, message, next));
    }
    if !cluster.granted {
        let message = format!("the team {} has no grant for the cluster {}", facts.team, cluster.name);
        let next = format!(
            "ask an admin to grant {} to {}, or submit it for another cluster",
            cluster.name, facts.team
        );
        return Some(reason(Layer::Policy, WhyCode::NoGrant, message, next));
    }
    None
}

pub(super) fn secrets(facts: &Facts<'_>, _: DateTime<Utc>) -> Option<WhyReason> {
    if facts.missing_secrets.is_empty() || !waits(facts) {
        return None;
    }
    let named = facts
        .missing_secrets
        .iter()
        .map(|missing| format!("key {} of secret {}", missing.key, missing.name));
    let named = words::list(&named.collect::<Vec<_>>(), 3);
    let verb = if facts.missing_secrets.len() == 1 { "is" } else { "are" };
    let message = format!("{named} {verb} not there in team {}", facts.team);
    let next = "set the secret, or take the secretRef out of the document; the job starts by itself then".to_owned();
    let many = facts.missing_secrets.len() as u64;
    Some(reason(Layer::Secrets, WhyCode::SecretMissing, message, next).figure("missing", many, "secrets"))
}

pub(super) fn worker_gone(facts: &Facts<'_>, now: DateTime<Utc>) -> Option<WhyReason> {
    let active = waits(facts) || facts.phase.is_active();
    let cluster = facts
        .cluster
        .filter(|cluster| active && cluster.exists && cluster.worker.is_none())?;
    Some(gone(&cluster, facts.stale_since, now))
}

fn gone(cluster: &ClusterFacts<'_>, stale_since: Option<DateTime<Utc>>, now: DateTime<Utc>) -> WhyReason {
    let seen = match cluster.worker_seen_at {
        Some(at) => format!("its worker was last seen {}", words::relative(at, now)),
        None => "no worker has ever held it".to_owned(),
    };
    let message = format!("no worker looks after the cluster {}: {seen}", cluster.name);
    let next = format!("start a worker for {} (trainyard up, or trainyard work)", cluster.name);
    let mut told = reason(Layer::Cluster, WhyCode::WorkerGone, message, next);
    told.since = cluster.worker_seen_at.or(stale_since);
    told
}

pub(super) fn backoff(facts: &Facts<'_>, now: DateTime<Utc>) -> Option<WhyReason> {
    let backoff = facts.backoff.filter(|backoff| waits(facts) && backoff.until > now)?;
    let message = format!(
        "retry {} of {} comes in {}, since the last attempt ended badly: {}",
        backoff.retry,
        backoff.max,
        words::duration(backoff.until - now),
        backoff.last.trim_end_matches('.')
    );
    let next = "wait, or cancel it and mend the cause first".to_owned();
    let mut told = reason(Layer::Policy, WhyCode::Backoff, message, next)
        .figure("retry", u64::from(backoff.retry), "attempts")
        .figure("retries", u64::from(backoff.max), "attempts");
    told.until = Some(backoff.until);
    Some(told)
}

/// With no cluster named, the best of the candidates speaks: one that would take the job some day, if there is one.
pub(super) fn no_cluster_fits(facts: &Facts<'_>, now: DateTime<Utc>) -> Option<WhyReason> {
    if facts.cluster.is_some() || !waits(facts) {
        return None;
    }
    let usable: Vec<_> = facts
        .candidates
        .iter()
        .filter(|candidate| candidate.cluster.granted)
        .collect();
    if usable.is_empty() {
        let message = format!("the team {} may use no cluster", facts.team);
        let next = format!("ask an admin to grant a cluster to {}", facts.team);
        return Some(reason(Layer::Policy, WhyCode::NoGrant, message, next));
    }
    let never = |hold: &Hold| matches!(hold, Hold::TooBig { .. } | Hold::NoNodes);
    let some_day = usable.iter().find_map(|candidate| {
        let not_yet = candidate
            .hold
            .filter(|not_yet| candidate.cluster.worker.is_some() && !never(&not_yet.hold))?;
        let mut told = capacity::told(not_yet, now);
        told.message = format!("on {}, {}", candidate.cluster.name, told.message);
        Some(told)
    });
    if some_day.is_some() {
        return some_day;
    }
    if let Some(unheld) = usable.iter().find(|candidate| candidate.cluster.worker.is_none()) {
        return Some(gone(&unheld.cluster, facts.stale_since, now));
    }
    let each: Vec<String> = usable
        .iter()
        .filter_map(|candidate| {
            let told = capacity::told(candidate.hold?, now);
            Some(format!("{}: {}", candidate.cluster.name, told.message))
        })
        .collect();
    if each.len() < usable.len() {
        return Some(not_looked_at());
    }
    if let [only] = usable.as_slice()
        && let Some(not_yet) = only.hold
    {
        // There is no other cluster to speak of, so its own words and numbers say more.
        return Some(WhyReason {
            code: WhyCode::NoClusterFits,
            ..capacity::told(not_yet, now)
        });
    }
    let message = format!("no cluster can take it ({})", each.join("; "));
    let next = "ask for less per replica or for fewer replicas, or have a cluster grow".to_owned();
    let many = usable.len() as u64;
    Some(reason(Layer::Capacity, WhyCode::NoClusterFits, message, next).figure("clusters", many, "clusters"))
}

pub(super) fn queue(facts: &Facts<'_>, now: DateTime<Utc>) -> Option<WhyReason> {
    if !waits(facts)
        || facts
            .cluster
            .is_none_or(|cluster| !cluster.exists || cluster.worker.is_none())
    {
        return None;
    }
    match facts.queue {
        // A backoff has a layer of its own, which knows more.
        Some(not_yet) if matches!(not_yet.hold, Hold::Backoff { .. }) => None,
        Some(not_yet) => Some(capacity::told(not_yet, now)),
        None => Some(not_looked_at()),
    }
}

fn not_looked_at() -> WhyReason {
    let message = "the queue was not looked at since it came".to_owned();
    let next = "wait a moment; if this stays, look at the worker's log".to_owned();
    reason(Layer::Queue, WhyCode::NotLookedAt, message, next)
}

pub(super) fn starting(facts: &Facts<'_>, now: DateTime<Utc>) -> Option<WhyReason> {
    let attempt = facts.attempt.as_ref().filter(|_| facts.phase == Phase::Starting)?;
    let total = attempt.replicas.len() as u64;
    let up = |phase: ReplicaPhase| phase == ReplicaPhase::Running || phase.is_final();
    let missing: Vec<_> = attempt.replicas.iter().filter(|(_, phase, _)| !up(*phase)).collect();
    let names = missing.iter().map(|(key, phase, words)| match words {
        Some(words) => format!("{key} is {phase} ({words})"),
        None => format!("{key} is {phase}"),
    });
    let names = words::list(&names.collect::<Vec<_>>(), 3);
    let running = total - missing.len() as u64;
    let mut message = format!("{} of {} up; {names}", words::count(running), isare(total, "rank"));
    if let Some(failed) = attempt.failed_try {
        message.push_str(&format!("; the last try failed: {failed}"));
    }
    let slow = now - attempt.admitted_at >= START_IS_SLOW;
    let until = attempt.start_deadline.map(|deadline| attempt.admitted_at + deadline);
    let next = match (until, slow) {
        _ if attempt.failed_try.is_some() => "mend that on the machine; it is tried again by itself".to_owned(),
        (Some(until), _) => format!(
            "wait; the attempt fails at {} if they are not all up",
            words::exact(until)
        ),
        (None, true) => "look at the node and the logs of those ranks; deadlines.start would bound this".to_owned(),
        (None, false) => "wait; starting takes a moment".to_owned(),
    };
    let code = match attempt.failed_try {
        Some(_) => WhyCode::StartFails,
        None if slow => WhyCode::StartSlow,
        None => WhyCode::Starting,
    };
    let mut told = reason(Layer::Runtime, code, message, next)
        .since(attempt.admitted_at)
        .figure("ranks_up", running, "ranks")
        .figure("ranks", total, "ranks");
    told.until = until;
    Some(told)
}

pub(super) fn queue_deadline(facts: &Facts<'_>, now: DateTime<Utc>) -> Option<WhyReason> {
    let deadline = facts.queue_deadline.filter(|_| waits(facts))?;
    let due = facts.backoff.map(|backoff| backoff.until);
    let left = (deadline - facts.waited_before - retry::waited(facts.since, due, now)).max(Duration::zero());
    let until = now.max(due.unwrap_or(now)) + left;
    let message = format!(
        "it fails at {} if it has not started by then (deadlines.queue is {})",
        words::exact(until),
        words::duration(deadline)
    );
    let next = "wait, or raise its priority".to_owned();
    let mut told = reason(Layer::Policy, WhyCode::QueueDeadline, message, next);
    told.until = Some(until);
    Some(told)
}

fn waits(facts: &Facts<'_>) -> bool {
    facts.phase == Phase::Queued
}

fn isare(number: u64, noun: &str) -> String {
    format!(
        "{} {}",
        words::counted(number, noun),
        if number == 1 { "is" } else { "are" }
    )
}

pub(super) fn reason(layer: Layer, code: WhyCode, message: String, next: String) -> WhyReason {
    WhyReason {
        layer,
        code,
        message,
        since: None,
        until: None,
        numbers: Vec::new(),
        next,
    }
}

impl WhyReason {
    pub(super) fn since(mut self, at: DateTime<Utc>) -> Self {
        self.since = Some(at);
        self
    }

    pub(super) fn figure(mut self, name: &str, value: u64, unit: &str) -> Self {
        self.numbers.push(Figure {
            name: name.to_owned(),
            value: i64::try_from(value).unwrap_or(i64::MAX),
            unit: unit.to_owned(),
        });
        self
    }
}
