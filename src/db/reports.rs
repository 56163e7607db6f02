//! What a job's processes, or its people, report by REST: checkpoints. Points of series are written by [`super::metrics`].

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use trainyard_core::model::JobId;
use utoipa::ToSchema;

use super::{Db, DbError, jobs_read::Home};

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Checkpoint {
    /// The number of the attempt that wrote it.
    pub attempt: i32,
    pub step: i64,
    pub path: String,
    pub at: DateTime<Utc>,
    /// `line`: caught from what a replica printed. `api`: posted.
    pub source: String,
}

/// Records a posted checkpoint. `false`: it was recorded before.
pub async fn add_checkpoint(
    tx: &mut PgConnection,
    job: JobId,
    attempt: i32,
    step: i64,
    path: &str,
    now: DateTime<Utc>,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"/* reports::add_checkpoint */
        insert into checkpoints (job_id, attempt, step, path, at, source) values ($1, $2, $3, $4, $5, 'api')
        on conflict do nothing"#,
        job.0,
        attempt,
        step,
        path,
        now
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// A job's checkpoints, the newest first, older than `before` if that is given.
pub async fn checkpoints(
    db: &Db,
    home: &Home,
    before: Option<(DateTime<Utc>, i64)>,
    limit: i64,
) -> Result<Vec<Checkpoint>, DbError> {
    let (at, step) = before.unzip();
    Ok(sqlx::query_as!(
        Checkpoint,
        r#"/* reports::checkpoints */
        select attempt, step, path, at, source from checkpoints
        where job_id = $1 and ($2::timestamptz is null or (at, step) < ($2, $3)) order by at desc, step desc limit $4"#,
        home.id.0,
        at,
        step,
        limit
    )
    .fetch_all(&db.pool)
    .await?)
}
