//! Attempts, replicas and incarnations of a job, as people see them. Every read starts from the job's [`Home`], which
//! only a scope that may see the job yields.

use chrono::{DateTime, Utc};
use serde::Serialize;
use trainyard_core::{
    model::{AttemptId, AttemptPhase, IncarnationId, NodeId, Outcome, ReplicaPhase, RestartOwner},
    plan::postmortem::PostMortem,
};
use utoipa::ToSchema;

use super::{
    Db, DbError,
    jobs_read::{ClusterRef, Home},
    word,
};

/// One submission of a job to one cluster.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Attempt {
    pub id: AttemptId,
    /// From 1.
    pub number: i32,
    pub cluster: ClusterRef,
    pub phase: AttemptPhase,
    pub outcome: Option<Outcome>,
    pub restart_owner: RestartOwner,
    pub reason: String,
    pub message: String,
    /// Where the last checkpoint of an earlier attempt lies.
    pub resume_from: Option<String>,
    pub resume_step: Option<i64>,
    /// Why it was asked to end.
    pub stop_cause: Option<String>,
    pub admitted_at: DateTime<Utc>,
    pub running_at: Option<DateTime<Utc>>,
    pub stopping_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    /// From then on every byte of output is stored.
    pub output_stored_at: Option<DateTime<Utc>>,
    /// The last step seen; `kept_step`: the one of its last checkpoint.
    pub last_step: Option<i64>,
    pub kept_step: Option<i64>,
    /// There is a post-mortem to read.
    pub has_post_mortem: bool,
}

/// A page of attempts, the newest first: those with numbers below `before`.
pub async fn attempts(db: &Db, home: &Home, before: Option<i32>, limit: i64) -> Result<Vec<Attempt>, DbError> {
    let rows = sqlx::query!(
        r#"/* attempts_read::attempts */
        select a.id, a.number, a.cluster_id, c.name as cluster_name, a.phase, a.outcome, a.restart_owner, a.reason,
            a.message, a.resume_from, a.resume_step, a.stop_cause, a.admitted_at, a.running_at, a.stopping_at,
            a.ended_at, a.output_stored_at, a.last_step, a.kept_step, a.post_mortem is not null as "has_post_mortem!"
        from attempts a join clusters c on c.id = a.cluster_id
        where a.job_id = $1 and ($2::int is null or a.number < $2) order by a.number desc limit $3"#,
        home.id.0,
        before,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let id = AttemptId(row.id);
            Ok(Attempt {
                id,
                number: row.number,
                cluster: ClusterRef {
                    id: row.cluster_id.into(),
                    name: row.cluster_name,
                },
                phase: word("attempts", id, &row.phase)?,
                outcome: (row.outcome.as_deref())
                    .map(|outcome| word("attempts", id, outcome))
                    .transpose()?,
                restart_owner: word("attempts", id, &row.restart_owner)?,
                reason: row.reason,
                message: row.message,
                resume_from: row.resume_from,
                resume_step: row.resume_step,
                stop_cause: row.stop_cause,
                admitted_at: row.admitted_at,
                running_at: row.running_at,
                stopping_at: row.stopping_at,
                ended_at: row.ended_at,
                output_stored_at: row.output_stored_at,
                last_step: row.last_step,
                kept_step: row.kept_step,
                has_post_mortem: row.has_post_mortem,
            })
        })
        .collect()
}

/// One attempt by its number.
pub async fn attempt(db: &Db, home: &Home, number: i32) -> Result<Attempt, DbError> {
    let page = attempts(db, home, Some(number.saturating_add(1)), 1).await?;
    (page.into_iter().find(|attempt| attempt.number == number)).ok_or(DbError::NotFound)
}

/// The post-mortem of an attempt; without a number, of the newest attempt that has one.
pub async fn post_mortem(db: &Db, home: &Home, number: Option<i32>) -> Result<PostMortem, DbError> {
    let row = sqlx::query!(
        r#"/* attempts_read::post_mortem */
        select number, post_mortem as "post_mortem!" from attempts
        where job_id = $1 and ($2::int is null or number = $2) and post_mortem is not null
        order by number desc limit 1"#,
        home.id.0,
        number
    )
    .fetch_one(&db.pool)
    .await?;
    serde_json::from_value(row.post_mortem).map_err(|error| DbError::Inconsistent {
        table: "attempts",
        key: format!("{} {}", home.id, row.number),
        what: format!("post_mortem: {error}"),
    })
}

/// One member of an attempt.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Replica {
    pub role: String,
    pub index: i32,
    /// Over all roles in document order, from 0.
    pub rank: i32,
    pub phase: ReplicaPhase,
    pub node: Option<NodeRef>,
    pub gpu_indices: Vec<i32>,
    pub reason: String,
    pub message: String,
    pub exit_code: Option<i32>,
    pub exit_signal: Option<i32>,
    /// The kernel's out-of-memory killer took it.
    pub oom: bool,
    pub started_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub last_output_at: Option<DateTime<Utc>>,
    pub step: Option<i64>,
    pub step_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct NodeRef {
    pub id: NodeId,
    pub name: String,
}

/// The replicas of an attempt in rank order, after a rank.
pub async fn replicas(
    db: &Db,
    home: &Home,
    attempt: i32,
    after: Option<i32>,
    limit: i64,
) -> Result<Vec<Replica>, DbError> {
    let rows = sqlx::query!(
        r#"/* attempts_read::replicas */
        select r.role, r.index, r.rank, r.phase, r.node_id, n.name as "node_name?", r.gpu_indices, r.reason, r.message,
            r.exit_code, r.exit_signal, r.oom, r.started_at, r.ended_at, r.last_output_at, r.step, r.step_at
        from attempts a join replicas r on r.attempt_id = a.id left join nodes n on n.id = r.node_id
        where a.job_id = $1 and a.number = $2 and ($3::int is null or r.rank > $3) order by r.rank limit $4"#,
        home.id.0,
        attempt,
        after,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Replica {
                phase: word(
                    "replicas",
                    format!("{} {} {}", home.id, row.role, row.index),
                    &row.phase,
                )?,
                role: row.role,
                index: row.index,
                rank: row.rank,
                node: row
                    .node_id
                    .zip(row.node_name)
                    .map(|(id, name)| NodeRef { id: id.into(), name }),
                gpu_indices: row.gpu_indices,
                reason: row.reason,
                message: row.message,
                exit_code: row.exit_code,
                exit_signal: row.exit_signal,
                oom: row.oom,
                started_at: row.started_at,
                ended_at: row.ended_at,
                last_output_at: row.last_output_at,
                step: row.step,
                step_at: row.step_at,
            })
        })
        .collect()
}

/// One pod or process that a replica had.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Incarnation {
    pub id: IncarnationId,
    pub role: String,
    pub index: i32,
    /// From 1, within its replica.
    pub number: i32,
    /// A pod's UID, or boot id, pid and start time of a process.
    pub identity: Option<String>,
    pub created_at: DateTime<Utc>,
    pub started_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub exit_code: Option<i32>,
    pub exit_signal: Option<i32>,
    pub reason: String,
}

/// The incarnations of an attempt, the oldest first, after one of them.
pub async fn incarnations(
    db: &Db,
    home: &Home,
    attempt: i32,
    after: Option<IncarnationId>,
    limit: i64,
) -> Result<Vec<Incarnation>, DbError> {
    let rows = sqlx::query!(
        r#"/* attempts_read::incarnations */
        select i.id, i.role, i.index, i.number, i.identity, i.created_at, i.started_at, i.ended_at, i.exit_code,
            i.exit_signal, i.reason
        from attempts a join incarnations i on i.attempt_id = a.id
        where a.job_id = $1 and a.number = $2 and ($3::uuid is null or i.id > $3) order by i.id limit $4"#,
        home.id.0,
        attempt,
        after.map(|after| after.0),
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Incarnation {
            id: row.id.into(),
            role: row.role,
            index: row.index,
            number: row.number,
            identity: row.identity,
            created_at: row.created_at,
            started_at: row.started_at,
            ended_at: row.ended_at,
            exit_code: row.exit_code,
            exit_signal: row.exit_signal,
            reason: row.reason,
        })
        .collect())
}
