//! Long-lived work, held by one worker at a time: a cluster's watch, a machine's processes, the feed's sequencer.
//! The fence grows with every change of hands; a write that names an old one is refused.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::WorkerId;
use uuid::Uuid;

use super::{Db, DbError, fences, in_time};

/// The right to do one piece of long-lived work.
#[derive(Debug, Clone, PartialEq)]
pub struct Holding {
    pub kind: &'static str,
    pub subject: Uuid,
    pub shard: i32,
    pub worker: WorkerId,
    pub fence: i64,
}

/// The runtime side of a local cluster: observing, starting, ingesting logs. Subject: the cluster.
pub const CLUSTER: &str = "cluster";
/// Giving events their places in the feed. Subject: the installation.
pub const SEQUENCER: &str = "sequencer";

/// Takes the work if nobody has it, or keeps it if we do. `None`: another worker has it.
pub async fn acquire(
    db: &Db,
    kind: &'static str,
    subject: Uuid,
    shard: i32,
    worker: WorkerId,
    term: Duration,
    now: DateTime<Utc>,
) -> Result<Option<Holding>, DbError> {
    let mut connection = db.pool.acquire().await?;
    let fence = in_time(
        sqlx::query_scalar!(
            r#"/* holdings::acquire */
            insert into holdings (kind, subject_id, shard, worker_id, fence, acquired_at, expires_at)
            values ($1, $2, $3, $4, 1, $5, $6)
            on conflict (kind, subject_id, shard) do update set
                worker_id = $4,
                expires_at = $6,
                fence = holdings.fence + case when holdings.worker_id = $4 and holdings.expires_at > $5 then 0 else 1 end,
                acquired_at = case when holdings.worker_id = $4 then holdings.acquired_at else $5 end
            where holdings.worker_id = $4 or holdings.expires_at <= $5
            returning fence"#,
            kind,
            subject,
            shard,
            worker.0,
            now,
            now + term
        )
        .fetch_optional(&mut *connection),
    )
    .await
    .inspect_err(|_| connection.close_on_drop())?;
    Ok(fence.map(|fence| Holding {
        kind,
        subject,
        shard,
        worker,
        fence,
    }))
}

/// Proves in the caller's transaction that the work is still ours; it stays so until the commit.
pub async fn check(tx: &mut PgConnection, holding: &Holding, now: DateTime<Utc>) -> Result<(), DbError> {
    let held = sqlx::query_scalar!(
        r#"/* holdings::check */
        select 1 as "one!" from holdings
        where kind = $1 and subject_id = $2 and shard = $3 and worker_id = $4 and fence = $5 and expires_at > $6
        for share"#,
        holding.kind,
        holding.subject,
        holding.shard,
        holding.worker.0,
        holding.fence,
        now
    )
    .fetch_optional(tx)
    .await?;
    match held {
        None if !fences::are_skipped() => Err(DbError::Fenced),
        _ => Ok(()),
    }
}

/// Gives the work up, so that another worker need not wait for the end of the term.
pub async fn release(db: &Db, holding: &Holding, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* holdings::release */
        update holdings set expires_at = $6
        where kind = $1 and subject_id = $2 and shard = $3 and worker_id = $4 and fence = $5"#,
        holding.kind,
        holding.subject,
        holding.shard,
        holding.worker.0,
        holding.fence,
        now
    )
    .execute(&db.pool)
    .await?;
    Ok(())
}

/// Since when somebody holds the work without a break; `None`: nobody does now.
pub async fn since(db: &Db, kind: &str, subject: Uuid, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* holdings::since */
        select min(acquired_at) from holdings where kind = $1 and subject_id = $2 and expires_at > $3"#,
        kind,
        subject,
        now
    )
    .fetch_one(&db.pool)
    .await?)
}
