//! Attempts, replicas and incarnations as workers read and move them.
//!
//! Here: the records, read and made. [`moves`]: what changes them. [`holder`]: what is asked of a cluster as a whole.

mod holder;
mod moves;

pub use holder::*;
pub use moves::*;

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::{Executor, PgConnection, Postgres};
use trainyard_core::{
    model::{
        AttemptId, AttemptPhase, ClusterId, IncarnationId, JobId, NodeId, Outcome, ReplicaKey, ReplicaPhase,
        RestartOwner,
    },
    plan::{attempt::FirstFailure, words},
};
use uuid::Uuid;

use super::{
    Db, DbError,
    events::{self, NewEvent, Subject},
    word,
};

#[derive(Debug, Clone)]
pub struct AttemptRecord {
    pub id: AttemptId,
    pub job: JobId,
    pub number: i32,
    pub cluster: ClusterId,
    pub phase: AttemptPhase,
    pub outcome: Option<Outcome>,
    pub reason: String,
    pub message: String,
    pub resume_from: Option<String>,
    pub resume_step: Option<i64>,
    pub stop_cause: Option<String>,
    pub admitted_at: DateTime<Utc>,
    pub running_at: Option<DateTime<Utc>>,
    pub stopping_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub checkpoint_asked_at: Option<DateTime<Utc>>,
    pub stop_asked_at: Option<DateTime<Utc>>,
    pub output_stored_at: Option<DateTime<Utc>>,
    pub last_step: Option<i64>,
    pub kept_step: Option<i64>,
    pub first_failure: Option<FirstFailure>,
    pub code: Option<i32>,
    pub has_post_mortem: bool,
    pub replicas: Vec<ReplicaRecord>,
}

#[derive(Debug, Clone)]
pub struct ReplicaRecord {
    pub key: ReplicaKey,
    pub rank: u32,
    pub phase: ReplicaPhase,
    pub node: Option<NodeId>,
    /// Its node is gone: who said so, in words.
    pub gone: Option<String>,
    pub gpus: Vec<u32>,
    pub incarnation: IncarnationId,
    pub reason: String,
    pub message: String,
    pub exit_code: Option<i32>,
    pub exit_signal: Option<i32>,
    pub oom: bool,
    pub exit_unknown: bool,
    pub started_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub last_output_at: Option<DateTime<Utc>>,
    pub step: Option<i64>,
    pub step_at: Option<DateTime<Utc>>,
}

impl AttemptRecord {
    /// Every machine that it had is gone: nobody will ever see more of it.
    pub fn is_out_of_reach(&self) -> bool {
        !self.replicas.is_empty() && self.replicas.iter().all(|replica| replica.gone.is_some())
    }
}

/// How many attempts go on that may have been given a token under an older key than this one: all that were admitted
/// before the first rotation to it was finished.
pub async fn begun_under_older_keys(db: &Db, key: &str) -> Result<i64, DbError> {
    let count = sqlx::query_scalar!(
        r#"/* attempts::begun_under_older_keys */
        select count(*) as "count!" from attempts where phase <> 'ended' and admitted_at <= coalesce(
            (select min(at) from audit where class = 'installation' and action = 'keys.rotate' and detail ->> 'to' = $1),
            'infinity')"#,
        key
    );
    Ok(count.fetch_one(&db.pool).await?)
}

/// The newest attempt of a job with its replicas in rank order.
pub async fn newest(db: &Db, job: JobId) -> Result<Option<AttemptRecord>, DbError> {
    numbered(db, job, None).await
}

/// One attempt of a job by its number, or the newest.
pub async fn numbered(db: &Db, job: JobId, number: Option<i32>) -> Result<Option<AttemptRecord>, DbError> {
    let Some(row) = sqlx::query!(
        r#"/* attempts::numbered */
        select id, number, cluster_id, phase, outcome, reason, message, resume_from, resume_step, stop_cause,
            admitted_at, running_at, stopping_at, ended_at, checkpoint_asked_at, stop_asked_at, output_stored_at,
            last_step, kept_step, first_failure, code, post_mortem is not null as "has_post_mortem!"
        from attempts where job_id = $1 and ($2::int is null or number = $2) order by number desc limit 1"#,
        job.0,
        number
    )
    .fetch_optional(&db.pool)
    .await?
    else {
        return Ok(None);
    };
    let id = AttemptId(row.id);
    Ok(Some(AttemptRecord {
        id,
        job,
        number: row.number,
        cluster: row.cluster_id.into(),
        phase: word("attempts", id, &row.phase)?,
        outcome: row
            .outcome
            .as_deref()
            .map(|text| word("attempts", id, text))
            .transpose()?,
        reason: row.reason,
        message: row.message,
        resume_from: row.resume_from,
        resume_step: row.resume_step,
        stop_cause: row.stop_cause,
        admitted_at: row.admitted_at,
        running_at: row.running_at,
        stopping_at: row.stopping_at,
        ended_at: row.ended_at,
        checkpoint_asked_at: row.checkpoint_asked_at,
        stop_asked_at: row.stop_asked_at,
        output_stored_at: row.output_stored_at,
        last_step: row.last_step,
        kept_step: row.kept_step,
        first_failure: row.first_failure.and_then(|value| serde_json::from_value(value).ok()),
        code: row.code,
        has_post_mortem: row.has_post_mortem,
        replicas: replicas(db, id).await?,
    }))
}

pub async fn replicas(db: &Db, attempt: AttemptId) -> Result<Vec<ReplicaRecord>, DbError> {
    let rows = sqlx::query!(
        r#"/* attempts::replicas */
        select r.role, r.index, r.rank, r.phase, r.node_id, r.gpu_indices, r.reason, r.message, r.exit_code,
            r.exit_signal, r.oom, r.exit_unknown, r.started_at, r.ended_at, r.last_output_at, r.step, r.step_at,
            i.id as incarnation, case when n.gone_at is not null then n.message end as gone
        from replicas r left join nodes n on n.id = r.node_id
        join lateral (
            select id from incarnations
            where attempt_id = r.attempt_id and role = r.role and index = r.index
            order by number desc limit 1
        ) i on true
        where r.attempt_id = $1 order by r.rank"#,
        attempt.0
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(ReplicaRecord {
                key: ReplicaKey {
                    role: row.role,
                    index: row.index as u32,
                },
                rank: row.rank as u32,
                phase: word("replicas", attempt, &row.phase)?,
                node: row.node_id.map(NodeId),
                gone: row.gone,
                gpus: row.gpu_indices.into_iter().map(|gpu| gpu as u32).collect(),
                incarnation: row.incarnation.into(),
                reason: row.reason,
                message: row.message,
                exit_code: row.exit_code,
                exit_signal: row.exit_signal,
                oom: row.oom,
                exit_unknown: row.exit_unknown,
                started_at: row.started_at,
                ended_at: row.ended_at,
                last_output_at: row.last_output_at,
                step: row.step,
                step_at: row.step_at,
            })
        })
        .collect()
}

/// A new attempt, as it is admitted.
#[derive(Debug, Clone)]
pub struct NewAttempt {
    pub id: AttemptId,
    pub job: JobId,
    pub cluster: ClusterId,
    pub restart_owner: RestartOwner,
    pub replicas: Vec<NewReplica>,
}

#[derive(Debug, Clone)]
pub struct NewReplica {
    pub key: ReplicaKey,
    pub rank: u32,
    pub node: NodeId,
    pub gpus: Vec<u32>,
    pub incarnation: IncarnationId,
}

/// Writes the attempt with its replicas and first incarnations, and makes it the job's newest. The last checkpoint of
/// earlier attempts becomes the place to resume from. The caller moves the job to `starting` in the same transaction.
pub async fn create(tx: &mut PgConnection, new: &NewAttempt, now: DateTime<Utc>) -> Result<i32, DbError> {
    let number = sqlx::query_scalar!(
        r#"/* attempts::create number */ update jobs set attempt = attempt + 1 where id = $1 returning attempt"#,
        new.job.0
    )
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query!(
        r#"/* attempts::create */
        insert into attempts (id, job_id, number, cluster_id, phase, restart_owner, reason, message,
            resume_from, resume_step, admitted_at)
        select $1, $2, $3, $4, 'starting', $5, 'admitted', 'Admitted; starting its replicas', c.path, c.step, $6
        from (select 1) one
        left join lateral (select path, step from checkpoints where job_id = $2 order by at desc, step desc limit 1) c on true"#,
        new.id.0,
        new.job.0,
        number,
        new.cluster.0,
        new.restart_owner.as_str(),
        now
    )
    .execute(&mut *tx)
    .await?;
    let roles: Vec<&str> = new.replicas.iter().map(|replica| replica.key.role.as_str()).collect();
    let roles: Vec<String> = roles.into_iter().map(str::to_owned).collect();
    let indexes: Vec<i32> = new.replicas.iter().map(|replica| replica.key.index as i32).collect();
    let ranks: Vec<i32> = new.replicas.iter().map(|replica| replica.rank as i32).collect();
    let nodes: Vec<Uuid> = new.replicas.iter().map(|replica| replica.node.0).collect();
    let incarnations: Vec<Uuid> = new.replicas.iter().map(|replica| replica.incarnation.0).collect();
    // Postgres has no ragged arrays: the GPU lists travel as text, one per replica.
    let gpus: Vec<String> = new
        .replicas
        .iter()
        .map(|replica| {
            format!(
                "{{{}}}",
                replica.gpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
            )
        })
        .collect();
    sqlx::query!(
        r#"/* attempts::create replicas */
        insert into replicas (attempt_id, role, index, rank, job_id, phase, node_id, gpu_indices, reason, message)
        select $1, role, index, rank, $2, 'waiting', node, gpus::integer[], 'admitted', 'Admitted; not started yet'
        from unnest($3::text[], $4::int[], $5::int[], $6::uuid[], $7::text[]) as t (role, index, rank, node, gpus)"#,
        new.id.0,
        new.job.0,
        &roles,
        &indexes,
        &ranks,
        &nodes,
        &gpus
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        r#"/* attempts::create incarnations */
        insert into incarnations (id, attempt_id, role, index, number, created_at, reason)
        select id, $1, role, index, 1, $2, 'admitted' from unnest($3::uuid[], $4::text[], $5::int[]) as t (id, role, index)"#,
        new.id.0,
        now,
        &incarnations,
        &roles,
        &indexes
    )
    .execute(&mut *tx)
    .await?;
    events::append(
        tx,
        Subject::Job(new.job),
        NewEvent {
            kind: "attempt.admitted",
            actor: None,
            message: &format!(
                "Attempt {number} was admitted with {}",
                words::counted(new.replicas.len() as u64, "replica")
            ),
            data: json!({ "attempt": number, "cluster": new.cluster, "replicas": new.replicas.len() }),
        },
        now,
    )
    .await?;
    Ok(number)
}

/// How many attempts of the job before this one ended badly.
pub async fn failures_before(db: &Db, job: JobId, number: i32) -> Result<i64, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* attempts::failures_before */
        select count(*) as "count!" from attempts where job_id = $1 and number < $2 and outcome in ('failed', 'lost')"#,
        job.0,
        number
    )
    .fetch_one(&db.pool)
    .await?)
}

/// The newest checkpoint that an attempt reported.
pub async fn last_checkpoint<'e>(
    executor: impl Executor<'e, Database = Postgres>,
    job: JobId,
    attempt: i32,
) -> Result<Option<(i64, DateTime<Utc>)>, DbError> {
    let row = sqlx::query!(
        r#"/* attempts::last_checkpoint */
        select step, at from checkpoints where job_id = $1 and attempt = $2 order by at desc, step desc limit 1"#,
        job.0,
        attempt
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| (row.step, row.at)))
}
