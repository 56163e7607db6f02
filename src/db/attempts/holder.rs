//! What the holder of a cluster asks: which attempts live, which are over and may be released, whose end is to be kept.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;
use trainyard_core::model::{AttemptId, ClusterId, JobId, Retention};
use uuid::Uuid;

use crate::db::{
    Db, DbError,
    events::{self, NewEvent, Subject},
    word,
};

/// Attempts of a cluster that ended and whose remains may go: everything they wrote is stored, and where they ended
/// badly, what is to be remembered of that is frozen.
pub async fn releasable(db: &Db, cluster: ClusterId, limit: i64) -> Result<Vec<(AttemptId, JobId)>, DbError> {
    let rows = sqlx::query!(
        r#"/* attempts::releasable */
        select id, job_id from attempts
        where cluster_id = $1 and released_at is null and phase = 'ended' and output_stored_at is not null
            and (outcome not in ('failed', 'lost') or post_mortem is not null)
        order by id limit $2"#,
        cluster.0,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id.into(), row.job_id.into())).collect())
}

pub async fn released(tx: &mut PgConnection, id: AttemptId, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* attempts::released */ update attempts set released_at = $2 where id = $1 and released_at is null"#,
        id.0,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Of these attempts, which are open: the others must not have processes.
pub async fn open_among(db: &Db, ids: &[AttemptId]) -> Result<Vec<AttemptId>, DbError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query_scalar!(
        r#"/* attempts::open_among */ select id from attempts where id = any($1) and phase <> 'ended'"#,
        &ids
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(AttemptId).collect())
}

/// Of these attempts, which the records know at all.
pub async fn recorded_among(db: &Db, ids: &[AttemptId]) -> Result<Vec<AttemptId>, DbError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query_scalar!(
        r#"/* attempts::recorded_among */ select id from attempts where id = any($1)"#,
        &ids
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(AttemptId).collect())
}

/// The open attempts of a cluster with their jobs.
pub async fn open_on(db: &Db, cluster: ClusterId) -> Result<Vec<(AttemptId, JobId)>, DbError> {
    let rows = sqlx::query!(
        r#"/* attempts::open_on */ select id, job_id from attempts where cluster_id = $1 and phase <> 'ended' order by id"#,
        cluster.0
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id.into(), row.job_id.into())).collect())
}

/// Freezes the post-mortem of an ended attempt, with an event. The first one stays. It has seen the last lines, so the
/// rank that it names as the first to fail is the attempt's from now on.
pub async fn freeze_post_mortem(
    tx: &mut PgConnection,
    job: JobId,
    id: AttemptId,
    document: &serde_json::Value,
    first_failure: Option<serde_json::Value>,
    summary: &str,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    let frozen = sqlx::query_scalar!(
        r#"/* attempts::freeze_post_mortem */
        update attempts set post_mortem = $2, first_failure = coalesce($3, first_failure)
        where id = $1 and post_mortem is null and phase = 'ended' returning number"#,
        id.0,
        document,
        first_failure
    )
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(number) = frozen {
        let data = json!({ "attempt": number });
        let event = NewEvent {
            kind: "attempt.post_mortem",
            actor: None,
            message: summary,
            data,
        };
        events::append(tx, Subject::Job(job), event, now).await?;
    }
    Ok(())
}

/// Attempts of a cluster that ended badly and have no post-mortem yet, although their output is stored (or was waited
/// for until `patience`).
pub async fn without_post_mortem(
    db: &Db,
    cluster: ClusterId,
    patience: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<(JobId, i32)>, DbError> {
    let rows = sqlx::query!(
        r#"/* attempts::without_post_mortem */
        select job_id, number from attempts
        where cluster_id = $1 and released_at is null and phase = 'ended' and outcome in ('failed', 'lost')
            and post_mortem is null and (output_stored_at is not null or ended_at < $2)
        order by id limit $3"#,
        cluster.0,
        patience,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.job_id.into(), row.number)).collect())
}

/// An attempt that may have processes.
#[derive(Debug, Clone)]
pub struct LiveAttempt {
    pub id: AttemptId,
    pub job: JobId,
    pub number: i32,
    pub class: Retention,
}

/// The attempts of a cluster that are not over.
pub async fn live_on(db: &Db, cluster: ClusterId) -> Result<Vec<LiveAttempt>, DbError> {
    let rows = sqlx::query!(
        r#"/* attempts::live_on */
        select a.id, a.job_id, a.number, j.retention from attempts a join jobs j on j.id = a.job_id
        where a.cluster_id = $1 and a.phase <> 'ended' order by a.id"#,
        cluster.0
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(LiveAttempt {
                id: row.id.into(),
                job: row.job_id.into(),
                number: row.number,
                class: word("attempts", row.id, &row.retention)?,
            })
        })
        .collect()
}
