//! The last steps that replicas reported, for judging whether they still get on.

use std::collections::BTreeMap;

use trainyard_core::{
    model::{JobId, ReplicaKey, Retention},
    plan::hang::StepAt,
};

use super::{Db, DbError};

/// Points that are looked at per replica.
const KEPT: usize = 60;
/// Lines that are looked at per replica: so many give as many points, or more where rows were merged.
const LINES: i64 = 30;

/// The newest steps of every replica of an attempt, oldest first, from two of its series that carry steps: the one that
/// spoke last, and the one that spoke most often, since an evaluation's pace is not the replica's. Goes from series to
/// series along the primary key and reads the ends of these two, however long the attempt has run and however many there
/// are. The one that speaks more rarely counts as far back as the other one was read.
pub async fn recent(
    db: &Db,
    job: JobId,
    class: Retention,
    attempt: i32,
) -> Result<BTreeMap<ReplicaKey, Vec<StepAt>>, DbError> {
    let rows = sqlx::query!(
        r#"/* steps::recent */
        with recursive keys as (
            (select series, role, index from metric_chunks where class = $1 and owner_id = $2 and attempt = $3
             order by series, role, index limit 1)
            union all
            select n.series, n.role, n.index from keys k cross join lateral (
                select series, role, index from metric_chunks
                where class = $1 and owner_id = $2 and attempt = $3
                    and (series, role, index) > (k.series, k.role, k.index)
                order by series, role, index limit 1
            ) n
        ), ends as (
            select k.series, k.role, k.index,
                row_number() over (partition by k.role, k.index order by c.last_at desc, c.seq desc) as newest,
                row_number() over (partition by k.role, k.index order by c.seq desc, c.last_at desc) as longest
            from keys k cross join lateral (
                select steps, last_at, seq from metric_chunks
                where class = $1 and owner_id = $2 and attempt = $3
                    and series = k.series and role = k.role and index = k.index
                order by seq desc limit 1
            ) c where c.steps[cardinality(c.steps)] is not null
        ), newest as (
            select k.role, k.index, c.steps, c.times,
                dense_rank() over (partition by k.role, k.index order by c.last_at desc) as line
            from ends k cross join lateral (
                select steps[cardinality(steps) - $4 + 1:] as steps, times[cardinality(steps) - $4 + 1:] as times, last_at
                from metric_chunks
                where class = $1 and owner_id = $2 and attempt = $3
                    and series = k.series and role = k.role and index = k.index
                order by seq desc limit $5
            ) c where (k.newest = 1 or k.longest = 1) and c.steps[cardinality(c.steps)] is not null
        )
        select role as "role!", index as "index!", steps as "steps!: Vec<Option<i64>>", times as "times!"
        from newest where line <= $5"#,
        class.as_str(),
        job.0,
        attempt,
        KEPT as i32,
        LINES
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
