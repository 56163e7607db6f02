//! Who reads live. A followed job's output is flushed every 50 ms, so the record must say so, and stop saying so by
//! itself when its reader is killed.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use trainyard_core::model::{ClusterId, JobId};
use uuid::Uuid;

use crate::db::{Db, DbError, notify};

/// Says that these jobs are followed until then, and wakes whoever stores their output.
pub async fn follow(db: &Db, jobs: &[JobId], until: DateTime<Utc>) -> Result<(), DbError> {
    // Sorted, so that two servers that refresh the same jobs take the rows in one order.
    let mut ids: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
    ids.sort_unstable();
    let mut tx = db.begin().await?;
    sqlx::query!(
        r#"/* logs::follow */
        insert into log_follows (job_id, until_at) select id, $2 from unnest($1::uuid[]) as j (id)
        on conflict (job_id) do update set until_at = greatest(log_follows.until_at, excluded.until_at)"#,
        &ids,
        until
    )
    .execute(&mut *tx)
    .await?;
    for payload in notify::payloads(&ids) {
        notify::send(&mut *tx, notify::FOLLOWS, &payload).await?;
    }
    tx.commit().await?;
    Ok(())
}

/// Which of a cluster's jobs somebody follows now.
pub async fn followed(db: &Db, cluster: ClusterId, now: DateTime<Utc>) -> Result<HashSet<JobId>, DbError> {
    let rows = sqlx::query_scalar!(
        r#"/* logs::followed */
        select f.job_id from log_follows f join attempts a on a.job_id = f.job_id
        where f.until_at > $2 and a.cluster_id = $1 and a.released_at is null"#,
        cluster.0,
        now
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(JobId).collect())
}

/// Nothing will be added to a job's output any more: it is final, and every attempt's output is stored.
pub async fn is_complete(db: &Db, job: JobId) -> Result<bool, DbError> {
    let complete = sqlx::query_scalar!(
        r#"/* logs::is_complete */
        select phase in ('succeeded', 'failed', 'cancelled') and not exists (
            select 1 from attempts a where a.job_id = j.id and a.output_stored_at is null
        ) as "complete!"
        from jobs j where id = $1"#,
        job.0
    )
    .fetch_optional(&db.pool)
    .await?;
    Ok(complete.unwrap_or(true))
}
