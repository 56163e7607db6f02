//! A cluster's queue as admission needs it: who waits, who holds what, and what the nodes have.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::{
    document::job::JobDocument,
    model::{AttemptId, ClusterId, JobId, NodeId, TeamId},
};
use uuid::Uuid;

use super::{Db, DbError, jobs};

/// A job that waits.
#[derive(Debug, Clone)]
pub struct WaitingRow {
    pub id: JobId,
    pub name: String,
    pub team: TeamId,
    pub priority: i32,
    pub queued_at: DateTime<Utc>,
    pub not_before: Option<DateTime<Utc>>,
    pub document: JobDocument,
    /// The last answer as stored, so that only changes are written.
    pub why: Option<serde_json::Value>,
}

/// The front of the queue, in its order. Left out are jobs that nobody wants to run, those of teams that may not use the
/// cluster (any more), those in a backoff (see
/// [`next_backoff`]), those whose last attempt's output is still being stored (the checkpoint to go on from may be in
/// it; after a minute it is not waited for any more), and those that were just found to be bigger than the cluster: thousands of these must not hide
/// what stands behind them. With `after`, what comes behind that one.
pub async fn front(
    db: &Db,
    cluster: ClusterId,
    after: Option<&WaitingRow>,
    limit: i64,
    now: DateTime<Utc>,
) -> Result<Vec<WaitingRow>, DbError> {
    let rows = sqlx::query!(
        r#"/* queue::front */
        select id, name, team_id, priority, queued_at, not_before, document, why from jobs
        where cluster_id = $1 and phase = 'queued' and wanted = 'run'
            and (not_before is null or not_before <= $3)
            and not coalesce(why #>> '{hold,hold}' = 'too_big' and (why ->> 'at')::timestamptz > $4, false)
            and not (attempt > 0 and exists (
                select 1 from attempts a where a.job_id = jobs.id and a.number = jobs.attempt
                    and a.output_stored_at is null and a.ended_at > $5
            ))
            and exists (select from cluster_grants g where g.cluster_id = $1 and g.team_id = jobs.team_id)
            and ($6::int is null or (-priority, queued_at, id) > (-$6, $7, $8))
        order by priority desc, queued_at, id limit $2"#,
        cluster.0,
        limit,
        now,
        now - chrono::Duration::seconds(30),
        now - chrono::Duration::seconds(60),
        after.map(|row| row.priority),
        after.map(|row| row.queued_at),
        after.map(|row| row.id.0)
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let id = JobId(row.id);
            Ok(WaitingRow {
                id,
                name: row.name,
                team: row.team_id.into(),
                priority: row.priority,
                queued_at: row.queued_at,
                not_before: row.not_before,
                document: jobs::document(id, &row.document)?,
                why: row.why,
            })
        })
        .collect()
}

/// Whether any job waits for this cluster.
pub async fn any_wait(db: &Db, cluster: ClusterId) -> Result<bool, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* queue::any_wait */
        select exists (select 1 from jobs where cluster_id = $1 and phase = 'queued' and wanted = 'run') as "any!""#,
        cluster.0
    )
    .fetch_one(&db.pool)
    .await?)
}

/// When the next backoff on this cluster ends.
pub async fn next_backoff(db: &Db, cluster: ClusterId, now: DateTime<Utc>) -> Result<Option<DateTime<Utc>>, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* queue::next_backoff */
        select min(not_before) from jobs
        where cluster_id = $1 and phase = 'queued' and wanted = 'run' and not_before > $2"#,
        cluster.0,
        now
    )
    .fetch_one(&db.pool)
    .await?)
}

/// An attempt that holds resources, with where its replicas are.
#[derive(Debug, Clone)]
pub struct HolderRow {
    pub job: JobId,
    pub attempt: AttemptId,
    pub name: String,
    pub priority: i32,
    pub queued_at: DateTime<Utc>,
    pub admitted_at: DateTime<Utc>,
    pub running_at: Option<DateTime<Utc>>,
    pub document: JobDocument,
    /// (role, node, GPUs) of every replica.
    pub replicas: Vec<(String, NodeId, Vec<u32>)>,
}

pub async fn holders(db: &Db, cluster: ClusterId) -> Result<Vec<HolderRow>, DbError> {
    let rows = sqlx::query!(
        r#"/* queue::holders */
        select a.id as attempt, a.admitted_at, a.running_at, j.id, j.name, j.priority, j.queued_at, j.document,
            array_agg(r.role order by r.rank) as "roles!", array_agg(r.node_id order by r.rank) as "nodes!: Vec<Option<Uuid>>",
            array_agg(r.gpu_indices::text order by r.rank) as "gpus!"
        from attempts a join jobs j on j.id = a.job_id join replicas r on r.attempt_id = a.id
        where a.cluster_id = $1 and a.phase <> 'ended'
        group by a.id, j.id"#,
        cluster.0
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let id = JobId(row.id);
            let replicas = row
                .roles
                .into_iter()
                .zip(row.nodes)
                .zip(row.gpus)
                .filter_map(|((role, node), gpus)| {
                    let gpus = gpus
                        .trim_matches(['{', '}'])
                        .split(',')
                        .filter_map(|gpu| gpu.parse().ok())
                        .collect();
                    Some((role, NodeId(node?), gpus))
                })
                .collect();
            Ok(HolderRow {
                job: id,
                attempt: row.attempt.into(),
                name: row.name,
                priority: row.priority,
                queued_at: row.queued_at,
                admitted_at: row.admitted_at,
                running_at: row.running_at,
                document: jobs::document(id, &row.document)?,
                replicas,
            })
        })
        .collect()
}

/// A node that can take replicas.
#[derive(Debug, Clone)]
pub struct NodeRow {
    pub id: NodeId,
    pub name: String,
    pub ready: bool,
    pub allocatable: serde_json::Value,
    pub facts: serde_json::Value,
}

pub async fn nodes(db: &Db, cluster: ClusterId) -> Result<Vec<NodeRow>, DbError> {
    let rows = sqlx::query!(
        r#"/* queue::nodes */
        select id, name, phase = 'ready' and stale_since is null as "ready!", allocatable, facts from nodes
        where cluster_id = $1 and gone_at is null order by name"#,
        cluster.0
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| NodeRow {
            id: row.id.into(),
            name: row.name,
            ready: row.ready,
            allocatable: row.allocatable,
            facts: row.facts,
        })
        .collect())
}

/// Proves that a job still waits, is still wanted and may still use the cluster, and locks it. Answers false when it does not.
pub async fn still_waits(tx: &mut PgConnection, job: JobId, cluster: ClusterId) -> Result<bool, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* queue::still_waits */
        select 1 as "one!" from jobs
        where id = $1 and cluster_id = $2 and phase = 'queued' and wanted = 'run' and deleted_at is null
            and exists (select from cluster_grants g where g.cluster_id = $2 and g.team_id = jobs.team_id)
        for update"#,
        job.0,
        cluster.0
    )
    .fetch_optional(tx)
    .await?
    .is_some())
}

/// Stores the answers to "why not yet" that changed, all in one statement.
pub async fn explain(tx: &mut PgConnection, answers: &[(JobId, serde_json::Value)]) -> Result<(), DbError> {
    let ids: Vec<Uuid> = answers.iter().map(|(id, _)| id.0).collect();
    let values: Vec<serde_json::Value> = answers.iter().map(|(_, value)| value.clone()).collect();
    sqlx::query!(
        r#"/* queue::explain */
        update jobs set why = t.why from unnest($1::uuid[], $2::jsonb[]) as t (id, why)
        where jobs.id = t.id and jobs.phase = 'queued'"#,
        &ids,
        &values
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Jobs that named no cluster and were not placed yet, oldest first.
pub async fn unplaced(db: &Db, after: Option<JobId>, limit: i64) -> Result<Vec<(JobId, TeamId, JobDocument)>, DbError> {
    let rows = sqlx::query!(
        r#"/* queue::unplaced */
        select id, team_id, document from jobs
        where cluster_id is null and phase = 'queued' and wanted = 'run' and deleted_at is null
            and ($1::uuid is null or id > $1)
        order by id limit $2"#,
        after.map(|job| job.0),
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok((
                row.id.into(),
                row.team_id.into(),
                jobs::document(JobId(row.id), &row.document)?,
            ))
        })
        .collect()
}

/// The clusters that a team may use, with how much is waiting there.
#[derive(Debug, Clone)]
pub struct ClusterChoice {
    pub id: ClusterId,
    pub name: String,
    pub stale: bool,
    pub waiting: i64,
}

pub async fn clusters_for(db: &Db, team: TeamId) -> Result<Vec<ClusterChoice>, DbError> {
    let rows = sqlx::query!(
        r#"/* queue::clusters_for */
        select c.id, c.name, c.stale_since is not null as "stale!",
            (select count(*) from jobs j where j.cluster_id = c.id and j.phase = 'queued') as "waiting!"
        from clusters c join cluster_grants g on g.cluster_id = c.id
        where g.team_id = $1 and c.phase = 'active' and c.deleted_at is null order by c.name"#,
        team.0
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| ClusterChoice {
            id: row.id.into(),
            name: row.name,
            stale: row.stale,
            waiting: row.waiting,
        })
        .collect())
}

/// Gives a waiting job a cluster, if its team may still use it.
pub async fn place(tx: &mut PgConnection, job: JobId, cluster: ClusterId) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* queue::place */
        update jobs set cluster_id = $2 where id = $1 and cluster_id is null and phase = 'queued'
            and exists (
                select from cluster_grants g join clusters c on c.id = g.cluster_id
                where g.cluster_id = $2 and g.team_id = jobs.team_id and c.deleted_at is null
            )"#,
        job.0,
        cluster.0
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Takes what waits for a cluster and named none away from it: all of it, or what is a team's.
pub async fn unplace(tx: &mut PgConnection, cluster: ClusterId, team: Option<TeamId>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* queue::unplace */
        update jobs set cluster_id = null, why = null
        where cluster_id = $1 and phase = 'queued' and cluster_wanted is null and ($2::uuid is null or team_id = $2)"#,
        cluster.0,
        team.map(|team| team.0)
    )
    .execute(tx)
    .await?;
    Ok(())
}
