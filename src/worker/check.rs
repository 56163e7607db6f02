//! Answers checks: questions of people to a cluster, which only a worker there can put to it.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use trainyard_core::model::{AttemptId, CheckId, ClusterId};

use super::{WorkError, Worker};
use crate::{
    db::{
        DbError, attempts,
        checks::{self, Place},
        notify,
        tasks::{self, Finish, Lease, TaskKind},
    },
    runtimes::Runtime,
};

pub async fn look(worker: &Worker, lease: &Lease) -> Result<(), WorkError> {
    let id = CheckId(lease.subject);
    let check = match checks::get(&worker.db, None, id).await {
        Err(DbError::NotFound) => return finish(worker, lease, None).await,
        other => other?,
    };
    let (true, Some(cluster)) = (check.phase == "waiting", check.cluster) else {
        return finish(worker, lease, None).await;
    };
    let answer = match worker.runtime(cluster) {
        Some(runtime) => ask(worker, cluster, runtime.as_ref()).await?,
        None => match checks::place(&worker.db, cluster).await? {
            Place::Machine(machine) if machine != worker.machine_id => {
                return hand_over(worker, lease, &machine).await;
            }
            Place::Machine(_) | Place::Nowhere => Err("no worker can look at this cluster".to_owned()),
            Place::Gone => Err("its machine is gone".to_owned()),
        },
    };
    finish(worker, lease, Some((id, answer))).await
}

/// What the runtime says, and how that compares with the records.
async fn ask(worker: &Worker, cluster: ClusterId, runtime: &dyn Runtime) -> Result<Result<Value, String>, WorkError> {
    let (there, cluster_itself) = match (runtime.attempts().await, runtime.look().await) {
        (Ok(there), Ok(look)) => (there, look),
        (Err(error), _) | (_, Err(error)) => return Ok(Err(error.to_string())),
    };
    let open: BTreeSet<AttemptId> = (attempts::open_on(&worker.db, cluster).await?.into_iter())
        .map(|(attempt, _)| attempt)
        .collect();
    let recorded: BTreeSet<AttemptId> = attempts::recorded_among(&worker.db, &there)
        .await?
        .into_iter()
        .collect();
    let there: BTreeSet<AttemptId> = there.into_iter().collect();
    Ok(Ok(json!({
        "looked_at": worker.clock.now(),
        "worker": { "id": worker.id, "machine": worker.machine_id, "version": env!("CARGO_PKG_VERSION") },
        "attempts": {
            "live": there.intersection(&open).count(),
            "not_started": open.difference(&there).count(),
            "over": recorded.difference(&open).count(),
            // Nobody's, so they can be named to whoever asks.
            "unrecorded": there.difference(&recorded).map(AttemptId::to_string).collect::<Vec<_>>(),
        },
        "cluster": cluster_itself,
    })))
}

async fn finish(
    worker: &Worker,
    lease: &Lease,
    answer: Option<(CheckId, Result<Value, String>)>,
) -> Result<(), WorkError> {
    let now = worker.clock.now();
    let mut tx = worker.db.begin().await?;
    tasks::check(&mut tx, lease, now).await?;
    if let Some((id, answer)) = answer {
        checks::answer(&mut tx, id, &answer, now).await?;
    }
    tasks::finish(&mut tx, lease, &Finish::Done, now).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

async fn hand_over(worker: &Worker, lease: &Lease, machine: &str) -> Result<(), WorkError> {
    let now = worker.clock.now();
    let mut tx = worker.db.begin().await?;
    tasks::poke(&mut tx, TaskKind::Check, lease.subject, Some(machine), now).await?;
    tasks::finish(&mut tx, lease, &Finish::Done, now).await?;
    tx.commit().await.map_err(DbError::from)?;
    Ok(notify::send(worker.db.pool(), notify::TASKS, machine).await?)
}
