//! What a job held, from when to when, as people see it.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::{Db, DbError, jobs_read::Home};

/// One stretch of one phase with the resources held.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct UsageInterval {
    pub seq: i32,
    /// 0: the wait before the first attempt.
    pub attempt: i32,
    /// `queued`, `starting` or `running`.
    pub phase: String,
    /// Of running time of an ended attempt: `true` up to its last checkpoint, `false` after it.
    pub kept: Option<bool>,
    pub from: DateTime<Utc>,
    /// `null`: it goes on.
    pub to: Option<DateTime<Utc>>,
    pub replicas: i32,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpus: i32,
    pub node_type: Option<String>,
}

/// Sums over all intervals of a job; open ones are counted to now. Everything in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct UsageTotals {
    pub queued: f64,
    pub starting: f64,
    pub running: f64,
    /// Of the running time: what led to a checkpoint or a success, and what was lost. The rest is not settled yet.
    pub running_kept: f64,
    pub running_lost: f64,
    /// Replicas times running time.
    pub replica_seconds: f64,
    /// GPUs times the time that they were held, starting included.
    pub gpu_seconds: f64,
    /// Cores times the time that they were held, starting included.
    pub core_seconds: f64,
}

pub async fn intervals(db: &Db, home: &Home, after: i32, limit: i64) -> Result<Vec<UsageInterval>, DbError> {
    Ok(sqlx::query_as!(
        UsageInterval,
        r#"/* usage_read::intervals */
        select seq, attempt, phase, kept, from_at as "from", to_at as "to", replicas, cpu_milli, memory_bytes, gpus,
            node_type
        from usage_intervals where job_id = $1 and seq > $2 order by seq limit $3"#,
        home.id.0,
        after,
        limit
    )
    .fetch_all(&db.pool)
    .await?)
}

pub async fn totals(db: &Db, home: &Home, now: DateTime<Utc>) -> Result<UsageTotals, DbError> {
    Ok(sqlx::query_as!(
        UsageTotals,
        r#"/* usage_read::totals */
        with i as (
            select phase, kept, replicas, cpu_milli, gpus,
                extract(epoch from greatest(coalesce(to_at, $2), from_at) - from_at)::float8 as seconds
            from usage_intervals where job_id = $1
        )
        select coalesce(sum(seconds) filter (where phase = 'queued'), 0) as "queued!",
            coalesce(sum(seconds) filter (where phase = 'starting'), 0) as "starting!",
            coalesce(sum(seconds) filter (where phase = 'running'), 0) as "running!",
            coalesce(sum(seconds) filter (where phase = 'running' and kept), 0) as "running_kept!",
            coalesce(sum(seconds) filter (where phase = 'running' and not kept), 0) as "running_lost!",
            coalesce(sum(seconds * replicas) filter (where phase = 'running'), 0) as "replica_seconds!",
            coalesce(sum(seconds * gpus) filter (where phase <> 'queued'), 0) as "gpu_seconds!",
            coalesce(sum(seconds * cpu_milli / 1000.0) filter (where phase <> 'queued'), 0) as "core_seconds!"
        from i"#,
        home.id.0,
        now
    )
    .fetch_one(&db.pool)
    .await?)
}
