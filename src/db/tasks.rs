//! The task queue: one row per thing to look at. A poke says which, never what changed; ten pokes cost one look.

use std::time::Duration;

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::WorkerId;
use uuid::Uuid;

use super::{Db, DbError, fences, in_time};

/// The kinds of tasks. The subject's kind follows from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaskKind {
    /// Look at a job: its wish, its attempt, its replicas.
    Job,
    /// Look at a cluster's queue and admit what fits.
    Queue,
    /// Place jobs that named no cluster. Subject: the installation.
    Place,
    /// Answer a check.
    Check,
    /// Retention, partitions, expired keys. Subject: the installation.
    Upkeep,
}

impl TaskKind {
    pub const ALL: [TaskKind; 5] = [
        TaskKind::Job,
        TaskKind::Queue,
        TaskKind::Place,
        TaskKind::Check,
        TaskKind::Upkeep,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            TaskKind::Job => "job",
            TaskKind::Queue => "queue",
            TaskKind::Place => "place",
            TaskKind::Check => "check",
            TaskKind::Upkeep => "upkeep",
        }
    }
}

/// A claimed task: the right to write about its subject until `until`, proven by the token.
#[derive(Debug, Clone)]
pub struct Lease {
    pub kind: TaskKind,
    pub subject: Uuid,
    pub token: Uuid,
    pub until: DateTime<Utc>,
    pub failures: i32,
}

/// What to do with the row when the work is done.
#[derive(Debug, Clone)]
pub enum Finish {
    /// Nothing more to do until somebody pokes.
    Done,
    /// Look again at this time, or when poked.
    At(DateTime<Utc>),
    /// It failed in a passing way: back off, and remember the words.
    Retry(String),
}

/// Asks for a look. In the transaction of the change that makes it necessary.
pub async fn poke(
    tx: &mut PgConnection,
    kind: TaskKind,
    subject: Uuid,
    machine: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    poke_all(tx, kind, &[subject], machine, now).await
}

/// Asks for a look at the jobs that have no cluster yet.
pub async fn poke_placing(tx: &mut PgConnection, now: DateTime<Utc>) -> Result<(), DbError> {
    let installation = sqlx::query_scalar!(r#"/* tasks::poke_placing */ select id from installation"#);
    let installation = installation.fetch_one(&mut *tx).await?;
    poke(tx, TaskKind::Place, installation, None, now).await
}

/// Asks for a look at each of many subjects. Sorted, so that two of these can't wait for each other.
pub async fn poke_all(
    tx: &mut PgConnection,
    kind: TaskKind,
    subjects: &[Uuid],
    machine: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    let mut subjects = subjects.to_vec();
    subjects.sort_unstable();
    subjects.dedup();
    sqlx::query!(
        r#"/* tasks::poke_all */
        insert into tasks (kind, subject_id, machine_id, wake_at, created_at)
        select $1, subject, $3, $4, $4 from unnest($2::uuid[]) as t (subject)
        on conflict (kind, subject_id) do update set
            pokes = tasks.pokes + 1,
            machine_id = coalesce(excluded.machine_id, tasks.machine_id),
            wake_at = case when tasks.lease_token is null or tasks.wake_at <= $4 then least(tasks.wake_at, $4)
                           else tasks.wake_at end"#,
        kind.as_str(),
        &subjects,
        machine,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Claims up to `limit` due tasks for a worker on one of `machines`, oldest first. On restored records that nobody has
/// confirmed, only such as change nothing: the others stay due.
pub async fn claim(
    db: &Db,
    worker: WorkerId,
    machines: &[String],
    limit: i64,
    lease: Duration,
    now: DateTime<Utc>,
    token: Uuid,
) -> Result<Vec<Lease>, DbError> {
    let until = now + lease;
    let mut connection = db.pool.acquire().await?;
    let rows = in_time(
        sqlx::query!(
            r#"/* tasks::claim */
            update tasks set lease_token = $1, lease_worker = $2, wake_at = $3, claimed_pokes = pokes
            where (kind, subject_id) in (
                select kind, subject_id from tasks
                where wake_at <= $4 and (machine_id is null or machine_id = any($5))
                    and (kind in ('check', 'upkeep') or not exists (select from installation where restored_at is not null))
                order by wake_at limit $6
                for update skip locked
            )
            returning kind, subject_id, failures"#,
            token,
            worker.0,
            until,
            now,
            machines,
            limit
        )
        .fetch_all(&mut *connection),
    )
    .await
    .inspect_err(|_| connection.close_on_drop())?;
    let mut leases = Vec::with_capacity(rows.len());
    for row in rows {
        let kind = TaskKind::ALL
            .into_iter()
            .find(|kind| kind.as_str() == row.kind)
            .ok_or_else(|| DbError::Inconsistent {
                table: "tasks",
                key: row.subject_id.to_string(),
                what: format!("unknown kind {}", row.kind),
            })?;
        leases.push(Lease {
            kind,
            subject: row.subject_id,
            token,
            until,
            failures: row.failures,
        });
    }
    Ok(leases)
}

/// Proves in the caller's transaction that the lease is still ours, and keeps it so until the commit.
pub async fn check(tx: &mut PgConnection, lease: &Lease, now: DateTime<Utc>) -> Result<(), DbError> {
    let held = sqlx::query_scalar!(
        r#"/* tasks::check */
        select 1 as "one!" from tasks
        where kind = $1 and subject_id = $2 and lease_token = $3 and wake_at > $4 for update"#,
        lease.kind.as_str(),
        lease.subject,
        lease.token,
        now
    )
    .fetch_optional(tx)
    .await?;
    match held {
        None if !fences::are_skipped() => Err(DbError::Fenced),
        _ => Ok(()),
    }
}

/// From its end on, any worker may look: what bound the subject to a machine is over.
pub async fn free(tx: &mut PgConnection, lease: &Lease) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* tasks::free */
        update tasks set machine_id = null where kind = $1 and subject_id = $2 and lease_token = $3"#,
        lease.kind.as_str(),
        lease.subject,
        lease.token
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Extends the lease while slow work goes on.
pub async fn extend(db: &Db, lease: &mut Lease, by: Duration, now: DateTime<Utc>) -> Result<(), DbError> {
    let until = now + by;
    let mut connection = db.pool.acquire().await?;
    let done = in_time(
        sqlx::query!(
            r#"/* tasks::extend */
            update tasks set wake_at = $4 where kind = $1 and subject_id = $2 and lease_token = $3 and wake_at > $5"#,
            lease.kind.as_str(),
            lease.subject,
            lease.token,
            until,
            now
        )
        .execute(&mut *connection),
    )
    .await
    .inspect_err(|_| connection.close_on_drop())?;
    if done.rows_affected() == 0 {
        return Err(DbError::Fenced);
    }
    lease.until = until;
    Ok(())
}

/// Ends the lease. A poke that came meanwhile makes the row due at once.
pub async fn finish(tx: &mut PgConnection, lease: &Lease, finish: &Finish, now: DateTime<Utc>) -> Result<(), DbError> {
    let (wake_at, error) = match finish {
        Finish::Done => (None, None),
        Finish::At(at) => (Some(*at), None),
        Finish::Retry(words) => {
            // 1 s, 2 s, 4 s ... up to about 4 min.
            let seconds = 1i64 << lease.failures.clamp(0, 8);
            (Some(now + chrono::Duration::seconds(seconds)), Some(words.as_str()))
        }
    };
    let done = sqlx::query!(
        r#"/* tasks::finish */
        with ended as (
            delete from tasks where kind = $1 and subject_id = $2 and lease_token = $3
                and pokes = claimed_pokes and $4::timestamptz is null
            returning 1
        ), kept as (
            update tasks set
                lease_token = null,
                lease_worker = null,
                failures = case when $5::text is null then 0 else failures + 1 end,
                last_error = $5,
                wake_at = case when pokes <> claimed_pokes then $6 else $4 end
            where kind = $1 and subject_id = $2 and lease_token = $3
                and (pokes <> claimed_pokes or $4::timestamptz is not null)
            returning 1
        )
        select (select count(*) from ended) + (select count(*) from kept) as "rows!""#,
        lease.kind.as_str(),
        lease.subject,
        lease.token,
        wake_at,
        error,
        now
    )
    .fetch_one(tx)
    .await?;
    match done.rows {
        0 if !fences::are_skipped() => Err(DbError::Fenced),
        _ => Ok(()),
    }
}
