//! What keeps an installation healthy over months: room for what comes, and an end for what is old. One task of the
//! installation, done by whichever worker claims it.
//!
//! Everything here is asked of the records by age, removes a bounded batch, and may be done twice or broken off
//! anywhere. What was removed by retention is told where people look for it: a log stream's row stays and says when its
//! output went, and the readers of a feed whose place is gone are told to begin anew.

use chrono::{DateTime, Duration, Utc};
use trainyard_core::model::Retention;

use super::{WorkError, Worker};
use crate::{
    config::Keep,
    db::{
        Db, DbError, checks, installation,
        logs::keep,
        partitions, sessions,
        tasks::{self, Finish, Lease},
        upkeep::{self, BATCH},
    },
};

/// Between two rounds, when nothing is left over.
const EVERY: Duration = Duration::minutes(10);
/// By then every attempt that was given the old value is in the records.
const REPLACED: Duration = Duration::minutes(1);
/// Attempts whose logs one round removes.
const ATTEMPTS: i64 = 200;
/// Longer than a key holds, so that no clock's error can make a repeated request a new one.
const KEYS: Duration = Duration::hours(25);
/// A worker that gave no sign for so long is gone.
const SILENT: Duration = Duration::hours(1);
/// A node's points, which come every few seconds.
const NODE_METRICS: Duration = Duration::days(30);
/// Somebody who asked a cluster does not look for the answer any more.
const UNANSWERED: Duration = Duration::hours(1);
const CHECKS: Duration = Duration::days(7);
const FOLLOWS: Duration = Duration::hours(1);

/// From the one that goes first to the one that goes last when room is short.
const CLASSES: [Retention; 3] = [Retention::Short, Retention::Standard, Retention::Long];

pub async fn look(worker: &Worker, lease: &Lease) -> Result<(), WorkError> {
    let now = worker.clock.now();
    partitions::ensure(&worker.db, now).await?;
    let restored = installation::read(&worker.db).await?.restored_at.is_some();
    // What a person has not confirmed may be all that is left of something: nothing of it is removed.
    let more = !restored && tidy(&worker.db, &worker.keep, now).await?;
    let next = if more { now } else { now + EVERY };
    let mut tx = worker.db.begin().await?;
    tasks::finish(&mut tx, lease, &Finish::At(next), now).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

/// One round. True: a batch was full, so there may be more.
async fn tidy(db: &Db, keep: &Keep, now: DateTime<Utc>) -> Result<bool, DbError> {
    sessions::sweep(db, now).await?;
    checks::give_up(db, now - UNANSWERED, now).await?;
    let removed = [
        upkeep::idempotency_keys(db, now - KEYS).await?,
        upkeep::replaced_secrets(db, now - REPLACED).await?,
        upkeep::silent_workers(db, now - SILENT).await?,
        upkeep::log_follows(db, now - FOLLOWS).await?,
        upkeep::answered_checks(db, now - CHECKS).await?,
        upkeep::node_metrics(db, now - NODE_METRICS).await?,
        upkeep::installation_events(db, now - keep.installation.as_chrono()).await?,
    ];
    let mut more = removed.contains(&BATCH);
    more |= expire_logs(db, keep, now).await?;
    more |= hold_logs_to_size(db, keep.logs.as_bytes(), now).await?;
    for class in CLASSES {
        told(partitions::drop_old(db, class.as_str(), now - keep.of(class)).await?);
    }
    told(partitions::drop_old(db, "installation", now - keep.installation.as_chrono()).await?);
    Ok(more)
}

async fn expire_logs(db: &Db, keep: &Keep, now: DateTime<Utc>) -> Result<bool, DbError> {
    let mut more = false;
    for class in CLASSES {
        let gone = keep::expire(db, class, now - keep.of(class), ATTEMPTS, now).await?;
        if !gone.is_empty() {
            tracing::info!(
                class = class.as_str(),
                attempts = gone.len(),
                "removed logs that were old enough"
            );
        }
        more |= gone.len() as i64 == ATTEMPTS;
    }
    Ok(more)
}

/// All logs together take at most `limit`: short ones go first, and of each class the oldest.
async fn hold_logs_to_size(db: &Db, limit: u64, now: DateTime<Utc>) -> Result<bool, DbError> {
    let mut sizes = Vec::new();
    for class in CLASSES {
        sizes.push((class, keep::stored_bytes(db, class).await?));
    }
    let total: u64 = sizes.iter().map(|(_, size)| size).sum();
    let mut over = total.saturating_sub(limit);
    for (class, size) in sizes {
        if over == 0 {
            break;
        }
        let gone = keep::hold_to_size(db, class, size.saturating_sub(over), ATTEMPTS, now).await?;
        let freed = gone.iter().map(|attempt| attempt.stored_bytes).sum();
        if !gone.is_empty() {
            let attempts = gone.len();
            tracing::warn!(
                class = class.as_str(),
                attempts,
                freed,
                limit,
                "removed logs for want of room"
            );
        }
        over = over.saturating_sub(freed);
        // Before another class loses anything, this one is asked again.
        if over > 0 && gone.len() as i64 == ATTEMPTS {
            return Ok(true);
        }
    }
    Ok(false)
}

fn told(dropped: Vec<String>) {
    for partition in dropped {
        tracing::info!(partition, "dropped a partition that held nothing to keep");
    }
}
