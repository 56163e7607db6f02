//! Usage intervals: who held what from when to when. They cover a job from submission to its end without gap or
//! overlap, since the one that ends and the one that begins are written at the same instant.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::{JobId, Phase};

use super::DbError;

/// Makes the open interval say what the job's new phase means. A stopping job keeps the interval that it has, since
/// its processes still run; a suspended or ended one has none.
pub(super) async fn follow(
    tx: &mut PgConnection,
    id: JobId,
    attempt: i32,
    phase: Phase,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    let next = match phase {
        Phase::Queued => Some("queued"),
        Phase::Starting => Some("starting"),
        Phase::Running => Some("running"),
        Phase::Stopping => return Ok(()),
        Phase::Suspended | Phase::Succeeded | Phase::Failed | Phase::Cancelled => None,
    };
    sqlx::query!(
        r#"/* usage::follow close */
        update usage_intervals set to_at = greatest($2, from_at) where job_id = $1 and to_at is null"#,
        id.0,
        now
    )
    .execute(&mut *tx)
    .await?;
    if let Some(next) = next {
        sqlx::query!(
            r#"/* usage::follow open */
            insert into usage_intervals (job_id, seq, attempt, phase, from_at, replicas, cpu_milli, memory_bytes, gpus, node_type)
            select j.id, coalesce((select max(seq) from usage_intervals where job_id = j.id), 0) + 1, $2, $3,
                -- Never before the end of the one before it, whatever this machine's clock says.
                greatest($4, (select max(to_at) from usage_intervals where job_id = j.id)),
                j.replicas, j.cpu_milli, j.memory_bytes, j.gpus, c.provider
            from jobs j left join clusters c on c.id = j.cluster_id where j.id = $1"#,
            id.0,
            attempt,
            next,
            now
        )
        .execute(tx)
        .await?;
    }
    Ok(())
}

/// Splits the running time of an ended attempt into what was kept and what was lost. `kept_until`: the time of its
/// last checkpoint; the end itself where the attempt succeeded; `None` where nothing was kept. It may be done again when a
/// later checkpoint becomes known.
pub async fn settle(
    tx: &mut PgConnection,
    id: JobId,
    attempt: i32,
    kept_until: Option<DateTime<Utc>>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* usage::settle split */
        insert into usage_intervals
            (job_id, seq, attempt, phase, kept, from_at, to_at, replicas, cpu_milli, memory_bytes, gpus, node_type, price_per_hour)
        select job_id, (select max(seq) from usage_intervals where job_id = $1) + row_number() over (order by seq),
            attempt, phase, false, $3, to_at, replicas, cpu_milli, memory_bytes, gpus, node_type, price_per_hour
        from usage_intervals
        where job_id = $1 and attempt = $2 and phase = 'running'
            and from_at < $3 and $3 < to_at"#,
        id.0,
        attempt,
        kept_until
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        r#"/* usage::settle */
        update usage_intervals set
            kept = $3::timestamptz is not null and from_at < $3,
            to_at = case when from_at < $3 and $3 < to_at then $3 else to_at end
        where job_id = $1 and attempt = $2 and phase = 'running' and to_at is not null"#,
        id.0,
        attempt,
        kept_until
    )
    .execute(tx)
    .await?;
    Ok(())
}
