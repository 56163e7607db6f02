//! Reading logs: rows of `log_chunks` become lines, whatever way they are cut.
//!
//! In reading order:
//! - [`marks`]: the times inside a chunk.
//! - [`chunk`]: a row's bytes; the only place that knows codecs and where bytes lie.
//! - [`run`]: bytes in order become runs of whole lines of one flush.
//! - [`sift`]: of runs, what one rank of `mpirun` said.
//! - [`line`]: a line as people get it, and its JSON.
//! - [`stream`]: one stream, from a byte, a line or a time, forwards.
//! - [`position`]: a place in the order of all lines of a job, as readers carry it.
//! - [`merge`]: all streams of a job in one order.
//! - [`page`], [`tail`], [`search`], [`download`]: what the API offers.
//!
//! The order of a job's lines: attempt, then the time of the flush in which the line ended, then stream, then offset.
//! A flush is stored in one transaction and its time is greater than that of the one before it, so the order in which
//! live readers get lines is the order in which they are read later.
//!
//! Writing is `crate::worker::ingest`; this room never writes.

use crate::db::DbError;

pub mod chunk;
pub mod download;
pub mod line;
pub mod marks;
pub mod merge;
pub mod page;
pub mod position;
pub mod run;
pub mod search;
pub mod sift;
pub mod stream;
mod tail;

/// Why logs can't be read.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    #[error(transparent)]
    Db(#[from] DbError),
    /// A row that we wrote can't be read back: our fault.
    #[error("chunk at byte {offset} of {stream}: {what}")]
    Damaged {
        stream: trainyard_core::model::StreamId,
        offset: u64,
        what: String,
    },
    #[error("'{0}' is not a position in these logs; leave it out to read from the beginning")]
    Position(String),
    #[error("the pattern is no regular expression: {0}")]
    Pattern(String),
    #[error("more searches go on than can be answered soon")]
    Busy,
}
