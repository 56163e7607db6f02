//! Between records and plans: what the plan decided, written; what is recorded, as the plan's facts.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;
use trainyard_core::{
    document::job::{CheckpointSignal, Framework},
    kinds::rendezvous::{LAUNCHER, RANK},
    model::{AttemptPhase, Exit, Outcome, Phase, ReplicaKey, ReplicaPhase},
    plan::{
        attempt::{self, ReplicaFacts, Step},
        hang,
    },
};

use super::{WorkError, Worker};
use crate::db::{
    DbError,
    attempts::{self, AttemptRecord, ReplicaRecord},
    conditions,
    events::Subject,
    jobs::{self, JobRecord, Move},
    notify,
    tasks::{self, TaskKind},
    usage,
};

/// The runtime is asked for the states of an attempt's processes once no rank has given a sign for this long: the look
/// at `/proc` is not free, and only a hang needs it.
const QUIET: chrono::Duration = chrono::Duration::seconds(20);

/// Writes the record steps of one decision, in their order, in one transaction.
pub async fn apply<'a>(
    tx: &mut PgConnection,
    job: &JobRecord,
    attempt: Option<&AttemptRecord>,
    steps: impl Iterator<Item = &'a Step> + Clone,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    let not_before = steps.clone().find_map(|step| match step {
        Step::Requeue { not_before, .. } => *not_before,
        _ => None,
    });
    let mut freed = false;
    let mut ended = None;
    for step in steps {
        match (step, attempt) {
            (
                Step::MoveJob {
                    phase,
                    reason,
                    message,
                    at,
                },
                _,
            ) => {
                let change = Move {
                    to: *phase,
                    reason: reason.as_str(),
                    message,
                    not_before,
                };
                jobs::move_to(tx, job.id, &change, *at).await?;
                freed |= !phase.is_active();
            }
            (Step::AttemptRuns { at }, Some(attempt)) => {
                let words = "Every replica runs";
                attempts::move_to(tx, attempt.id, AttemptPhase::Running, "all_running", words, None, *at).await?;
            }
            (
                Step::MoveReplica {
                    key,
                    phase,
                    incarnation: _,
                    started_at,
                    exit,
                    ended_at,
                    message,
                },
                Some(attempt),
            ) => {
                let (reason, words) = replica_words(*phase, exit.as_ref(), message.as_deref());
                let change = attempts::ReplicaChange {
                    phase: Some(*phase),
                    reason: Some(reason.to_owned()),
                    message: Some(words),
                    identity: None,
                    started_at: *started_at,
                    exit: exit.clone(),
                    ended_at: *ended_at,
                };
                attempts::change_replica(tx, job.id, attempt.id, key, &change, now).await?;
            }
            (Step::StopAttempt { cause, message, at }, Some(attempt)) => {
                let cause = cause.as_str();
                attempts::move_to(tx, attempt.id, AttemptPhase::Stopping, cause, message, Some(cause), *at).await?;
            }
            (Step::EndAttempt(end), Some(attempt)) => {
                let checkpoint = last_checkpoint(tx, job, attempt).await?;
                let record = attempts::End {
                    outcome: end.outcome,
                    reason: end.reason.as_str(),
                    message: &end.message,
                    first_failure: end.first_failure.as_ref(),
                    code: end.code,
                    kept_step: checkpoint.map(|(step, _)| step),
                };
                attempts::end(tx, job.id, attempt.id, &record, end.at).await?;
                let kept_until = match end.outcome {
                    Outcome::Succeeded => Some(end.at),
                    _ => checkpoint.map(|(_, at)| at),
                };
                ended = Some((attempt.number, kept_until));
                freed = true;
            }
            (Step::SetCondition(condition), _) => {
                let condition = conditions::Condition {
                    kind: condition.kind.as_str().to_owned(),
                    status: condition.status,
                    severity: condition.severity,
                    reason: condition.reason.clone(),
                    message: condition.message.clone(),
                    evidence: json!({}),
                    since: now,
                };
                conditions::set(tx, Subject::Job(job.id), &condition, now).await?;
            }
            (Step::ClearCondition(kind), _) => conditions::clear(tx, Subject::Job(job.id), kind.as_str(), now).await?,
            (Step::MarkSeen { stale_since }, _) => jobs::mark_seen(tx, job.id, *stale_since).await?,
            (Step::HideJob, _) => jobs::hide(tx, job.id, now).await?,
            // Requeue came with the move; acts are not records; attempt steps without an attempt mean nothing.
            _ => {}
        }
    }
    // Only now is the running interval closed, so that it can be split.
    if let Some((number, kept_until)) = ended {
        usage::settle(tx, job.id, number, kept_until).await?;
    }
    if freed && let Some(cluster) = job.cluster {
        tasks::poke(tx, TaskKind::Queue, cluster.0, None, now).await?;
    }
    Ok(())
}

async fn last_checkpoint(
    tx: &mut PgConnection,
    job: &JobRecord,
    attempt: &AttemptRecord,
) -> Result<Option<(i64, DateTime<Utc>)>, DbError> {
    attempts::last_checkpoint(tx, job.id, attempt.number).await
}

/// After the commit: readers of the job's events and idle workers are woken. A loss costs them a second.
pub async fn announce(worker: &Worker, job: &JobRecord, steps: &[Step]) {
    if steps.iter().all(Step::is_act) {
        return;
    }
    let pool = worker.db.pool();
    if let Err(error) = notify::send(pool, notify::EVENTS, &job.id.0.to_string()).await {
        tracing::debug!(%error, "nobody was told of new events");
    }
    let moved = steps
        .iter()
        .any(|step| matches!(step, Step::MoveJob { .. } | Step::EndAttempt(_)));
    if moved && let Err(error) = notify::send(pool, notify::TASKS, "").await {
        tracing::debug!(%error, "nobody was told of due tasks");
    }
}

/// A replica's reason and words for where it is now.
fn replica_words(phase: ReplicaPhase, exit: Option<&Exit>, message: Option<&str>) -> (&'static str, String) {
    let reason = match (phase, exit) {
        (_, Some(exit)) if exit.oom => "out_of_memory",
        (_, Some(exit)) if exit.unknown => "exit_unknown",
        (ReplicaPhase::Stopped, _) => "stopped",
        (_, Some(exit)) if exit.signal.is_some() => "signal",
        (_, Some(_)) => "exit_code",
        (ReplicaPhase::Lost, None) => "replica_lost",
        (ReplicaPhase::Failed, None) => "start_failed",
        (ReplicaPhase::Running, None) => "running",
        (ReplicaPhase::Starting, None) => "starting",
        (phase, None) => phase.as_str(),
    };
    let words = match (message, exit, phase) {
        (Some(message), _, _) => message.to_owned(),
        (None, Some(exit), _) => trainyard_core::plan::exits::in_words(exit),
        (None, None, ReplicaPhase::Running) => "It runs".to_owned(),
        (None, None, ReplicaPhase::Starting) => "It is being started".to_owned(),
        (None, None, ReplicaPhase::Stopped) => "It was ended with its attempt".to_owned(),
        (None, None, phase) => format!("It is {phase}"),
    };
    (reason, words)
}

pub fn replica_facts(record: &ReplicaRecord) -> ReplicaFacts {
    let exit = record
        .ended_at
        .filter(|_| record.exit_code.is_some() || record.exit_signal.is_some() || record.exit_unknown)
        .map(|at| Exit {
            at,
            code: record.exit_code,
            signal: record.exit_signal,
            oom: record.oom,
            unknown: record.exit_unknown,
            stop_requested: record.phase == ReplicaPhase::Stopped,
        });
    ReplicaFacts {
        key: record.key.clone(),
        rank: record.rank,
        phase: record.phase,
        incarnation: Some(record.incarnation),
        started_at: record.started_at,
        ended_at: record.ended_at,
        message: (exit.is_none() && record.phase.is_final()).then(|| record.message.clone()),
        exit,
        last_output_at: record.last_output_at,
        step: record.step,
        step_at: record.step_at,
        evidence: None,
    }
}

/// The conditions that plans know; what others set is left alone.
pub fn known_conditions(stored: &[conditions::Condition]) -> Vec<attempt::Condition> {
    stored
        .iter()
        .filter_map(|condition| {
            Some(attempt::Condition {
                kind: condition.kind.parse().ok()?,
                status: condition.status,
                severity: condition.severity,
                reason: condition.reason.clone(),
                message: condition.message.clone(),
            })
        })
        .collect()
}

/// Whether a running attempt stands still, from what it printed and the steps that it reported.
pub async fn judge(
    worker: &Worker,
    job: &JobRecord,
    attempt: &AttemptRecord,
    watched: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<Option<hang::Judgement>, WorkError> {
    let (Some(running_at), Some(watched), Phase::Running) = (attempt.running_at, watched, job.phase) else {
        return Ok(None);
    };
    let mut steps = crate::db::steps::recent(&worker.db, job.id, job.document.retention, attempt.number).await?;
    let mut ranks: Vec<hang::RankSigns> = attempt
        .replicas
        .iter()
        .filter(|replica| replica.phase == ReplicaPhase::Running)
        .map(|replica| hang::RankSigns {
            key: replica.key.clone(),
            rank: replica.rank,
            started_at: replica.started_at.unwrap_or(running_at),
            last_output_at: replica.last_output_at,
            steps: steps.remove(&replica.key).unwrap_or_default(),
            cpu_milli: None,
            process_state: None,
        })
        .collect();
    if job.document.framework == Framework::Mpi {
        ranks = mpi_ranks(ranks, steps, running_at);
    }
    let newest = ranks
        .iter()
        .filter_map(|rank| rank.steps.last().map(|step| step.at).max(rank.last_output_at))
        .max();
    if now - newest.unwrap_or(running_at) >= QUIET {
        add_states(worker, attempt, &mut ranks).await;
    }
    Ok(Some(hang::judge(&ranks, running_at, watched.max(running_at), now)))
}

/// The ranks that mpirun started, as far as their tags were seen; else the launcher, which is all that is known then.
fn mpi_ranks(
    replicas: Vec<hang::RankSigns>,
    steps: BTreeMap<ReplicaKey, Vec<hang::StepAt>>,
    running_at: DateTime<Utc>,
) -> Vec<hang::RankSigns> {
    let (launcher, slots): (Vec<_>, Vec<_>) = replicas.into_iter().partition(|sign| sign.key.role == LAUNCHER);
    let placed = (0..).zip(slots).map(|(rank, sign)| hang::RankSigns { rank, ..sign });
    let others = steps.into_iter().filter(|(key, _)| key.role == RANK);
    let others = others.map(|(key, steps)| hang::RankSigns {
        rank: key.index,
        key,
        started_at: running_at,
        last_output_at: None,
        steps,
        cpu_milli: None,
        process_state: None,
    });
    let ranks: Vec<hang::RankSigns> = placed.chain(others).collect();
    let told = |sign: &hang::RankSigns| !sign.steps.is_empty() || sign.last_output_at.is_some();
    if ranks.iter().any(told) { ranks } else { launcher }
}

/// What the runtime can tell of processes that are quiet. Evidence only: a judgement without it is better than none.
async fn add_states(worker: &Worker, attempt: &AttemptRecord, ranks: &mut [hang::RankSigns]) {
    let Some(runtime) = worker.runtime(attempt.cluster) else {
        return;
    };
    let usage = match runtime.usage(attempt.id).await {
        Ok(usage) => usage,
        Err(error) => return tracing::debug!(%error, "the states of quiet processes can't be told"),
    };
    for (key, usage) in usage {
        if let Some(rank) = ranks.iter_mut().find(|rank| rank.key == key) {
            rank.process_state = usage.state;
        }
    }
}

pub fn signal_number(signal: CheckpointSignal) -> i32 {
    match signal {
        CheckpointSignal::Usr1 => nix::libc::SIGUSR1,
        CheckpointSignal::Usr2 => nix::libc::SIGUSR2,
        CheckpointSignal::Hup => nix::libc::SIGHUP,
        CheckpointSignal::Int => nix::libc::SIGINT,
    }
}
