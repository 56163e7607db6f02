//! One flush of a worker. Everything here runs in the transaction that proved the holding, so a flush is stored once
//! or not at all, whoever is killed meanwhile.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::{AttemptId, ClusterId, IncarnationId, JobId, LogStream, ReplicaKey, StreamId};
use uuid::Uuid;

use super::{Body, ChunkRow, JobKey, StreamRow, time};
use crate::db::{Db, DbError, fences, word};

/// An attempt of which some output may not be stored yet.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenAttempt {
    pub id: AttemptId,
    pub number: i32,
    pub key: JobKey,
    /// The record says that it ended: no new streams will come.
    pub ended: bool,
}

/// The attempts of a cluster whose output is not stored whole.
pub async fn open_attempts(db: &Db, cluster: ClusterId) -> Result<Vec<OpenAttempt>, DbError> {
    let rows = sqlx::query!(
        r#"/* logs::open_attempts */
        select a.id, a.number, a.job_id, a.phase = 'ended' as "ended!", j.retention
        from attempts a join jobs j on j.id = a.job_id
        where a.cluster_id = $1 and a.released_at is null and a.output_stored_at is null
        order by a.id"#,
        cluster.0
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(OpenAttempt {
                id: AttemptId(row.id),
                number: row.number,
                key: JobKey::of_worker(JobId(row.job_id), word("jobs", row.job_id, &row.retention)?),
                ended: row.ended,
            })
        })
        .collect()
}

/// A stream that the runtime has and we may not know yet.
#[derive(Debug, Clone, PartialEq)]
pub struct NewStream {
    pub id: StreamId,
    pub replica: ReplicaKey,
    pub incarnation: IncarnationId,
    pub stream: LogStream,
}

/// A stream with what only its writer needs.
#[derive(Debug, Clone, PartialEq)]
pub struct WrittenStream {
    pub row: StreamRow,
    pub source_offset: u64,
    pub state: Vec<u8>,
    /// Gaps that already stand at the end.
    pub gaps_at_end: i16,
    pub unsealed_rows: i64,
    pub unsealed_bytes: i64,
}

/// Makes the rows of an attempt's streams seen for the first time, and answers all that it has. Doing it again changes
/// nothing. A stream whose replica has no record is left out.
pub async fn open_streams(
    tx: &mut PgConnection,
    key: JobKey,
    attempt: AttemptId,
    streams: &[NewStream],
) -> Result<Vec<WrittenStream>, DbError> {
    let ids: Vec<Uuid> = streams.iter().map(|stream| stream.id.0).collect();
    let roles: Vec<String> = streams.iter().map(|stream| stream.replica.role.clone()).collect();
    let indices: Vec<i32> = streams.iter().map(|stream| stream.replica.index as i32).collect();
    let incarnations: Vec<Uuid> = streams.iter().map(|stream| stream.incarnation.0).collect();
    let names: Vec<String> = streams.iter().map(|stream| stream.stream.to_string()).collect();
    sqlx::query!(
        r#"/* logs::open_streams insert */
        insert into log_streams
            (class, job_id, id, attempt, attempt_id, role, index, rank, incarnation_id, stream)
        select $1, $2, n.id, a.number, a.id, r.role, r.index, r.rank, n.incarnation, n.stream
        from unnest($4::uuid[], $5::text[], $6::int[], $7::uuid[], $8::text[])
                 as n (id, role, index, incarnation, stream)
        join attempts a on a.id = $3
        join replicas r on r.attempt_id = a.id and r.role = n.role and r.index = n.index
        on conflict do nothing"#,
        key.class.as_str(),
        key.job.0,
        attempt.0,
        &ids,
        &roles,
        &indices,
        &incarnations,
        &names
    )
    .execute(&mut *tx)
    .await?;
    let rows = sqlx::query!(
        r#"/* logs::open_streams */
        select s.id, s.attempt, s.attempt_id, s.role, s.index, s.rank, s.incarnation_id, s.stream, s.bytes, s.lines,
               s.line_start, s.dropped_bytes, s.first_at, s.last_at, s.ended_at, s.removed_at, s.source_offset,
               s.ingest_state,
               (select count(*) from log_chunks c
                where c.class = s.class and c.job_id = s.job_id and c.stream_id = s.id
                  and c.byte_offset = s.bytes and c.kind = 'gap') as "gaps!",
               u.rows as "unsealed_rows!", u.bytes as "unsealed_bytes!"
        from log_streams s
        cross join lateral (
            select count(*) as rows, coalesce(sum(c.bytes), 0)::bigint as bytes from log_chunks c
            where c.class = s.class and c.job_id = s.job_id and c.stream_id = s.id and not c.sealed
        ) u
        where s.class = $1 and s.job_id = $2 and s.attempt_id = $3"#,
        key.class.as_str(),
        key.job.0,
        attempt.0
    )
    .fetch_all(tx)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(WrittenStream {
                row: StreamRow {
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
                },
                source_offset: row.source_offset as u64,
                state: row.ingest_state.unwrap_or_default(),
                gaps_at_end: row.gaps.try_into().unwrap_or(i16::MAX),
                unsealed_rows: row.unsealed_rows,
                unsealed_bytes: row.unsealed_bytes,
            })
        })
        .collect()
}

/// The time of the newest flush of a job. The next one must be later, whatever the clocks say.
pub async fn newest_flush(tx: &mut PgConnection, key: JobKey) -> Result<i64, DbError> {
    let newest = sqlx::query_scalar!(
        "/* logs::newest_flush */ select max(last_at) from log_streams where class = $1 and job_id = $2",
        key.class.as_str(),
        key.job.0
    )
    .fetch_one(tx)
    .await?;
    Ok(newest.map_or(0, |at| at.timestamp_millis()))
}

/// How far one stream got in this flush.
#[derive(Debug, Clone, PartialEq)]
pub struct Advance {
    pub key: JobKey,
    pub stream: StreamId,
    /// Where the worker believed the stream to be; anything else in the record refuses the flush.
    pub from_source: u64,
    pub source_offset: u64,
    pub bytes: u64,
    pub lines: u64,
    pub line_start: u64,
    pub dropped_bytes: u64,
    /// Added to what its chunks take.
    pub stored_bytes: u64,
    pub state: Vec<u8>,
    pub at: i64,
    pub ended: bool,
}

/// Stores the chunks of a flush and moves its streams on. `Stale`: a stream was not where the worker believed it.
pub async fn store(
    tx: &mut PgConnection,
    chunks: Vec<(JobKey, ChunkRow)>,
    advances: &[Advance],
) -> Result<(), DbError> {
    let classes: Vec<String> = advances.iter().map(|a| a.key.class.to_string()).collect();
    let jobs: Vec<Uuid> = advances.iter().map(|a| a.key.job.0).collect();
    let ids: Vec<Uuid> = advances.iter().map(|a| a.stream.0).collect();
    let mut from: Vec<i64> = advances.iter().map(|a| a.from_source as i64).collect();
    let source: Vec<i64> = advances.iter().map(|a| a.source_offset as i64).collect();
    let bytes: Vec<i64> = advances.iter().map(|a| a.bytes as i64).collect();
    let lines: Vec<i64> = advances.iter().map(|a| a.lines as i64).collect();
    let line_starts: Vec<i64> = advances.iter().map(|a| a.line_start as i64).collect();
    let dropped: Vec<i64> = advances.iter().map(|a| a.dropped_bytes as i64).collect();
    let stored: Vec<i64> = advances.iter().map(|a| a.stored_bytes as i64).collect();
    let states: Vec<Vec<u8>> = advances.iter().map(|a| a.state.clone()).collect();
    let mut times: Vec<DateTime<Utc>> = advances.iter().map(|a| time(a.at)).collect();
    if fences::are_skipped() {
        (from, times) = where_they_are(tx, &ids).await?;
    }
    let ended: Vec<bool> = advances.iter().map(|a| a.ended).collect();
    let done = sqlx::query!(
        r#"/* logs::store streams */
        update log_streams s set
            source_offset = a.source, bytes = a.bytes, lines = a.lines, line_start = a.line_start,
            dropped_bytes = a.dropped, stored_bytes = s.stored_bytes + a.stored,
            ingest_state = nullif(a.state, ''::bytea),
            first_at = coalesce(s.first_at, a.at), last_at = a.at,
            ended_at = case when a.ended then a.at end
        from unnest($1::text[], $2::uuid[], $3::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[],
                    $8::bigint[], $9::bigint[], $10::bigint[], $11::bytea[], $12::timestamptz[], $13::bool[])
                 as a (class, job, id, from_source, source, bytes, lines, line_start, dropped, stored, state, at, ended)
        where s.class = a.class and s.job_id = a.job and s.id = a.id
          and s.source_offset = a.from_source and s.ended_at is null
          and (s.last_at is null or s.last_at < a.at)"#,
        &classes,
        &jobs,
        &ids,
        &from,
        &source,
        &bytes,
        &lines,
        &line_starts,
        &dropped,
        &stored,
        &states,
        &times,
        &ended
    )
    .execute(&mut *tx)
    .await?;
    if done.rows_affected() != advances.len() as u64 {
        return Err(DbError::Stale);
    }
    insert_chunks(tx, chunks).await
}

/// Where streams are, and a time after their last one, whatever the writer believes: so nothing is left of [`store`]'s
/// proof when tests switch it off.
async fn where_they_are(tx: &mut PgConnection, streams: &[Uuid]) -> Result<(Vec<i64>, Vec<DateTime<Utc>>), DbError> {
    let found = sqlx::query_as::<_, (i64, DateTime<Utc>)>(
        "/* logs::where_they_are */
         select s.source_offset, coalesce(s.last_at, '2000-01-01') + interval '1 millisecond'
         from unnest($1::uuid[]) with ordinality as w (id, place)
         join log_streams s on s.id = w.id order by w.place for update of s",
    );
    Ok(found.bind(streams).fetch_all(tx).await?.into_iter().unzip())
}

/// Writes chunk rows as they are. For a flush, and for the merged row that takes the place of small ones.
pub(super) async fn insert_chunks(tx: &mut PgConnection, chunks: Vec<(JobKey, ChunkRow)>) -> Result<(), DbError> {
    if chunks.is_empty() {
        return Ok(());
    }
    let count = chunks.len();
    let mut classes = Vec::with_capacity(count);
    let mut jobs = Vec::with_capacity(count);
    let mut streams = Vec::with_capacity(count);
    let mut offsets = Vec::with_capacity(count);
    let mut places = Vec::with_capacity(count);
    let mut bytes = Vec::with_capacity(count);
    let mut first_lines = Vec::with_capacity(count);
    let mut lines = Vec::with_capacity(count);
    let mut line_starts = Vec::with_capacity(count);
    let mut first_times = Vec::with_capacity(count);
    let mut last_times = Vec::with_capacity(count);
    let mut marks = Vec::with_capacity(count);
    let mut sealed = Vec::with_capacity(count);
    let mut codecs = Vec::with_capacity(count);
    let mut data = Vec::with_capacity(count);
    let mut gap_reasons = Vec::with_capacity(count);
    let mut gap_bytes = Vec::with_capacity(count);
    for (key, chunk) in chunks {
        classes.push(key.class.to_string());
        jobs.push(key.job.0);
        streams.push(chunk.stream.0);
        offsets.push(chunk.byte_offset as i64);
        places.push(chunk.place);
        bytes.push(chunk.bytes as i64);
        first_lines.push(chunk.first_line as i64);
        lines.push(chunk.lines as i64);
        line_starts.push(chunk.line_start as i64);
        first_times.push(time(chunk.first_at));
        last_times.push(time(chunk.last_at));
        marks.push(chunk.marks);
        sealed.push(chunk.sealed);
        match chunk.body {
            Body::Output { codec, data: body, .. } => {
                codecs.push(codec.as_str().to_owned());
                data.push(body);
                gap_reasons.push(None);
                gap_bytes.push(None);
            }
            Body::Gap { reason, bytes } => {
                codecs.push("raw".to_owned());
                data.push(None);
                gap_reasons.push(Some(reason));
                gap_bytes.push(bytes.map(|bytes| bytes as i64));
            }
        }
    }
    sqlx::query!(
        r#"/* logs::insert_chunks */
        insert into log_chunks (class, job_id, stream_id, byte_offset, place, bytes, first_line, lines, line_start,
                                first_at, last_at, marks, sealed, codec, data, gap_reason, gap_bytes, kind)
        select c.*, case when c.place = 32767 then 'output' else 'gap' end
        from unnest($1::text[], $2::uuid[], $3::uuid[], $4::bigint[], $5::smallint[], $6::bigint[], $7::bigint[],
                    $8::bigint[], $9::bigint[], $10::timestamptz[], $11::timestamptz[], $12::bytea[], $13::bool[],
                    $14::text[], $15::bytea[], $16::text[], $17::bigint[])
                 as c (class, job_id, stream_id, byte_offset, place, bytes, first_line, lines, line_start,
                       first_at, last_at, marks, sealed, codec, data, gap_reason, gap_bytes)"#,
        &classes,
        &jobs,
        &streams,
        &offsets,
        &places,
        &bytes,
        &first_lines,
        &lines,
        &line_starts,
        &first_times,
        &last_times,
        &marks,
        &sealed,
        &codecs,
        &data as &[Option<Vec<u8>>],
        &gap_reasons as &[Option<String>],
        &gap_bytes as &[Option<i64>]
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What a replica did in this flush, beyond bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaNews {
    pub attempt: AttemptId,
    pub replica: ReplicaKey,
    pub at: i64,
    pub step: Option<i64>,
}

/// Takes the rows of jobs in one order before anything else of the flush, so that two transactions that want several
/// of them wait for each other and never in a circle.
pub async fn lock_jobs(tx: &mut PgConnection, jobs: &[JobId]) -> Result<(), DbError> {
    let ids: Vec<Uuid> = jobs.iter().map(|job| job.0).collect();
    sqlx::query!(
        "/* logs::lock_jobs */ select id from jobs where id = any($1) order by id for no key update",
        &ids
    )
    .fetch_all(tx)
    .await?;
    Ok(())
}

/// Notes output and steps of replicas. A step never goes back within a replica's record.
pub async fn note_replicas(tx: &mut PgConnection, news: &[ReplicaNews]) -> Result<(), DbError> {
    if news.is_empty() {
        return Ok(());
    }
    let attempts: Vec<Uuid> = news.iter().map(|n| n.attempt.0).collect();
    let roles: Vec<String> = news.iter().map(|n| n.replica.role.clone()).collect();
    let indices: Vec<i32> = news.iter().map(|n| n.replica.index as i32).collect();
    let times: Vec<DateTime<Utc>> = news.iter().map(|n| time(n.at)).collect();
    let steps: Vec<Option<i64>> = news.iter().map(|n| n.step).collect();
    sqlx::query!(
        r#"/* logs::note_replicas */
        update replicas r set
            last_output_at = greatest(r.last_output_at, n.at),
            step_at = case when n.step > coalesce(r.step, -1) then n.at else r.step_at end,
            step = greatest(r.step, n.step)
        from unnest($1::uuid[], $2::text[], $3::int[], $4::timestamptz[], $5::bigint[])
                 as n (attempt, role, index, at, step)
        where r.attempt_id = n.attempt and r.role = n.role and r.index = n.index"#,
        &attempts,
        &roles,
        &indices,
        &times,
        &steps as &[Option<i64>]
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// How far a job got in this flush.
#[derive(Debug, Clone, PartialEq)]
pub struct JobNews {
    pub job: JobId,
    /// Only its newest attempt speaks for the job.
    pub attempt: i32,
    pub step: Option<i64>,
    pub total: Option<i64>,
    pub at: i64,
}

/// Notes a job's step. Within an attempt it does not go back; a new attempt starts where it resumes.
pub async fn note_jobs(tx: &mut PgConnection, news: &[JobNews]) -> Result<(), DbError> {
    if news.is_empty() {
        return Ok(());
    }
    let jobs: Vec<Uuid> = news.iter().map(|n| n.job.0).collect();
    let attempts: Vec<i32> = news.iter().map(|n| n.attempt).collect();
    let steps: Vec<Option<i64>> = news.iter().map(|n| n.step).collect();
    let totals: Vec<Option<i64>> = news.iter().map(|n| n.total).collect();
    let times: Vec<DateTime<Utc>> = news.iter().map(|n| time(n.at)).collect();
    sqlx::query!(
        r#"/* logs::note_jobs */
        update jobs j set
            step = coalesce(greatest(n.step, furthest.step), j.step),
            step_at = case when n.step is not null then n.at else j.step_at end,
            total_steps = coalesce(n.total, j.total_steps)
        from unnest($1::uuid[], $2::int[], $3::bigint[], $4::bigint[], $5::timestamptz[])
                 as n (job, attempt, step, total, at)
        left join lateral (
            select max(r.step) as step from attempts a join replicas r on r.attempt_id = a.id
            where a.job_id = n.job and a.number = n.attempt
        ) furthest on true
        where j.id = n.job and j.attempt = n.attempt"#,
        &jobs,
        &attempts,
        &steps as &[Option<i64>],
        &totals as &[Option<i64>],
        &times
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Records a checkpoint that a line reported. `false`: it was recorded before.
pub async fn add_checkpoint(
    tx: &mut PgConnection,
    job: JobId,
    attempt: i32,
    step: i64,
    path: &str,
    at: i64,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"/* logs::add_checkpoint */
        insert into checkpoints (job_id, attempt, step, path, at, source) values ($1, $2, $3, $4, $5, 'line')
        on conflict do nothing"#,
        job.0,
        attempt,
        step,
        path,
        time(at)
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Every byte of these ended attempts is stored; the runtime may forget them.
pub async fn output_stored(tx: &mut PgConnection, attempts: &[AttemptId], at: i64) -> Result<(), DbError> {
    let ids: Vec<Uuid> = attempts.iter().map(|attempt| attempt.0).collect();
    sqlx::query!(
        r#"/* logs::output_stored */
        update attempts set output_stored_at = $2
        where id = any($1) and output_stored_at is null and phase = 'ended'"#,
        &ids,
        time(at)
    )
    .execute(tx)
    .await?;
    Ok(())
}
