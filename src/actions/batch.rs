//! Creates, coalesced. Whatever waits is written with one statement, without a timer: alone a create waits for nothing,
//! and under load hundreds share one round trip and one commit. While one batch is being committed, another is written.
//!
//! One bad row can't fail its neighbours: everything that can be checked was checked before, and where the database
//! still refuses a batch, its jobs are written one by one, so that only the guilty one is refused.

use std::{collections::HashSet, sync::Arc};

use chrono::{DateTime, SubsecRound, Utc};
use tokio::sync::{Semaphore, mpsc, oneshot};
use trainyard_core::model::{JobId, UserId};
use uuid::Uuid;

use super::{Refusal, wake::Waker};
use crate::{
    clock::Clock,
    db::{
        Db, DbError,
        jobs_create::{self, Key, NewJob, Replay},
        tasks::TaskKind,
    },
};

/// Batches that are with the database at once.
const LANES: usize = 2;
/// A batch goes beside another one from this size on; a smaller one waits for company, or until nothing is with the
/// database. Each batch costs Postgres as much as five of its jobs, before the first one.
const WORTH: usize = 8;
/// One statement writes at most this many.
const BATCH: usize = 256;
/// This many may wait; the next one is told to come back later.
const WAITING: usize = 2048;

#[derive(Clone)]
pub struct Creator {
    queue: mpsc::Sender<Pending>,
}

struct Pending {
    job: NewJob,
    installation: Uuid,
    reply: oneshot::Sender<Result<Created, Refusal>>,
}

/// A job that is written, now or by an earlier request with the same key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Created {
    pub job: JobId,
    pub at: DateTime<Utc>,
    pub again: bool,
}

impl Creator {
    pub fn start(db: Db, clock: Arc<dyn Clock>, wake: Waker) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(write(db, clock, wake, waiting));
        Self { queue }
    }

    /// Writes a job with whatever others wait, and answers when it is committed, with the time that it was given.
    pub async fn create(&self, installation: Uuid, job: NewJob) -> Result<Created, Refusal> {
        let (reply, answer) = oneshot::channel();
        let pending = Pending {
            job,
            installation,
            reply,
        };
        self.queue.try_send(pending).map_err(|_| Refusal::Overloaded)?;
        // The task answers everything that it takes; it is gone only when the program stops.
        answer.await.map_err(|_| Refusal::Overloaded)?
    }
}

async fn write(db: Db, clock: Arc<dyn Clock>, wake: Waker, mut waiting: mpsc::Receiver<Pending>) {
    let lanes = Arc::new(Semaphore::new(LANES));
    let mut batch: Vec<Pending> = Vec::with_capacity(BATCH);
    // What goes together is decided when a lane is free, and not before.
    while let Ok(lane) = lanes.clone().acquire_owned().await {
        if batch.is_empty() && waiting.recv_many(&mut batch, BATCH).await == 0 {
            return;
        }
        while batch.len() < WORTH {
            tokio::select! {
                biased;
                more = waiting.recv_many(&mut batch, BATCH) => if more == 0 { break },
                _ = lanes.acquire_many(LANES as u32 - 1) => break,
            }
        }
        // Whose client has gone, is not worth writing.
        batch.retain(|pending| !pending.reply.is_closed());
        let later = apart(&mut batch);
        if !batch.is_empty() {
            let (db, clock, wake) = (db.clone(), clock.clone(), wake.clone());
            let batch = std::mem::take(&mut batch);
            tokio::spawn(async move {
                write_batch(&db, clock.as_ref(), &wake, batch).await;
                drop(lane);
            });
        }
        batch = later;
    }
}

/// Takes out what shares an idempotency key with an earlier one of the batch: it is written after that.
fn apart(batch: &mut Vec<Pending>) -> Vec<Pending> {
    let mut seen: HashSet<(UserId, Key)> = HashSet::new();
    let mut now = Vec::with_capacity(batch.len());
    let mut later = Vec::new();
    for pending in batch.drain(..) {
        let key = pending.job.key.as_ref();
        // Another body under the same key meets the same row, so the digest does not count.
        let key = key.map(|key| {
            (
                pending.job.owner,
                Key {
                    digest: [0; 32],
                    ..key.clone()
                },
            )
        });
        if key.is_none_or(|key| seen.insert(key)) {
            now.push(pending);
        } else {
            later.push(pending);
        }
    }
    *batch = now;
    later
}

async fn write_batch(db: &Db, clock: &dyn Clock, wake: &Waker, batch: Vec<Pending>) {
    // Postgres keeps microseconds; what is answered now must be what is read later.
    let now = clock.now().trunc_subsecs(6);
    let jobs: Vec<&NewJob> = batch.iter().map(|pending| &pending.job).collect();
    let mut written = jobs_create::insert(db, &jobs, now).await;
    if written.as_ref().is_err_and(DbError::is_collision) {
        written = jobs_create::insert(db, &jobs, now).await;
    }
    match written {
        Ok(written) => {
            for (pending, written) in batch.into_iter().zip(written) {
                answer(db, wake, pending, written, now).await;
            }
        }
        // The statement was undone whole. What any job would meet is answered to all; else each is tried alone.
        Err(error) if batch.len() > 1 && !error.is_passing() => {
            tracing::warn!(%error, jobs = batch.len(), "a batch of creates was refused; writing them one by one");
            for pending in batch {
                match jobs_create::insert(db, &[&pending.job], now).await {
                    Ok(written) => answer(db, wake, pending, written == [true], now).await,
                    Err(error) => drop(pending.reply.send(Err(error.into()))),
                }
            }
        }
        Err(error) => {
            for pending in batch {
                let _ = pending.reply.send(Err(error.again().into()));
            }
        }
    }
}

async fn answer(db: &Db, wake: &Waker, pending: Pending, written: bool, now: DateTime<Utc>) {
    let result = match &pending.job.key {
        _ if written => {
            wake.subject(pending.job.id.0);
            match pending.job.cluster {
                Some(cluster) => wake.look(TaskKind::Queue, cluster.0),
                None => wake.look(TaskKind::Place, pending.installation),
            }
            Ok(Created {
                job: pending.job.id,
                at: now,
                again: false,
            })
        }
        Some(key) => match jobs_create::replay(db, pending.job.owner, key).await {
            Ok(Replay::Same { job, created_at }) => Ok(Created {
                job,
                at: created_at,
                again: true,
            }),
            Ok(Replay::Other) => Err(Refusal::KeyReused),
            Err(error) => Err(error.into()),
        },
        // Only a key keeps a row out.
        None => Err(Refusal::Overloaded),
    };
    let _ = pending.reply.send(result);
}
