//! Loops that make the world match the records: claim, load, observe, plan, act, apply.
//!
//! Short work is a task ([`crate::db::tasks`]): claimed, looked at once, finished with the time of the next look. Long work
//! is a holding ([`crate::db::holdings`]): this machine's processes, the feed's sequencer. Nothing here decides: that is
//! `trainyard_core::plan`. Nothing here is told what changed: a poke only says where to look, so a lost wake-up, a
//! restart and a second worker all take the same path.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use rand::RngExt;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use trainyard_core::model::{ClusterId, WorkerId};
use uuid::Uuid;

use crate::{
    clock::Clock,
    config::Keep,
    db::{
        Db, DbError, holdings,
        listen::{Listener, Wake},
        notify,
        tasks::{self, Finish, Lease, TaskKind},
        workers,
    },
    keys::KeyRing,
    runtimes::{Runtime, RuntimeError},
};

pub mod about;
pub mod check;
pub mod hold;
pub mod ingest;
pub mod job;
pub mod launch;
pub mod local;
pub mod node;
pub mod place;
pub mod post_mortem;
pub mod queue;
pub mod record;
pub mod seal;
pub mod sequencer;
pub mod starts;
pub mod upkeep;

/// How long a claim lasts; slow work extends it.
const LEASE: Duration = Duration::from_secs(30);
/// Without any wake-up, due tasks are looked for this often.
const LOOK: Duration = Duration::from_secs(1);
/// Tasks under way at once in one process.
const SLOTS: usize = 16;
/// Facts older than this are stale: three missed looks of a cluster's holder.
pub const STALE_AFTER: chrono::Duration = chrono::Duration::seconds(20);

/// What every loop of one worker process shares.
pub struct Worker {
    pub db: Db,
    pub clock: Arc<dyn Clock>,
    pub id: WorkerId,
    pub machine_id: String,
    pub listener: Listener,
    pub keys: Arc<dyn Fn() -> Arc<KeyRing> + Send + Sync>,
    /// Where processes of jobs reach the API. `None`: not known, and so they get no token either.
    pub jobs_url: Option<String>,
    /// The runtimes that this process can act through, by cluster.
    pub runtimes: BTreeMap<ClusterId, Arc<dyn Runtime>>,
    /// How long what is over is kept.
    pub keep: Keep,
    pub starts: starts::Starts,
}

/// Why a look did not end with an answer. All of these are passing: the task is tried again.
#[derive(Debug, thiserror::Error)]
pub enum WorkError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Logs(#[from] crate::logs::LogsError),
    #[error("a secret can't be read: {0}")]
    Keys(#[from] crate::keys::KeyError),
}

impl Worker {
    /// The time, for loops that take it as a function.
    pub fn now(&self) -> ingest::Now {
        let clock = self.clock.clone();
        Arc::new(move || clock.now())
    }

    /// A runtime that acts for this cluster from here, if there is one.
    pub fn runtime(&self, cluster: ClusterId) -> Option<&Arc<dyn Runtime>> {
        self.runtimes.get(&cluster)
    }

    /// Works until told to stop, then lets what is under way end.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        tokio::join!(
            self.clone().take_tasks(stop.clone()),
            self.clone().tell_that_we_live(stop.clone()),
            self.clone().sequence_feed(stop.clone()),
        );
        if let Err(error) = workers::leave(&self.db, self.id).await {
            tracing::warn!(%error, "could not sign off; leases will run out by themselves");
        }
    }

    /// Claims and performs everything that is due now; answers how much that was.
    pub async fn perform_due(self: &Arc<Self>) -> Result<usize, DbError> {
        let mut done = 0;
        loop {
            let leases = self.claim(SLOTS).await?;
            if leases.is_empty() {
                return Ok(done);
            }
            done += leases.len();
            futures::future::join_all(leases.into_iter().map(|lease| self.perform(lease))).await;
        }
    }

    async fn claim(&self, slots: usize) -> Result<Vec<Lease>, DbError> {
        let machines = [self.machine_id.clone()];
        tasks::claim(
            &self.db,
            self.id,
            &machines,
            slots as i64,
            LEASE,
            self.clock.now(),
            Uuid::new_v4(),
        )
        .await
    }

    async fn take_tasks(self: Arc<Self>, stop: CancellationToken) {
        let mut wakes = self.listener.subscribe();
        let mut running = FuturesUnordered::new();
        loop {
            let free = SLOTS - running.len();
            let mut more = false;
            if free > 0 && !stop.is_cancelled() {
                match self.claim(free).await {
                    Ok(leases) => {
                        more = leases.len() == free;
                        for lease in leases {
                            let worker = self.clone();
                            running.push(tokio::spawn(async move { worker.perform(lease).await }));
                        }
                    }
                    Err(error) => tracing::warn!(error = &error as &dyn std::error::Error, "could not claim tasks"),
                }
            }
            if stop.is_cancelled() && running.is_empty() {
                return;
            }
            if more && running.len() < SLOTS {
                continue;
            }
            // Spread the looks of several workers, so that they don't all ask in the same instant.
            let pause = LOOK.mul_f64(rand::rng().random_range(0.8..1.2));
            tokio::select! {
                _ = running.next(), if !running.is_empty() => {}
                () = woken(&mut wakes), if free > 0 && !stop.is_cancelled() => {}
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled(), if !stop.is_cancelled() => {}
            }
        }
    }

    /// Performs one claimed task. A fault is written down and tried again later; it never ends the loop.
    async fn perform(self: &Arc<Self>, lease: Lease) {
        let look = std::panic::AssertUnwindSafe(self.look(&lease)).catch_unwind();
        let outcome = tokio::select! {
            outcome = look => outcome,
            lost = self.keep(&lease) => {
                tracing::warn!(kind = lease.kind.as_str(), subject = %lease.subject, error = %lost, "gave up a lease");
                return;
            }
        };
        let error = match outcome {
            Ok(Ok(())) => return,
            // Two that were in each other's way: the other one is through by now, and nothing is wrong.
            Ok(Err(WorkError::Db(error))) if error.is_collision() => {
                tracing::debug!(kind = lease.kind.as_str(), subject = %lease.subject, %error, "a look is repeated");
                return self.end(&lease, Finish::At(self.clock.now())).await;
            }
            Ok(Err(WorkError::Db(DbError::Fenced | DbError::Stale))) => "the record changed during the look".to_owned(),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the look panicked".to_owned(),
        };
        tracing::warn!(kind = lease.kind.as_str(), subject = %lease.subject, error, "a look failed; it is tried again");
        self.end(&lease, Finish::Retry(error)).await;
    }

    async fn end(&self, lease: &Lease, how: Finish) {
        let finished = async {
            let mut tx = self.db.begin().await?;
            tasks::finish(&mut tx, lease, &how, self.clock.now()).await?;
            tx.commit().await.map_err(DbError::from)
        };
        if let Err(error) = finished.await {
            tracing::debug!(%error, "a look's end could not be written; the lease runs out by itself");
        }
    }

    /// Looks at the task's subject. The look itself finishes the task, in the transaction of its last write.
    async fn look(self: &Arc<Self>, lease: &Lease) -> Result<(), WorkError> {
        match lease.kind {
            TaskKind::Job => job::look(self, lease).await,
            TaskKind::Queue => queue::look(self, lease).await,
            TaskKind::Place => place::look(self, lease).await,
            TaskKind::Upkeep => upkeep::look(self, lease).await,
            TaskKind::Check => check::look(self, lease).await,
        }
    }

    /// Extends a lease until the work is over. Returns only when that fails.
    async fn keep(&self, lease: &Lease) -> DbError {
        let mut lease = lease.clone();
        loop {
            tokio::time::sleep(LEASE / 3).await;
            match tasks::extend(&self.db, &mut lease, LEASE, self.clock.now()).await {
                Ok(()) => {}
                Err(error) if error.is_passing() && self.clock.now() < lease.until => {}
                Err(error) => return error,
            }
        }
    }

    /// Gives events their places in the feed, whenever no other worker does.
    async fn sequence_feed(self: Arc<Self>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            if let Ok(installation) = crate::db::installation::read(&self.db).await {
                hold::held(&self, holdings::SEQUENCER, installation.id, &stop, |holding, over| {
                    let (db, now, wakes) = (self.db.clone(), self.now(), self.listener.subscribe());
                    vec![Box::pin(async move {
                        if let Err(error) = sequencer::run(db, holding, now, wakes, over).await {
                            tracing::debug!(%error, "the feed's sequencer ended");
                        }
                    })]
                })
                .await;
            }
            tokio::select! {
                () = tokio::time::sleep(hold::RENEW) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    /// The installation's one task of upkeep, which from then on repeats itself.
    pub async fn ask_for_upkeep(&self) -> Result<(), DbError> {
        let installation = crate::db::installation::read(&self.db).await?;
        let mut tx = self.db.begin().await?;
        tasks::poke(&mut tx, TaskKind::Upkeep, installation.id, None, self.clock.now()).await?;
        Ok(tx.commit().await?)
    }

    async fn tell_that_we_live(self: Arc<Self>, stop: CancellationToken) {
        let mut asked_for_upkeep = false;
        loop {
            let now = self.clock.now();
            if !asked_for_upkeep {
                asked_for_upkeep = self.ask_for_upkeep().await.is_ok();
            }
            if let Err(error) = workers::beat(&self.db, self.id, &self.machine_id, now).await {
                tracing::debug!(%error, "no heartbeat");
            }
            if let Err(error) = crate::db::clusters::mark_stale(&self.db, STALE_AFTER, now).await {
                tracing::debug!(%error, "could not mark what is stale");
            }
            tokio::select! {
                () = tokio::time::sleep(Duration::from_secs(5)) => {}
                () = stop.cancelled() => return,
            }
        }
    }
}

/// Returns when tasks may be due. Cancel-safe; a wake-up that is lost costs a second, not a task.
async fn woken(wakes: &mut broadcast::Receiver<Wake>) {
    loop {
        match wakes.recv().await {
            Ok(Wake::Notified { channel, .. }) if channel != notify::TASKS => {}
            // The listener is gone only while the program stops.
            Err(broadcast::error::RecvError::Closed) => return std::future::pending().await,
            _ => return,
        }
    }
}
