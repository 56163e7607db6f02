//! Attempts, replicas and incarnations as workers read and move them.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::{Executor, PgConnection, Postgres};
use trainyard_core::{
    model::{
        AttemptId, AttemptPhase, ClusterId, Exit, IncarnationId, JobId, NodeId, Outcome, ReplicaKey, ReplicaPhase,
        RestartOwner, Retention,
    },
    plan::attempt::FirstFailure,
};
use uuid::Uuid;

use super::{
    Db, DbError,
    events::{self, NewEvent, Subject},
    usage, word,
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
            i.id as incarnation
        from replicas r
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
            message: &format!("Attempt {number} was admitted with {} replicas", new.replicas.len()),
            data: json!({ "attempt": number, "cluster": new.cluster, "replicas": new.replicas.len() }),
        },
        now,
    )
    .await?;
    Ok(number)
}

/// What a worker learned or decided of one replica. `None` leaves a field as it is.
#[derive(Debug, Clone, Default)]
pub struct ReplicaChange {
    pub phase: Option<ReplicaPhase>,
    pub reason: Option<String>,
    pub message: Option<String>,
    pub identity: Option<String>,
    pub started_at: Option<DateTime<Utc>>,
    pub exit: Option<Exit>,
    pub ended_at: Option<DateTime<Utc>>,
}

/// Changes one replica and its newest incarnation, with an event when its phase changes. A final replica stays as it is.
pub async fn change_replica(
    tx: &mut PgConnection,
    job: JobId,
    attempt: AttemptId,
    key: &ReplicaKey,
    change: &ReplicaChange,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    let phase = change.phase.map(ReplicaPhase::as_str);
    let exit = change.exit.as_ref();
    let ended_at = change.ended_at.or(exit.map(|exit| exit.at));
    let before = sqlx::query!(
        r#"/* attempts::change_replica */
        with old as (
            select phase, rank from replicas where attempt_id = $1 and role = $2 and index = $3
                and phase not in ('succeeded', 'failed', 'stopped', 'lost')
            for update
        ), done as (
            update replicas set
                phase = coalesce($4, phase),
                reason = coalesce($5, reason),
                message = coalesce($6, message),
                started_at = coalesce(started_at, $7),
                ended_at = coalesce($8, ended_at),
                exit_code = coalesce($9, exit_code),
                exit_signal = coalesce($10, exit_signal),
                oom = oom or $11,
                exit_unknown = exit_unknown or $13
            where attempt_id = $1 and role = $2 and index = $3 and exists (select 1 from old)
        ), newest as (
            update incarnations set
                identity = coalesce($12, identity),
                started_at = coalesce(started_at, $7),
                ended_at = coalesce($8, ended_at),
                exit_code = coalesce($9, exit_code),
                exit_signal = coalesce($10, exit_signal),
                reason = coalesce($5, reason)
            where id = (
                select id from incarnations where attempt_id = $1 and role = $2 and index = $3 order by number desc limit 1
            ) and exists (select 1 from old)
        )
        select phase, rank from old"#,
        attempt.0,
        key.role,
        key.index as i32,
        phase,
        change.reason,
        change.message,
        change.started_at,
        ended_at,
        exit.and_then(|exit| exit.code),
        exit.and_then(|exit| exit.signal),
        exit.is_some_and(|exit| exit.oom),
        change.identity,
        exit.is_some_and(|exit| exit.unknown)
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(before) = before else { return Ok(()) };
    if phase.is_none_or(|phase| phase == before.phase) {
        return Ok(());
    }
    let message = change.message.clone().unwrap_or_default();
    events::append(
        tx,
        Subject::Job(job),
        NewEvent {
            kind: "replica.phase",
            actor: None,
            message: &format!("Rank {} ({key}): {message}", before.rank),
            data: json!({
                "role": key.role, "index": key.index, "rank": before.rank, "from": before.phase, "to": phase,
                "reason": change.reason, "exit_code": exit.and_then(|exit| exit.code),
                "exit_signal": exit.and_then(|exit| exit.signal), "at": ended_at.or(change.started_at),
            }),
        },
        now,
    )
    .await?;
    Ok(())
}

/// Moves an attempt to `running` or `stopping`. Times are set once; so is the cause of a stop.
pub async fn move_to(
    tx: &mut PgConnection,
    id: AttemptId,
    to: AttemptPhase,
    reason: &str,
    message: &str,
    stop_cause: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* attempts::move_to */
        update attempts set
            phase = $2, reason = $3, message = $4,
            -- The first cause stays, but a person's cancel or delete overtakes a suspend.
            stop_cause = case when stop_cause is null or stop_cause = 'suspend' then coalesce($5, stop_cause) else stop_cause end,
            running_at = case when $2 = 'running' then coalesce(running_at, $6) else running_at end,
            stopping_at = case when $2 = 'stopping' then coalesce(stopping_at, $6) else stopping_at end
        where id = $1 and phase <> 'ended'"#,
        id.0,
        to.as_str(),
        reason,
        message,
        stop_cause,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// How an attempt ended.
#[derive(Debug, Clone)]
pub struct End<'a> {
    pub outcome: Outcome,
    pub reason: &'a str,
    pub message: &'a str,
    pub first_failure: Option<&'a FirstFailure>,
    pub code: Option<i32>,
    /// The step of its last checkpoint.
    pub kept_step: Option<i64>,
}

/// Ends an attempt once. Answers whether this call did it.
pub async fn end(
    tx: &mut PgConnection,
    job: JobId,
    id: AttemptId,
    end: &End<'_>,
    now: DateTime<Utc>,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"/* attempts::end */
        update attempts set phase = 'ended', outcome = $2, reason = $3, message = $4, ended_at = $5,
            kept_step = $6, first_failure = $7, code = $8,
            last_step = (select max(step) from replicas where attempt_id = $1)
        where id = $1 and phase <> 'ended' returning number, last_step"#,
        id.0,
        end.outcome.as_str(),
        end.reason,
        end.message,
        now,
        end.kept_step,
        end.first_failure.map(|first| json!(first)),
        end.code
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(done) = done else { return Ok(false) };
    events::append(
        tx,
        Subject::Job(job),
        NewEvent {
            kind: "attempt.ended",
            actor: None,
            message: end.message,
            data: json!({
                "attempt": done.number, "outcome": end.outcome, "reason": end.reason,
                "last_step": done.last_step, "kept_step": end.kept_step, "first_failure": end.first_failure,
            }),
        },
        now,
    )
    .await?;
    Ok(true)
}

/// The last output of these ended attempts is stored: only now is it known which step and which checkpoint were their
/// last, and with that, what of their running time was kept. Answers whether any of their jobs may go on.
pub async fn settle(tx: &mut PgConnection, ids: &[AttemptId]) -> Result<bool, DbError> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.0).collect();
    let rows = sqlx::query!(
        r#"/* attempts::settle */
        update attempts a set
            last_step = (select max(step) from replicas where attempt_id = a.id),
            kept_step = (
                select step from checkpoints c where c.job_id = a.job_id and c.attempt = a.number
                order by at desc, step desc limit 1
            )
        where a.id = any($1) and a.phase = 'ended'
        returning a.job_id, a.number, a.outcome"#,
        &ids
    )
    .fetch_all(&mut *tx)
    .await?;
    let mut goes_on = false;
    for row in rows {
        if row.outcome.as_deref() == Some(Outcome::Succeeded.as_str()) {
            continue;
        }
        goes_on = true;
        let job = JobId(row.job_id);
        let kept = last_checkpoint(&mut *tx, job, row.number).await?;
        usage::settle(tx, job, row.number, kept.map(|(_, at)| at)).await?;
    }
    Ok(goes_on)
}

/// Notes that a checkpoint or a stop was asked of the runtime; the first time stays.
pub async fn asked(
    tx: &mut PgConnection,
    id: AttemptId,
    checkpoint: bool,
    stop: bool,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* attempts::asked */
        update attempts set
            checkpoint_asked_at = case when $2 then coalesce(checkpoint_asked_at, $4) else checkpoint_asked_at end,
            stop_asked_at = case when $3 then coalesce(stop_asked_at, $4) else stop_asked_at end
        where id = $1 and phase <> 'ended'"#,
        id.0,
        checkpoint,
        stop,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
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
