//! Keeping the store small: many small rows become one, and what is old goes.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::{AttemptId, ClusterId, JobId, Retention, StreamId};

use super::{ChunkRow, JobKey, OUTPUT_PLACE, RawChunk, time, write::insert_chunks};
use crate::db::{Db, DbError, partitions, word};

/// How one row lies in its stream, without its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lie {
    pub byte_offset: u64,
    pub bytes: u64,
    /// Output is missing before it: it must not be merged with what comes before.
    pub behind_gap: bool,
}

/// The unsealed rows of a stream, in order.
pub async fn unsealed(db: &Db, key: JobKey, stream: StreamId) -> Result<Vec<Lie>, DbError> {
    let rows = sqlx::query!(
        r#"/* logs::unsealed */
        select byte_offset, bytes,
               exists (select 1 from log_chunks g
                       where g.class = $1 and g.job_id = $2 and g.stream_id = $3 and g.byte_offset = c.byte_offset
                         and g.kind = 'gap') as "behind_gap!"
        from log_chunks c
        where class = $1 and job_id = $2 and stream_id = $3 and not sealed
        order by byte_offset"#,
        key.class.as_str(),
        key.job.0,
        stream.0
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Lie {
            byte_offset: row.byte_offset as u64,
            bytes: row.bytes as u64,
            behind_gap: row.behind_gap,
        })
        .collect())
}

/// Streams of a cluster that still have unsealed rows: after a restart somebody must look at them again.
pub async fn with_unsealed(
    db: &Db,
    cluster: ClusterId,
    ended: bool,
    limit: i64,
) -> Result<Vec<(JobKey, StreamId)>, DbError> {
    let rows = sqlx::query!(
        r#"/* logs::with_unsealed */
        select s.class, s.job_id, s.id
        from (select distinct class, job_id, stream_id from log_chunks where not sealed) u
        join log_streams s on s.class = u.class and s.job_id = u.job_id and s.id = u.stream_id
        join attempts a on a.id = s.attempt_id
        where a.cluster_id = $1 and (s.ended_at is not null) = $2
        limit $3"#,
        cluster.0,
        ended,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let key = JobKey::of_worker(JobId(row.job_id), word("log_streams", row.id, &row.class)?);
            Ok((key, StreamId(row.id)))
        })
        .collect()
}

/// The unsealed rows of a range, locked until the transaction ends.
pub async fn take(
    tx: &mut PgConnection,
    key: JobKey,
    stream: StreamId,
    from: u64,
    to: u64,
) -> Result<Vec<ChunkRow>, DbError> {
    let rows = sqlx::query_as!(
        RawChunk,
        r#"/* logs::take */
        select stream_id, byte_offset, place, bytes, first_line, lines, line_start, first_at, last_at, marks, sealed,
               gap_reason, gap_bytes, codec, location, data
        from log_chunks
        where class = $1 and job_id = $2 and stream_id = $3 and byte_offset >= $4 and byte_offset < $5 and not sealed
          and place = $6
        order by byte_offset
        for update"#,
        key.class.as_str(),
        key.job.0,
        stream.0,
        from as i64,
        to as i64,
        OUTPUT_PLACE
    )
    .fetch_all(tx)
    .await?;
    rows.into_iter().map(ChunkRow::try_from).collect()
}

/// Puts one row in the place of those taken. Readers see the old rows or the new one, never both and never neither.
pub async fn replace(
    tx: &mut PgConnection,
    key: JobKey,
    taken: &[ChunkRow],
    merged: ChunkRow,
    stored_delta: i64,
) -> Result<(), DbError> {
    let offsets: Vec<i64> = taken.iter().map(|row| row.byte_offset as i64).collect();
    let stream = merged.stream;
    let done = sqlx::query!(
        r#"/* logs::replace delete */
        delete from log_chunks
        where class = $1 and job_id = $2 and stream_id = $3 and byte_offset = any($4) and place = $5 and not sealed"#,
        key.class.as_str(),
        key.job.0,
        stream.0,
        &offsets,
        OUTPUT_PLACE
    )
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() != taken.len() as u64 {
        return Err(DbError::Stale);
    }
    insert_chunks(tx, vec![(key, merged)]).await?;
    sqlx::query!(
        r#"/* logs::replace stream */
        update log_streams set stored_bytes = greatest(stored_bytes + $4, 0)
        where class = $1 and job_id = $2 and id = $3"#,
        key.class.as_str(),
        key.job.0,
        stream.0,
        stored_delta
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// An attempt that retention may take: ended, its output stored whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Removable {
    pub attempt: AttemptId,
    pub key: JobKey,
    pub stored_bytes: u64,
    pub ended_at: DateTime<Utc>,
}

/// What all logs of a class take now.
pub async fn stored_bytes(db: &Db, class: Retention) -> Result<u64, DbError> {
    let sum = sqlx::query_scalar!(
        r#"/* logs::stored_bytes */
        select coalesce(sum(stored_bytes), 0)::bigint as "sum!" from log_streams
        where class = $1 and removed_at is null"#,
        class.as_str()
    )
    .fetch_one(&db.pool)
    .await?;
    Ok(sum as u64)
}

/// Attempts of a class that ended before a time and whose logs may go, those of the oldest jobs first.
///
/// A job's id is the time of its submission, and no attempt ends before that: so only jobs that were submitted before
/// `ended_before` are looked at, in the order of the index, and never the whole archive. The day's grace is for clocks
/// that disagree.
pub async fn removable(
    db: &Db,
    class: Retention,
    ended_before: DateTime<Utc>,
    limit: i64,
) -> Result<Vec<Removable>, DbError> {
    let rows = sqlx::query!(
        r#"/* logs::removable */
        select s.attempt_id, s.job_id, sum(s.stored_bytes)::bigint as "stored!", a.ended_at as "ended_at!"
        from log_streams s join attempts a on a.id = s.attempt_id
        where s.class = $1 and s.removed_at is null and s.job_id < $4
            and a.output_stored_at is not null and a.ended_at < $2
        group by s.job_id, s.attempt_id, a.ended_at
        order by s.job_id, s.attempt_id limit $3"#,
        class.as_str(),
        ended_before,
        limit,
        partitions::first_id(ended_before + chrono::Duration::days(1))
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Removable {
            attempt: AttemptId(row.attempt_id),
            key: JobKey::of_worker(JobId(row.job_id), class),
            stored_bytes: row.stored as u64,
            ended_at: row.ended_at,
        })
        .collect())
}

/// Removes an attempt's logs. Its streams stay, and say that and when their bytes went. Doing it again changes nothing.
pub async fn remove(db: &Db, attempt: &Removable, now: DateTime<Utc>) -> Result<(), DbError> {
    let mut tx = db.begin().await?;
    let streams = sqlx::query_scalar!(
        r#"/* logs::remove streams */
        update log_streams set removed_at = $3, stored_bytes = 0, ingest_state = null
        where class = $1 and job_id = $2 and attempt_id = $4 and removed_at is null
        returning id"#,
        attempt.key.class.as_str(),
        attempt.key.job.0,
        time(now.timestamp_millis()),
        attempt.attempt.0
    )
    .fetch_all(&mut *tx)
    .await?;
    sqlx::query!(
        "/* logs::remove */ delete from log_chunks where class = $1 and job_id = $2 and stream_id = any($3)",
        attempt.key.class.as_str(),
        attempt.key.job.0,
        &streams
    )
    .execute(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(())
}

/// Removes the oldest attempts of a class until its logs take at most `limit` bytes, and at most `most` of them.
/// Answers what went.
pub async fn hold_to_size(
    db: &Db,
    class: Retention,
    limit: u64,
    most: i64,
    now: DateTime<Utc>,
) -> Result<Vec<Removable>, DbError> {
    let mut total = stored_bytes(db, class).await?;
    if total <= limit {
        return Ok(Vec::new());
    }
    let mut removed = Vec::new();
    for attempt in removable(db, class, now, most).await? {
        if total <= limit {
            break;
        }
        remove(db, &attempt, now).await?;
        total = total.saturating_sub(attempt.stored_bytes);
        removed.push(attempt);
    }
    Ok(removed)
}

/// Removes the logs of attempts of a class that ended before a time, at most `limit` of them. Answers what went.
pub async fn expire(
    db: &Db,
    class: Retention,
    ended_before: DateTime<Utc>,
    limit: i64,
    now: DateTime<Utc>,
) -> Result<Vec<Removable>, DbError> {
    let some = removable(db, class, ended_before, limit).await?;
    for attempt in &some {
        remove(db, attempt, now).await?;
    }
    Ok(some)
}
