//! The long-lived side of this machine as a cluster: one holding, and under it the loops that watch processes, store
//! their output, look at the machine, and clear away what is over.
//!
//! Everything here may be done again by another process at any moment: the runtime's truth is on disk, and each write
//! proves the fence.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use trainyard_core::model::{AttemptId, ClusterId};

use super::{
    WorkError, Worker,
    about::FromRecords,
    hold,
    ingest::{self, Ingest},
    node,
    post_mortem::{self, Right},
    seal::{self, SealRequest},
};
use crate::{
    db::{
        Db, DbError, attempts,
        holdings::{self, Holding},
        installation, jobs, notify,
        tasks::{self, TaskKind},
    },
    runtimes::{Runtime, local::LocalRuntime},
};

/// Requests to seal that may wait; ingest asks again when there is no room.
const SEALS_WAITING: usize = 256;
/// How often what is over is looked for.
const TEND: Duration = Duration::from_secs(1);
/// Processes of attempts that no record calls for are looked for this often.
const SWEEP: Duration = Duration::from_secs(30);
/// A post-mortem waits this long for the last output before it is written without it.
const PATIENCE: chrono::Duration = chrono::Duration::seconds(60);

/// This machine as a cluster.
pub struct Local {
    pub worker: Arc<Worker>,
    pub runtime: Arc<LocalRuntime>,
    pub cluster: ClusterId,
    /// Whose disk is watched.
    pub data: std::path::PathBuf,
}

impl Local {
    /// Holds the cluster whenever nobody else does, until told to stop. On restored records that nobody has confirmed, it
    /// looks at the machine and does nothing else: what runs here may be all that is left of what the records lost.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let observe_only = match installation::read(&self.worker.db).await {
                Ok(installation) => Some(installation.restored_at.is_some()),
                Err(error) => {
                    tracing::debug!(%error, "could not ask whether the records were restored");
                    None
                }
            };
            if let Some(observe_only) = observe_only {
                self.clone().hold(observe_only, &stop).await;
            }
            tokio::select! {
                () = tokio::time::sleep(hold::RENEW / 2) => {}
                () = stop.cancelled() => {}
            }
        }
    }

    async fn hold(self: Arc<Self>, observe_only: bool, stop: &CancellationToken) {
        hold::held(
            &self.worker,
            holdings::CLUSTER,
            self.cluster.0,
            stop,
            |holding, over| {
                if observe_only {
                    return vec![
                        Box::pin(node::look_often(self.clone(), holding, over.clone())),
                        Box::pin(self.clone().await_confirmation(over)),
                    ];
                }
                let (seals, asked) = tokio::sync::mpsc::channel(SEALS_WAITING);
                vec![
                    Box::pin(self.clone().watch(over.clone())),
                    Box::pin(self.clone().tend(holding.clone(), over.clone())),
                    Box::pin(node::look_often(self.clone(), holding.clone(), over.clone())),
                    Box::pin(self.clone().ingest(holding.clone(), seals, over.clone())),
                    Box::pin(self.clone().seal(holding, asked, over)),
                ]
            },
        )
        .await;
    }

    /// Returns once a person has confirmed, which ends the holding, so that it is taken anew with all its loops.
    async fn await_confirmation(self: Arc<Self>, over: CancellationToken) {
        tracing::warn!(
            "these records were restored: only observing until a person confirms (trainyard restore --confirm)"
        );
        while over.run_until_cancelled(tokio::time::sleep(TEND)).await.is_some() {
            match installation::read(&self.worker.db).await {
                Ok(installation) if installation.restored_at.is_none() => return,
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "could not ask whether a person confirmed"),
            }
        }
    }

    /// Stores what replicas print.
    async fn ingest(self: Arc<Self>, holding: Holding, seals: mpsc::Sender<SealRequest>, over: CancellationToken) {
        let worker = &self.worker;
        let about = Arc::new(FromRecords(worker.clone()));
        let ingest = Ingest::new(
            worker.db.clone(),
            self.runtime.clone(),
            self.cluster,
            about,
            ingest::Settings::default(),
            seals,
        );
        if let Err(error) = ingest
            .run(holding, worker.now(), worker.listener.subscribe(), over)
            .await
        {
            tracing::warn!(%error, "storing output ended");
        }
    }

    /// Merges small rows of output.
    async fn seal(self: Arc<Self>, holding: Holding, asked: mpsc::Receiver<SealRequest>, over: CancellationToken) {
        let worker = &self.worker;
        if let Err(error) = seal::run(worker.db.clone(), holding, self.cluster, worker.now(), asked, over).await {
            tracing::warn!(%error, "sealing output ended");
        }
    }

    /// Turns what the runtime noticed into pokes. What is missed here is found by each job's own timer.
    async fn watch(self: Arc<Self>, over: CancellationToken) {
        loop {
            let changed = tokio::select! {
                changed = self.runtime.changed() => changed,
                () = over.cancelled() => return,
            };
            if let Err(error) = self.poke(&changed).await {
                tracing::debug!(%error, "could not poke jobs whose processes changed");
            }
            // What starts or ends together is told together.
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Pokes the jobs of these attempts; of all open ones if none is named.
    async fn poke(&self, changed: &[AttemptId]) -> Result<(), WorkError> {
        let worker = &self.worker;
        let named: BTreeSet<AttemptId> = changed.iter().copied().collect();
        let open = attempts::open_on(&worker.db, self.cluster).await?;
        let jobs: Vec<_> = open
            .iter()
            .filter(|(id, _)| named.is_empty() || named.contains(id))
            .map(|(_, job)| job.0)
            .collect();
        if jobs.is_empty() {
            return Ok(());
        }
        let mut tx = worker.db.begin().await?;
        tasks::poke_all(
            &mut tx,
            TaskKind::Job,
            &jobs,
            Some(&worker.machine_id),
            worker.clock.now(),
        )
        .await?;
        tx.commit().await.map_err(DbError::from)?;
        Ok(notify::send(worker.db.pool(), notify::TASKS, &worker.machine_id).await?)
    }

    /// Freezes what is to be remembered, then gives back what is over, and ends what nobody wants.
    async fn tend(self: Arc<Self>, holding: Holding, over: CancellationToken) {
        let mut until_sweep = Duration::ZERO;
        loop {
            if let Err(error) = self.tend_once(&holding).await {
                tracing::debug!(%error, "could not clear away ended attempts");
            }
            if until_sweep.is_zero() {
                until_sweep = SWEEP;
                if let Err(error) = sweep(&self.worker.db, self.runtime.as_ref()).await {
                    tracing::debug!(%error, "could not look for strays");
                }
            }
            until_sweep = until_sweep.saturating_sub(TEND);
            tokio::select! {
                () = tokio::time::sleep(TEND) => {}
                () = over.cancelled() => return,
            }
        }
    }

    async fn tend_once(&self, holding: &Holding) -> Result<(), WorkError> {
        let worker = &self.worker;
        let now = worker.clock.now();
        for (job, number) in attempts::without_post_mortem(&worker.db, self.cluster, now - PATIENCE, 100).await? {
            post_mortem::freeze(worker, Right::Holding(holding), job, number).await?;
        }
        for (attempt, job) in attempts::releasable(&worker.db, self.cluster, 100).await? {
            // One that can't be removed now must not keep the others.
            if let Err(error) = self.runtime.release(attempt).await {
                tracing::warn!(%attempt, %error, "what an attempt left could not be removed; it is tried again");
                continue;
            }
            let mut tx = worker.db.begin().await?;
            holdings::check(&mut tx, holding, worker.clock.now()).await?;
            attempts::released(&mut tx, attempt, worker.clock.now()).await?;
            // A job that is to be deleted was waiting for this.
            tasks::poke(
                &mut tx,
                TaskKind::Job,
                job.0,
                Some(&worker.machine_id),
                worker.clock.now(),
            )
            .await?;
            tx.commit().await.map_err(DbError::from)?;
        }
        for job in jobs::hidden_here(&worker.db, self.cluster, 100).await? {
            if let Err(error) = self.runtime.release_job(job).await {
                tracing::warn!(%job, %error, "a deleted job's volumes could not be removed; it is tried again");
                continue;
            }
            jobs::volumes_gone(&worker.db, job).await?;
        }
        Ok(())
    }
}

/// Ends processes of attempts that are over or that no record knows: a start that was decided before somebody else ended
/// the attempt, what ran on while its machine was taken for gone, or records that were restored from before it.
pub async fn sweep(db: &Db, runtime: &dyn Runtime) -> Result<(), WorkError> {
    let present = runtime.attempts().await?;
    let open: BTreeSet<AttemptId> = attempts::open_among(db, &present).await?.into_iter().collect();
    for attempt in present.into_iter().filter(|attempt| !open.contains(attempt)) {
        runtime.stop(attempt).await?;
    }
    Ok(())
}
