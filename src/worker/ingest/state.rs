//! What the writer of a stream knows of it between two flushes. All of it is in the stream's record, so another worker
//! goes on where this one was killed.

use sha2::{Digest, Sha256};
use trainyard_core::model::{IncarnationId, LogStream, StreamId};
use uuid::Uuid;

use crate::{
    db::logs::write::WrittenStream,
    logs::marks::{put_varint, varint},
};

/// Lines longer than this hold no metrics, so no more of an unfinished one is kept.
pub const LONGEST_CAUGHT: usize = 8 * 1024;

/// The id of a stream. Derived, so that seeing it for the first time twice makes one row; its first 48 bits are the
/// incarnation's time, so that it lies beside its neighbours.
pub fn stream_id(incarnation: IncarnationId, container: &str, restart: u32, stream: LogStream) -> StreamId {
    let mut digest = Sha256::new();
    digest.update(incarnation.0.as_bytes());
    digest.update(format!("/{container}/{restart}/{stream}"));
    let digest = digest.finalize();
    let mut bytes = *incarnation.0.as_bytes();
    // Bytes 0 to 5 are the time, the upper half of byte 6 the version, the upper quarter of byte 8 the variant.
    bytes[7] = digest[0];
    bytes[9..16].copy_from_slice(&digest[1..8]);
    StreamId(Uuid::from_bytes(bytes))
}

/// Where a stream stands.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamState {
    pub id: StreamId,
    /// Bytes of the source that are stored, masked or dropped.
    pub source_offset: u64,
    pub bytes: u64,
    pub lines: u64,
    pub line_start: u64,
    pub dropped_bytes: u64,
    /// Gaps that stand at the end, before any output to come.
    pub gaps_at_end: i16,
    /// Bytes of the source, from `source_offset` on, that the last mask covers too.
    pub covered: u64,
    /// What may become a caught line: the text since the last line end or carriage return.
    pub open: Vec<u8>,
    /// The unfinished line is too long to be caught.
    pub too_long: bool,
    pub ended: bool,
}

const VERSION: u8 = 1;

impl StreamState {
    pub fn of(written: &WrittenStream) -> Self {
        let mut state = Self {
            id: written.row.id,
            source_offset: written.source_offset,
            bytes: written.row.bytes,
            lines: written.row.lines,
            line_start: written.row.line_start,
            dropped_bytes: written.row.dropped_bytes,
            gaps_at_end: written.gaps_at_end,
            covered: 0,
            open: Vec::new(),
            too_long: false,
            ended: written.row.ended_at.is_some(),
        };
        // An unknown version is a newer release's; without it, one torn secret or metric may be read wrongly once.
        if let Some((&VERSION, mut rest)) = written.state.split_first()
            && let Some(covered) = varint(&mut rest)
            && let Some((&too_long, open)) = rest.split_first()
        {
            state.covered = covered;
            state.too_long = too_long != 0;
            state.open = open.to_vec();
        }
        state
    }

    /// For the record's `ingest_state`; nothing when there is nothing to carry.
    pub fn encode(&self) -> Vec<u8> {
        if self.covered == 0 && self.open.is_empty() && !self.too_long {
            return Vec::new();
        }
        let mut bytes = vec![VERSION];
        put_varint(&mut bytes, self.covered);
        bytes.push(u8::from(self.too_long));
        bytes.extend_from_slice(&self.open);
        bytes
    }
}
