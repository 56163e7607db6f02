//! One look at one job: its wish, its attempt and what the runtime shows in, what `plan::attempt` says done.

use std::{sync::Arc, time::Duration};

use chrono::{DateTime, Utc};
use tokio_util::task::AbortOnDropHandle;
use trainyard_core::{
    model::{JobId, Observed, ObservedReplica, Outcome, Phase, ReplicaState},
    plan::{
        attempt::{self, AttemptEnd, AttemptFacts, JobFacts, Policy, Reason, ReplicaFacts, Sight, Step, StopCause},
        retry,
    },
};

use super::{
    WorkError, Worker, launch,
    post_mortem::{self, Right},
    record,
    starts::Start,
};
use crate::{
    db::{
        DbError, Tx,
        attempts::{self, AttemptRecord},
        conditions,
        events::Subject,
        gone, holdings, jobs,
        jobs::JobRecord,
        logs::{JobKey, write},
        tasks::{self, Finish, Lease, TaskKind},
    },
    runtimes::{Runtime, RuntimeError},
};

/// Acts show their effect in the next observation; this many rounds follow each other before the timer takes over.
const ROUNDS: usize = 3;
/// A start is waited for as long as most of them take; beyond, it goes on by itself, and is asked about so often.
const START_TAKES: Duration = Duration::from_secs(1);
const ASK_ABOUT_START: chrono::Duration = chrono::Duration::seconds(2);

pub async fn look(worker: &Worker, lease: &Lease) -> Result<(), WorkError> {
    let id = JobId(lease.subject);
    for round in 1.. {
        let job = match jobs::load(&worker.db, id).await {
            Err(DbError::NotFound) => return finish(worker, lease, Finish::Done).await,
            other => other?,
        };
        let attempt = attempts::newest(&worker.db, id).await?;
        if let Some(machine) = elsewhere(worker, attempt.as_ref()).await? {
            return hand_over(worker, lease, &machine).await;
        }
        let lost = attempt.as_ref().filter(|attempt| attempt.is_out_of_reach());
        if let Some(ended) = lost.filter(|attempt| has_to_be_remembered(attempt)) {
            post_mortem::freeze(worker, Right::Lease(lease), id, ended.number).await?;
        }
        let now = worker.clock.now();
        let decision = decide(worker, &job, attempt.as_ref(), now).await?;
        let acts: Vec<&Step> = decision.steps.iter().filter(|step| step.is_act()).collect();
        let ends = decision.steps.iter().any(|step| matches!(step, Step::EndAttempt(_)));
        // What ends out of reach has nobody else who would remember it: that is for the next round.
        let more = ends && lost.is_some();
        // Of one that had ended before its machine went, too, nobody will store what was not stored by then.
        let unstored = lost.filter(|lost| ends || (lost.ended_at.is_some() && lost.output_stored_at.is_none()));
        let last = (acts.is_empty() && !more) || round == ROUNDS;
        let next = match decision.look_again_at {
            Some(at) if at <= now => Finish::At(now + chrono::Duration::milliseconds(100)),
            Some(at) => Finish::At(at),
            None => Finish::Done,
        };

        let mut tx = worker.db.begin().await?;
        tasks::check(&mut tx, lease, now).await?;
        // Before its replicas, in the order in which a flush of its output takes them.
        write::lock_jobs(&mut tx, &[id]).await?;
        let records = decision.steps.iter().filter(|step| !step.is_act());
        record::apply(&mut tx, &job, attempt.as_ref(), records, now).await?;
        if let Some(lost) = unstored {
            give_up(&mut tx, &job, lost, now).await?;
        }
        if begins_to_wait(&job, &decision.steps) {
            tasks::free(&mut tx, lease).await?;
            ask_for_admission(&mut tx, &job, now).await?;
        }
        if acts.is_empty() && last {
            tasks::finish(&mut tx, lease, &next, now).await?;
        }
        tx.commit().await.map_err(DbError::from)?;
        record::announce(worker, &job, &decision.steps).await;

        if let Some(attempt) = &attempt {
            for step in acts {
                if act(worker, lease, &job, attempt, step).await? == Done::GoesOn {
                    return finish(worker, lease, Finish::At(now + ASK_ABOUT_START)).await;
                }
            }
        }
        if last {
            let soon = Finish::At(now + chrono::Duration::milliseconds(500));
            return if decision.steps.iter().any(Step::is_act) {
                finish(worker, lease, soon).await
            } else {
                Ok(())
            };
        }
    }
    Ok(())
}

/// It goes to the queue now, or is there and nobody has said yet why: the server that created it asks for its admission
/// as well, and may have died before.
fn begins_to_wait(job: &JobRecord, steps: &[Step]) -> bool {
    let moved = steps.iter().rev().find_map(|step| match step {
        Step::MoveJob { phase, .. } => Some(*phase),
        _ => None,
    });
    match moved {
        Some(phase) => phase == Phase::Queued,
        None => job.phase == Phase::Queued && job.unanswered,
    }
}

async fn ask_for_admission(tx: &mut Tx<'_>, job: &JobRecord, now: DateTime<Utc>) -> Result<(), DbError> {
    match job.cluster {
        Some(cluster) => tasks::poke(tx, TaskKind::Queue, cluster.0, None, now).await,
        None => tasks::poke_placing(tx, now).await,
    }
}

/// An attempt that ended badly and of which nothing is frozen yet.
fn has_to_be_remembered(attempt: &AttemptRecord) -> bool {
    !attempt.has_post_mortem && matches!(attempt.outcome, Some(Outcome::Failed | Outcome::Lost))
}

/// The output that nobody stored, and the cluster that the job was placed on, with the end of its attempt.
async fn give_up(
    tx: &mut Tx<'_>,
    job: &JobRecord,
    attempt: &AttemptRecord,
    now: DateTime<Utc>,
) -> Result<(), WorkError> {
    let key = JobKey::of_worker(job.id, job.document.retention);
    gone::give_up(tx, key, attempt.id, now).await?;
    Ok(tasks::poke_placing(tx, now).await?)
}

/// What is shown of an attempt whose machines are gone: all of it is lost.
fn lost(attempt: &AttemptRecord, now: DateTime<Utc>) -> Observed {
    let replicas = attempt.replicas.iter().map(|replica| ObservedReplica {
        key: replica.key.clone(),
        incarnation: replica.incarnation,
        identity: None,
        state: ReplicaState::Lost {
            message: replica.gone.clone().unwrap_or_default(),
        },
        started_at: replica.started_at,
    });
    Observed {
        at: now,
        replicas: replicas.collect(),
    }
}

async fn finish(worker: &Worker, lease: &Lease, how: Finish) -> Result<(), WorkError> {
    let mut tx = worker.db.begin().await?;
    tasks::finish(&mut tx, lease, &how, worker.clock.now()).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

/// A live attempt whose processes are on another machine than this one: that machine's id.
async fn elsewhere(worker: &Worker, attempt: Option<&AttemptRecord>) -> Result<Option<String>, WorkError> {
    let Some(attempt) = attempt.filter(|attempt| attempt.ended_at.is_none() && !attempt.is_out_of_reach()) else {
        return Ok(None);
    };
    if worker.runtime(attempt.cluster).is_some() {
        return Ok(None);
    }
    Ok(jobs::cluster_machine(&worker.db, attempt.cluster).await?)
}

async fn hand_over(worker: &Worker, lease: &Lease, machine: &str) -> Result<(), WorkError> {
    let now = worker.clock.now();
    let mut tx = worker.db.begin().await?;
    tasks::poke(&mut tx, TaskKind::Job, lease.subject, Some(machine), now).await?;
    tasks::finish(&mut tx, lease, &Finish::Done, now).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

async fn decide(
    worker: &Worker,
    job: &JobRecord,
    attempt: Option<&AttemptRecord>,
    now: DateTime<Utc>,
) -> Result<attempt::Decision, WorkError> {
    let live = attempt.filter(|attempt| attempt.ended_at.is_none());
    let facts = match attempt {
        Some(attempt) => Some(attempt_facts(worker, job, attempt).await?),
        None => None,
    };
    let observed = match live {
        // Whoever is there may be a machine that came back: what it still runs was said to be gone, and stays so.
        Some(attempt) if attempt.is_out_of_reach() => Some((lost(attempt, now), attempt)),
        Some(attempt) => match worker.runtime(attempt.cluster) {
            Some(runtime) => Some((runtime.observe(attempt.id).await?, attempt)),
            None => None,
        },
        None => None,
    };
    let watched = match live {
        Some(attempt) => holdings::since(&worker.db, holdings::CLUSTER, attempt.cluster.0, now).await?,
        None => None,
    };
    let sight = live.map(|attempt| match &observed {
        // Without a holder nobody reads the output, so silence means nothing yet.
        Some((observed, _)) => Sight::Seen {
            observed,
            since: watched.unwrap_or(now).max(attempt.admitted_at),
        },
        None => Sight::NotObservable {
            since: job.stale_since.unwrap_or(now),
        },
    });
    let conditions = record::known_conditions(&conditions::of(&worker.db, Subject::Job(job.id)).await?);
    let failures_before = match attempt {
        Some(attempt) => attempts::failures_before(&worker.db, job.id, attempt.number).await? as u32,
        None => 0,
    };
    let judgement = match live {
        Some(attempt) => record::judge(worker, job, attempt, watched, now).await?,
        None => None,
    };
    let job_facts = JobFacts {
        wanted: job.wanted,
        phase: job.phase,
        queued_at: job.queued_at,
        not_before: job.not_before,
        waited_before: chrono::Duration::seconds(job.queued_seconds),
        failures_before,
        stale_since: job.stale_since,
        hidden: job.deleted_at.is_some(),
        conditions: &conditions,
        policy: Policy::of(&job.document),
    };
    Ok(attempt::decide(
        &job_facts,
        facts.as_ref(),
        sight,
        judgement.as_ref(),
        now,
    ))
}

async fn attempt_facts(worker: &Worker, job: &JobRecord, attempt: &AttemptRecord) -> Result<AttemptFacts, WorkError> {
    let checkpoint = attempts::last_checkpoint(worker.db.pool(), job.id, attempt.number).await?;
    let replicas: Vec<ReplicaFacts> = attempt.replicas.iter().map(record::replica_facts).collect();
    let end = attempt.outcome.zip(attempt.ended_at).map(|(outcome, at)| AttemptEnd {
        outcome,
        reason: attempt.reason.parse().unwrap_or(match outcome {
            Outcome::Succeeded => Reason::AllSucceeded,
            Outcome::Cancelled => Reason::Cancelled,
            Outcome::Suspended => Reason::Suspended,
            Outcome::Lost => Reason::ReplicaLost,
            Outcome::Failed => Reason::ExitUnknown,
        }),
        message: attempt.message.clone(),
        at,
        first_failure: attempt.first_failure.clone(),
        code: attempt.code,
    });
    Ok(AttemptFacts {
        number: attempt.number as u32,
        phase: attempt.phase,
        admitted_at: attempt.admitted_at,
        running_at: attempt.running_at,
        stopping_at: attempt.stopping_at,
        stop_cause: attempt
            .stop_cause
            .as_deref()
            .and_then(|cause| cause.parse::<StopCause>().ok()),
        checkpoint_asked_at: attempt.checkpoint_asked_at,
        checkpoint_at: checkpoint.map(|(_, at)| at),
        stop_asked_at: attempt.stop_asked_at,
        end,
        replicas,
    })
}

/// How far an act came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    All,
    /// The rest is done beside the looks.
    GoesOn,
}

/// Does what a runtime does. Each of these may be repeated.
async fn act(
    worker: &Worker,
    lease: &Lease,
    job: &JobRecord,
    attempt: &AttemptRecord,
    step: &Step,
) -> Result<Done, WorkError> {
    let Some(runtime) = worker.runtime(attempt.cluster) else {
        return Ok(Done::All);
    };
    match step {
        Step::StartProcesses => return start(worker, lease, runtime, job, attempt).await,
        Step::SignalCheckpoint { signal } => {
            runtime.signal(attempt.id, record::signal_number(*signal)).await?;
            asked(worker, lease, attempt, true, false).await?;
        }
        Step::StopProcesses => {
            drop(worker.starts.take(attempt.id));
            runtime.stop(attempt.id).await?;
            asked(worker, lease, attempt, false, true).await?;
        }
        _ => {}
    }
    Ok(Done::All)
}

async fn asked(
    worker: &Worker,
    lease: &Lease,
    attempt: &AttemptRecord,
    checkpoint: bool,
    stop: bool,
) -> Result<(), WorkError> {
    let mut tx = worker.db.begin().await?;
    tasks::check(&mut tx, lease, worker.clock.now()).await?;
    attempts::asked(&mut tx, attempt.id, checkpoint, stop, worker.clock.now()).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

/// Starts what is not there. What the runtime refuses for good, and a secret that went away, end the attempt with
/// words instead of being tried for ever.
async fn start(
    worker: &Worker,
    lease: &Lease,
    runtime: &Arc<dyn Runtime>,
    job: &JobRecord,
    attempt: &AttemptRecord,
) -> Result<Done, WorkError> {
    let (begun, patience) = match worker.starts.take(attempt.id) {
        Some(start) => (Ok(start), Duration::ZERO),
        None if !worker.starts.has_room() => return Ok(Done::GoesOn),
        None => (begin(worker, runtime.clone(), job, attempt).await?, START_TAKES),
    };
    let refused = match begun {
        Err(message) => message,
        Ok(mut start) => match tokio::time::timeout(patience, &mut start).await {
            Err(_) => {
                worker.starts.keep(attempt.id, start);
                return Ok(Done::GoesOn);
            }
            Ok(Ok(Err(RuntimeError::Refused { message, .. }))) => message,
            Ok(Ok(other)) => return Ok(other.map(|()| Done::All)?),
            Ok(Err(panicked)) => Err(RuntimeError::Retry(format!("the start was broken off: {panicked}")))?,
        },
    };
    let now = worker.clock.now();
    let mut tx = worker.db.begin().await?;
    tasks::check(&mut tx, lease, now).await?;
    write::lock_jobs(&mut tx, &[job.id]).await?;
    for replica in attempt.replicas.iter().filter(|replica| !replica.phase.is_final()) {
        let change = attempts::ReplicaChange {
            phase: Some(trainyard_core::model::ReplicaPhase::Failed),
            reason: Some(Reason::StartFailed.as_str().to_owned()),
            message: Some(refused.clone()),
            ended_at: Some(now),
            ..Default::default()
        };
        attempts::change_replica(&mut tx, job.id, attempt.id, &replica.key, &change, now).await?;
    }
    tx.commit().await.map_err(DbError::from)?;
    Ok(Done::All)
}

/// A start of its own, or words for the person where it can't be made.
async fn begin(
    worker: &Worker,
    runtime: Arc<dyn Runtime>,
    job: &JobRecord,
    attempt: &AttemptRecord,
) -> Result<Result<Start, String>, WorkError> {
    let launch = launch::assemble(worker, job, attempt).await?;
    Ok(launch.map(|launch| AbortOnDropHandle::new(tokio::spawn(async move { runtime.start(&launch).await }))))
}

/// What the restart policy said after an attempt that ended badly, for the post-mortem.
pub fn verdict(job: &JobRecord, attempt: &AttemptRecord, failures_before: u32) -> Option<retry::Verdict> {
    let ended_at = attempt.ended_at?;
    let reason: Reason = attempt.reason.parse().ok()?;
    matches!(attempt.outcome, Some(Outcome::Failed | Outcome::Lost))
        .then(|| retry::after_failure(&job.document.restart, failures_before, reason, attempt.code, ended_at))
}
