//! Jobs as workers read and move them. The web never moves a phase: it writes a wish and pokes.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;
use trainyard_core::{
    document::job::JobDocument,
    model::{ClusterId, JobId, Phase, TeamId, Wanted},
    plan::retry,
};

use super::{
    Db, DbError,
    events::{self, NewEvent, Subject},
    usage, word,
};

/// A job as a worker needs it.
#[derive(Debug, Clone)]
pub struct JobRecord {
    pub id: JobId,
    pub team: TeamId,
    pub team_name: String,
    pub name: String,
    pub document: JobDocument,
    pub wanted: Wanted,
    pub phase: Phase,
    pub reason: String,
    pub message: String,
    pub generation: i64,
    pub attempt: i32,
    pub cluster: Option<ClusterId>,
    pub created_at: DateTime<Utc>,
    pub queued_at: DateTime<Utc>,
    pub queued_seconds: i64,
    pub not_before: Option<DateTime<Utc>>,
    pub step: Option<i64>,
    pub step_at: Option<DateTime<Utc>>,
    pub stale_since: Option<DateTime<Utc>>,
    pub deleted_at: Option<DateTime<Utc>>,
    /// Nobody has said yet why it waits.
    pub unanswered: bool,
}

/// A change of phase, with its reason as a code and as words.
#[derive(Debug, Clone, PartialEq)]
pub struct Move<'a> {
    pub to: Phase,
    pub reason: &'a str,
    pub message: &'a str,
    /// For a job that goes back to the queue: not admitted before this.
    pub not_before: Option<DateTime<Utc>>,
}

pub async fn load(db: &Db, id: JobId) -> Result<JobRecord, DbError> {
    let row = sqlx::query!(
        r#"/* jobs::load */
        select j.id, j.team_id, t.name as team_name, j.name, j.document, j.wanted, j.phase, j.reason, j.message,
            j.generation, j.attempt, j.cluster_id, j.created_at, j.queued_at, j.queued_seconds, j.not_before,
            j.step, j.step_at, j.stale_since, j.deleted_at, j.why is null as "unanswered!"
        from jobs j join teams t on t.id = j.team_id where j.id = $1"#,
        id.0
    )
    .fetch_one(&db.pool)
    .await?;
    Ok(JobRecord {
        id: row.id.into(),
        team: row.team_id.into(),
        team_name: row.team_name,
        name: row.name,
        document: document(id, &row.document)?,
        wanted: word("jobs", id, &row.wanted)?,
        phase: word("jobs", id, &row.phase)?,
        reason: row.reason,
        message: row.message,
        generation: row.generation,
        attempt: row.attempt,
        cluster: row.cluster_id.map(ClusterId),
        created_at: row.created_at,
        queued_at: row.queued_at,
        queued_seconds: row.queued_seconds,
        not_before: row.not_before,
        step: row.step,
        step_at: row.step_at,
        stale_since: row.stale_since,
        deleted_at: row.deleted_at,
        unanswered: row.unanswered,
    })
}

pub(crate) fn document(id: JobId, text: &str) -> Result<JobDocument, DbError> {
    serde_json::from_str(text).map_err(|error| DbError::Inconsistent {
        table: "jobs",
        key: id.to_string(),
        what: format!("document: {error}"),
    })
}

/// Moves a job: row, usage interval and event together. A job that is there already stays untouched; an illegal move
/// is refused, since it means that the decision was made on something else.
pub async fn move_to(tx: &mut PgConnection, id: JobId, change: &Move<'_>, now: DateTime<Utc>) -> Result<(), DbError> {
    let row = sqlx::query!(
        r#"/* jobs::move_to lock */ select phase, attempt, queued_at, not_before from jobs where id = $1 for update"#,
        id.0
    )
    .fetch_one(&mut *tx)
    .await?;
    let from: Phase = word("jobs", id, &row.phase)?;
    if from == change.to {
        return Ok(());
    }
    if !from.may_become(change.to) {
        return Err(DbError::Stale);
    }
    // A wait that ends is added to the earlier ones, its backoff left out; one that begins is counted from now.
    let waited = match from {
        Phase::Queued => retry::waited(row.queued_at, row.not_before, now).num_seconds().max(0),
        _ => 0,
    };
    sqlx::query!(
        r#"/* jobs::move_to */
        update jobs set
            phase = $2, reason = $3, message = $4,
            queued_seconds = queued_seconds + $5,
            queued_at = case when $2 = 'queued' then $6 else queued_at end,
            not_before = $7,
            started_at = case when $2 = 'running' then coalesce(started_at, $6) else started_at end,
            ended_at = case when $2 in ('succeeded', 'failed', 'cancelled') then $6 end,
            why = null
        where id = $1"#,
        id.0,
        change.to.as_str(),
        change.reason,
        change.message,
        waited,
        now,
        change.not_before
    )
    .execute(&mut *tx)
    .await?;
    usage::follow(tx, id, row.attempt, change.to, now).await?;
    events::append(
        tx,
        Subject::Job(id),
        NewEvent {
            kind: "job.phase",
            actor: None,
            message: change.message,
            data: json!({ "from": from, "to": change.to, "reason": change.reason, "attempt": row.attempt }),
        },
        now,
    )
    .await?;
    Ok(())
}

/// Hides a final job whose output is stored; retention removes it later.
pub async fn hide(tx: &mut PgConnection, id: JobId, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* jobs::hide */
        update jobs set deleted_at = $2
        where id = $1 and deleted_at is null and phase in ('succeeded', 'failed', 'cancelled')"#,
        id.0,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Whether what is known of a job is fresh.
pub async fn mark_seen(tx: &mut PgConnection, id: JobId, stale_since: Option<DateTime<Utc>>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* jobs::mark_seen */
        update jobs set stale_since = $2 where id = $1 and stale_since is distinct from $2"#,
        id.0,
        stale_since
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Takes a waiting job back from its cluster, unless its document names that, so that it can be placed anew.
pub async fn unplace(tx: &mut PgConnection, id: JobId) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* jobs::unplace */
        update jobs set cluster_id = null, why = null
        where id = $1 and phase = 'queued' and cluster_wanted is null"#,
        id.0
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The machine that a cluster is, for local ones.
pub async fn cluster_machine(db: &Db, cluster: ClusterId) -> Result<Option<String>, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* jobs::cluster_machine */ select machine_id from clusters where id = $1"#,
        cluster.0
    )
    .fetch_one(&db.pool)
    .await?)
}

/// Deleted jobs of a cluster whose volumes are still there.
pub async fn hidden_here(db: &Db, cluster: ClusterId, limit: i64) -> Result<Vec<JobId>, DbError> {
    let rows = sqlx::query_scalar!(
        r#"/* jobs::hidden_here */
        select id from jobs where cluster_id = $1 and deleted_at is not null and volumes_gone_at is null
            and not exists (select 1 from attempts a where a.job_id = jobs.id and a.released_at is null)
        order by id limit $2"#,
        cluster.0,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(JobId).collect())
}

pub async fn volumes_gone(db: &Db, id: JobId) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* jobs::volumes_gone */ update jobs set volumes_gone_at = deleted_at where id = $1"#,
        id.0
    )
    .execute(&db.pool)
    .await?;
    Ok(())
}
