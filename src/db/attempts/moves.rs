//! What moves: an attempt's phase and end, its replicas and incarnations. Each is written once and stays.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;
use trainyard_core::{
    model::{AttemptId, AttemptPhase, Exit, JobId, Outcome, ReplicaKey, ReplicaPhase},
    plan::attempt::FirstFailure,
};

use uuid::Uuid;

use super::last_checkpoint;
use crate::db::{
    DbError,
    events::{self, NewEvent, Subject},
    usage,
};

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
