//! The last steps that replicas reported, for judging whether they still get on.

use std::collections::BTreeMap;

use trainyard_core::{
    model::{JobId, ReplicaKey, Retention},
    plan::hang::StepAt,
};

use super::{Db, DbError};

/// Points that are looked at per replica.
const KEPT: usize = 60;

/// The newest steps of every replica of an attempt, oldest first, from whatever series carried a step.
pub async fn recent(
    db: &Db,
    job: JobId,
    class: Retention,
    attempt: i32,
) -> Result<BTreeMap<ReplicaKey, Vec<StepAt>>, DbError> {
    let rows = sqlx::query!(
        r#"/* steps::recent */
        with replicas_of as (
            select distinct role, index from metric_chunks
            where class = $1 and owner_id = $2 and attempt = $3 and last_at > (
                select max(last_at) - interval '6 hours' from metric_chunks where class = $1 and owner_id = $2 and attempt = $3)
        )
        select r.role, r.index, c.steps as "steps!: Vec<Option<i64>>", c.times from replicas_of r
        cross join lateral (
            select steps, times, last_at from metric_chunks
            where class = $1 and owner_id = $2 and attempt = $3 and role = r.role and index = r.index
                and steps[cardinality(steps)] is not null
            order by last_at desc limit 40
        ) c"#,
        class.as_str(),
        job.0,
        attempt
    )
    .fetch_all(&db.pool)
    .await?;
    let mut found: BTreeMap<ReplicaKey, BTreeMap<i64, i64>> = BTreeMap::new();
    for row in rows {
        let points = found
            .entry(ReplicaKey {
                role: row.role,
                index: row.index as u32,
            })
            .or_default();
        for (step, time) in row.steps.into_iter().zip(row.times) {
            // Several series of one line carry the same step; its first time counts.
            if let Some(step) = step {
                points
                    .entry(step)
                    .and_modify(|at| *at = (*at).min(time))
                    .or_insert(time);
            }
        }
    }
    let recent = |points: BTreeMap<i64, i64>| {
        let skip = points.len().saturating_sub(KEPT);
        points
            .into_iter()
            .skip(skip)
            .filter_map(|(step, millis)| {
                Some(StepAt {
                    step,
                    at: chrono::DateTime::from_timestamp_millis(millis)?,
                })
            })
            .collect()
    };
    Ok(found.into_iter().map(|(key, points)| (key, recent(points))).collect())
}
