//! Chunks for readers. Every query finds its first row through an index, whatever the stream's length; none depends on
//! how rows are cut, since small ones are merged while people read.

use trainyard_core::model::{AttemptId, IncarnationId, StreamId};
use uuid::Uuid;

use super::{ChunkRow, JobKey, RawChunk, StreamRow, time};
use crate::db::{Db, DbError, word};

/// The streams of a job, in the order of attempts and their ids.
pub async fn streams(db: &Db, key: JobKey) -> Result<Vec<StreamRow>, DbError> {
    moved(db, key, &[]).await
}

/// The streams that got something after the flushes seen of their attempts, (attempt, time) each. One statement, so one
/// snapshot: a flush is in it for all its streams or for none.
pub async fn moved(db: &Db, key: JobKey, seen: &[(i32, i64)]) -> Result<Vec<StreamRow>, DbError> {
    let attempts: Vec<i32> = seen.iter().map(|(attempt, _)| *attempt).collect();
    let times: Vec<_> = seen.iter().map(|(_, at)| time(*at)).collect();
    let rows = sqlx::query!(
        r#"/* logs::moved */
        select id, s.attempt, attempt_id, role, index, rank, incarnation_id, stream, bytes, lines, line_start,
               dropped_bytes, first_at, last_at, ended_at, removed_at
        from log_streams s
        left join unnest($3::int[], $4::timestamptz[]) as seen (attempt, at) on seen.attempt = s.attempt
        where class = $1 and job_id = $2 and (seen.at is null or s.last_at > seen.at)
        order by s.attempt, id"#,
        key.class.as_str(),
        key.job.0,
        &attempts,
        &times
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(StreamRow {
                id: StreamId(row.id),
                key,
                attempt: row.attempt,
                attempt_id: AttemptId(row.attempt_id),
                role: row.role,
                index: row.index,
                rank: row.rank,
                incarnation: IncarnationId(row.incarnation_id),
                stream: word("log_streams", row.id, &row.stream)?,
                bytes: row.bytes as u64,
                lines: row.lines as u64,
                line_start: row.line_start as u64,
                dropped_bytes: row.dropped_bytes as u64,
                first_at: row.first_at,
                last_at: row.last_at,
                ended_at: row.ended_at,
                removed_at: row.removed_at,
            })
        })
        .collect()
}

/// The chunk that holds the byte at `offset` and those after it, in order, until about `max_bytes` of text.
/// A gap at `offset` comes first.
pub async fn chunks(
    db: &Db,
    key: JobKey,
    stream: StreamId,
    offset: u64,
    max_bytes: u64,
) -> Result<Vec<ChunkRow>, DbError> {
    let rows = sqlx::query_as!(
        RawChunk,
        r#"/* logs::chunks */
        select stream_id, byte_offset, place, bytes, first_line, lines, line_start, first_at, last_at, marks, sealed,
               gap_reason, gap_bytes, codec, location, data
        from (
            select c.*, (sum(bytes) over (order by byte_offset, place))::bigint - bytes as before
            from log_chunks c
            where class = $1 and job_id = $2 and stream_id = $3
              and byte_offset >= coalesce((
                  select byte_offset from log_chunks
                  where class = $1 and job_id = $2 and stream_id = $3 and byte_offset <= $4
                  order by byte_offset desc limit 1), 0)
              and (byte_offset >= $4 or byte_offset + bytes > $4)
            order by byte_offset, place limit 256
        ) page
        where before < $5
        order by byte_offset, place"#,
        key.class.as_str(),
        key.job.0,
        stream.0,
        offset as i64,
        max_bytes as i64
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter().map(ChunkRow::try_from).collect()
}

/// What a reader looks for in a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// The output chunk that holds this byte, or the last one before it.
    Byte(u64),
    /// The chunk that holds the `n`th line end, counted from 1.
    LineEnd(u64),
    /// The first chunk with something of this time (ms) or later.
    Time(i64),
}

/// The one chunk in which a reader's target lies. `None`: there is none.
pub async fn find(db: &Db, key: JobKey, stream: StreamId, target: Target) -> Result<Option<ChunkRow>, DbError> {
    let Some(offset) = locate(db, key, stream, target).await? else {
        return Ok(None);
    };
    let row = sqlx::query_as!(
        RawChunk,
        r#"/* logs::find */
        select stream_id, byte_offset, place, bytes, first_line, lines, line_start, first_at, last_at, marks, sealed,
               gap_reason, gap_bytes, codec, location, data
        from log_chunks
        where class = $1 and job_id = $2 and stream_id = $3 and byte_offset <= $4 and kind = 'output'
        order by byte_offset desc limit 1"#,
        key.class.as_str(),
        key.job.0,
        stream.0,
        offset
    )
    .fetch_optional(&db.pool)
    .await?;
    row.map(ChunkRow::try_from).transpose()
}

/// The offset of the target's chunk. Sealed chunks have indexes by line and time; unsealed ones are few.
async fn locate(db: &Db, key: JobKey, stream: StreamId, target: Target) -> Result<Option<i64>, DbError> {
    let (class, job) = (key.class.as_str(), key.job.0);
    Ok(match target {
        Target::Byte(offset) => Some(offset as i64),
        Target::LineEnd(line) => {
            sqlx::query_scalar!(
                r#"/* logs::locate line */
                select max(byte_offset) from (
                    (select byte_offset from log_chunks
                     where class = $1 and job_id = $2 and stream_id = $3 and sealed and first_line < $4
                     order by first_line desc, byte_offset desc limit 1)
                    union all
                    (select byte_offset from log_chunks
                     where class = $1 and job_id = $2 and stream_id = $3 and not sealed and first_line < $4
                     order by byte_offset desc limit 1)
                ) found"#,
                class,
                job,
                stream.0,
                line as i64
            )
            .fetch_one(&db.pool)
            .await?
        }
        Target::Time(at) => {
            sqlx::query_scalar!(
                r#"/* logs::locate time */
                select min(byte_offset) from (
                    (select byte_offset from log_chunks
                     where class = $1 and job_id = $2 and stream_id = $3 and sealed and last_at >= $4
                     order by last_at, byte_offset limit 1)
                    union all
                    (select byte_offset from log_chunks
                     where class = $1 and job_id = $2 and stream_id = $3 and not sealed and last_at >= $4
                     order by byte_offset limit 1)
                ) found"#,
                class,
                job,
                stream.0,
                time(at)
            )
            .fetch_one(&db.pool)
            .await?
        }
    })
}

/// A range of a stream that a live reader wants: the bytes from `from` to `to`, and gaps after the flush `after`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    pub stream: StreamId,
    pub from: u64,
    pub to: u64,
    pub after: i64,
}

/// The rows that cover ranges of several streams, by stream and in order. They may reach beyond the ranges.
pub async fn ranges(db: &Db, key: JobKey, wanted: &[Wanted]) -> Result<Vec<ChunkRow>, DbError> {
    let ids: Vec<Uuid> = wanted.iter().map(|wanted| wanted.stream.0).collect();
    let from: Vec<i64> = wanted.iter().map(|wanted| wanted.from as i64).collect();
    let to: Vec<i64> = wanted.iter().map(|wanted| wanted.to as i64).collect();
    let after: Vec<_> = wanted.iter().map(|wanted| time(wanted.after)).collect();
    let rows = sqlx::query_as!(
        RawChunk,
        r#"/* logs::ranges */
        select c.stream_id as "stream_id!", c.byte_offset as "byte_offset!", c.place as "place!", c.bytes as "bytes!",
               c.first_line as "first_line!", c.lines as "lines!", c.line_start as "line_start!",
               c.first_at as "first_at!", c.last_at as "last_at!", c.marks as "marks!", c.sealed as "sealed!",
               c.gap_reason, c.gap_bytes, c.codec as "codec!", c.location as "location!", c.data
        from unnest($3::uuid[], $4::bigint[], $5::bigint[], $6::timestamptz[]) as w (id, from_byte, to_byte, after)
        cross join lateral (
            select l.* from log_chunks l
            where l.class = $1 and l.job_id = $2 and l.stream_id = w.id
              and l.byte_offset >= coalesce((
                  select p.byte_offset from log_chunks p
                  where p.class = $1 and p.job_id = $2 and p.stream_id = w.id and p.byte_offset <= w.from_byte
                  order by p.byte_offset desc limit 1), 0)
              and l.byte_offset <= w.to_byte
              and case when l.kind = 'gap' then l.byte_offset >= w.from_byte and l.first_at > w.after
                       else l.byte_offset + l.bytes > w.from_byte and l.byte_offset < w.to_byte end
        ) c
        order by c.stream_id, c.byte_offset, c.place"#,
        key.class.as_str(),
        key.job.0,
        &ids,
        &from,
        &to,
        &after
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter().map(ChunkRow::try_from).collect()
}
