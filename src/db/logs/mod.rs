//! Log streams and their chunks, as rows. What the bytes mean is decided in `crate::logs` and `crate::worker::ingest`.
//!
//! - [`write`]: one flush of a worker: chunks, how far each stream got, what follows from it.
//! - [`read`]: pages of chunks for readers, found by byte, line or time.
//! - [`keep`]: merging small rows, and retention.
//! - [`follow`]: who reads live.

use chrono::{DateTime, Utc};
use trainyard_core::model::{AttemptId, IncarnationId, JobId, LogStream, Retention, StreamId};
use uuid::Uuid;

use super::{Db, DbError, Scope, word};

pub mod follow;
pub mod keep;
pub mod read;
pub mod write;

/// The `place` of output rows; gaps at the same offset come before it.
pub const OUTPUT_PLACE: i16 = i16::MAX;

/// A job whose logs and metrics may be read. Only [`readable`] makes one for people, so no read forgets who is asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobKey {
    job: JobId,
    class: Retention,
}

impl JobKey {
    pub fn job(self) -> JobId {
        self.job
    }

    pub fn class(self) -> Retention {
        self.class
    }

    /// For workers, which have read the job under their own right.
    pub fn of_worker(job: JobId, class: Retention) -> Self {
        Self { job, class }
    }
}

/// The key to a job's logs and metrics, if the scope may see the job. Deleted jobs are not found.
pub async fn readable(db: &Db, scope: &Scope, job: JobId) -> Result<JobKey, DbError> {
    let teams = scope.teams();
    let class = sqlx::query_scalar!(
        r#"/* logs::readable */
        select retention from jobs
        where id = $1 and deleted_at is null and ($2::uuid[] is null or team_id = any($2))"#,
        job.0,
        teams.as_deref()
    )
    .fetch_optional(&db.pool)
    .await?
    .ok_or(DbError::NotFound)?;
    Ok(JobKey {
        job,
        class: word("jobs", job, &class)?,
    })
}

/// One stream of output, as stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamRow {
    pub id: StreamId,
    pub key: JobKey,
    pub attempt: i32,
    pub attempt_id: AttemptId,
    pub role: String,
    pub index: i32,
    pub rank: i32,
    pub incarnation: IncarnationId,
    pub stream: LogStream,
    pub bytes: u64,
    pub lines: u64,
    pub line_start: u64,
    pub dropped_bytes: u64,
    pub first_at: Option<DateTime<Utc>>,
    pub last_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub removed_at: Option<DateTime<Utc>>,
}

/// A run of a stream's stored bytes, or a gap between two.
#[derive(Debug, Clone, PartialEq)]
pub struct ChunkRow {
    pub stream: StreamId,
    pub byte_offset: u64,
    pub place: i16,
    pub bytes: u64,
    pub first_line: u64,
    pub lines: u64,
    pub line_start: u64,
    /// Milliseconds since 1970, like every time in marks.
    pub first_at: i64,
    pub last_at: i64,
    pub marks: Vec<u8>,
    pub sealed: bool,
    pub body: Body,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Body {
    Output {
        codec: Codec,
        location: String,
        data: Option<Vec<u8>>,
    },
    /// Output that was never stored, in words. `None`: nobody knows how much.
    Gap { reason: String, bytes: Option<u64> },
}

/// How a chunk's bytes are written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Codec {
    Raw,
    Zstd,
}

impl Codec {
    pub fn as_str(self) -> &'static str {
        match self {
            Codec::Raw => "raw",
            Codec::Zstd => "zstd",
        }
    }
}

impl std::str::FromStr for Codec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "raw" => Ok(Codec::Raw),
            "zstd" => Ok(Codec::Zstd),
            other => Err(format!("unknown codec {other}")),
        }
    }
}

/// The columns of `log_chunks` that make a [`ChunkRow`], as every query here selects them.
struct RawChunk {
    stream_id: Uuid,
    byte_offset: i64,
    place: i16,
    bytes: i64,
    first_line: i64,
    lines: i64,
    line_start: i64,
    first_at: DateTime<Utc>,
    last_at: DateTime<Utc>,
    marks: Vec<u8>,
    sealed: bool,
    gap_reason: Option<String>,
    gap_bytes: Option<i64>,
    codec: String,
    location: String,
    data: Option<Vec<u8>>,
}

impl TryFrom<RawChunk> for ChunkRow {
    type Error = DbError;

    fn try_from(raw: RawChunk) -> Result<Self, DbError> {
        let key = || format!("{} at {}", raw.stream_id, raw.byte_offset);
        let body = if raw.place == OUTPUT_PLACE {
            Body::Output {
                codec: word("log_chunks", key(), &raw.codec)?,
                location: raw.location,
                data: raw.data,
            }
        } else {
            Body::Gap {
                reason: raw.gap_reason.unwrap_or_default(),
                bytes: raw.gap_bytes.map(|bytes| bytes as u64),
            }
        };
        Ok(ChunkRow {
            stream: StreamId(raw.stream_id),
            byte_offset: raw.byte_offset as u64,
            place: raw.place,
            bytes: raw.bytes as u64,
            first_line: raw.first_line as u64,
            lines: raw.lines as u64,
            line_start: raw.line_start as u64,
            first_at: raw.first_at.timestamp_millis(),
            last_at: raw.last_at.timestamp_millis(),
            marks: raw.marks,
            sealed: raw.sealed,
            body,
        })
    }
}

/// A time in a column from milliseconds since 1970; beyond the calendar it is the epoch.
fn time(millis: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(millis).unwrap_or_default()
}
