//! Doing long-lived work while a holding lasts: taken when nobody has it, renewed, and let go when it can't be.

use std::{future::Future, pin::Pin, time::Duration};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Worker;
use crate::db::holdings::{self, Holding};

/// How long a holding lasts without renewal, and how often it is renewed.
pub const TERM: Duration = Duration::from_secs(15);
pub const RENEW: Duration = Duration::from_secs(4);

pub type Loop = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Takes the work if nobody has it and runs its loops until it is lost or `stop` comes. Returns at once if another
/// worker has it. The loops end by their token; each of their writes proves the fence by itself.
pub async fn held(
    worker: &Worker,
    kind: &'static str,
    subject: Uuid,
    stop: &CancellationToken,
    loops: impl FnOnce(Holding, CancellationToken) -> Vec<Loop>,
) {
    let acquire = || holdings::acquire(&worker.db, kind, subject, 0, worker.id, TERM, worker.clock.now());
    let holding = match acquire().await {
        Ok(Some(holding)) => holding,
        Ok(None) => return,
        Err(error) => return tracing::debug!(%error, kind, "could not take hold"),
    };
    tracing::info!(kind, fence = holding.fence, "holding");
    let over = stop.child_token();
    let mut running = JoinSet::new();
    for one in loops(holding.clone(), over.clone()) {
        running.spawn(one);
    }
    let mut until = worker.clock.now() + TERM;
    loop {
        tokio::select! {
            () = tokio::time::sleep(RENEW) => {}
            () = stop.cancelled() => break,
            // A loop ends by itself when it finds that the fence is not ours any more.
            _ = running.join_next(), if !running.is_empty() => break,
        }
        match acquire().await {
            Ok(Some(same)) if same.fence == holding.fence => until = worker.clock.now() + TERM,
            Ok(_) => break,
            // The database is away: the term runs on, and writes fail by themselves when it is over.
            Err(error) if worker.clock.now() < until => tracing::debug!(%error, kind, "could not renew"),
            Err(_) => break,
        }
    }
    over.cancel();
    while running.join_next().await.is_some() {}
    if let Err(error) = holdings::release(&worker.db, &holding, worker.clock.now()).await {
        tracing::debug!(%error, kind, "the holding runs out by itself");
    }
    tracing::info!(kind, "no longer holding");
}
