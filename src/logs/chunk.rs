//! A row's bytes. The only place that knows codecs, and where bytes lie: Postgres now; object storage is another
//! `location` here and nothing anywhere else.

use bytes::Bytes;
use trainyard_core::model::StreamId;

use super::{
    LogsError,
    marks::{self, Mark},
};
use crate::db::logs::{Body, ChunkRow, Codec};

/// Rows are merged into chunks of about this size, and no chunk is larger.
pub const CHUNK: usize = 1 << 20;

/// What a row holds, ready to read.
#[derive(Debug, Clone, PartialEq)]
pub enum Piece {
    Output(Output),
    Gap(Gap),
}

/// Consecutive bytes of a stream with the flushes that they came in.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    pub offset: u64,
    /// Line ends of the stream before `offset`.
    pub first_line: u64,
    /// Where the line begins that `offset` lies in.
    pub line_start: u64,
    pub data: Bytes,
    /// At least one; the first at byte 0.
    pub marks: Vec<Mark>,
}

/// Output that is missing at an offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    pub offset: u64,
    pub at: i64,
    pub reason: String,
    pub bytes: Option<u64>,
}

/// Opens a row: fetches and decompresses what it names.
pub fn open(row: ChunkRow) -> Result<Piece, LogsError> {
    let damaged = |what: String| LogsError::Damaged {
        stream: row.stream,
        offset: row.byte_offset,
        what,
    };
    let (codec, location, data) = match row.body {
        Body::Gap { reason, bytes } => {
            return Ok(Piece::Gap(Gap {
                offset: row.byte_offset,
                at: row.first_at,
                reason,
                bytes,
            }));
        }
        Body::Output { codec, location, data } => (codec, location, data),
    };
    if location != "postgres" {
        return Err(damaged(format!(
            "its bytes lie in '{location}', which this version can't read"
        )));
    }
    let stored = data.ok_or_else(|| damaged("its bytes are missing".to_owned()))?;
    let data = match codec {
        Codec::Raw => stored,
        Codec::Zstd => zstd::bulk::decompress(&stored, row.bytes as usize)
            .map_err(|error| damaged(format!("it can't be decompressed: {error}")))?,
    };
    if data.len() as u64 != row.bytes {
        return Err(damaged(format!("it has {} bytes, not {}", data.len(), row.bytes)));
    }
    Ok(Piece::Output(Output {
        offset: row.byte_offset,
        first_line: row.first_line,
        line_start: row.line_start,
        data: Bytes::from(data),
        marks: marks::decode(row.first_at, &row.marks),
    }))
}

/// Closes bytes into a row: sealed ones are compressed.
pub fn close(stream: StreamId, output: &Output, sealed: bool) -> ChunkRow {
    let codec = if sealed { Codec::Zstd } else { Codec::Raw };
    // Level 1 keeps up with a flood, and log text compresses nearly as well as at level 3. An error is out of memory
    // for the compressor alone; the bytes are then kept as they are.
    let (codec, data) = match codec {
        Codec::Raw => (Codec::Raw, output.data.to_vec()),
        Codec::Zstd => match zstd::bulk::compress(&output.data, 1) {
            Ok(data) => (Codec::Zstd, data),
            Err(_) => (Codec::Raw, output.data.to_vec()),
        },
    };
    ChunkRow {
        stream,
        byte_offset: output.offset,
        place: crate::db::logs::OUTPUT_PLACE,
        bytes: output.data.len() as u64,
        first_line: output.first_line,
        lines: memchr::memchr_iter(b'\n', &output.data).count() as u64,
        line_start: output.line_start,
        first_at: output.marks[0].at,
        last_at: output.marks[output.marks.len() - 1].at,
        marks: marks::encode(&output.marks),
        sealed,
        body: Body::Output {
            codec,
            location: "postgres".to_owned(),
            data: Some(data),
        },
    }
}

impl Output {
    pub fn end(&self) -> u64 {
        self.offset + self.data.len() as u64
    }

    /// Where the line begins that the byte at `offset` lies in, and its number (line ends before it).
    /// `offset` lies within the piece or at its end.
    pub fn line_at(&self, offset: u64) -> (u64, u64) {
        let before = &self.data[..(offset - self.offset) as usize];
        let number = self.first_line + memchr::memchr_iter(b'\n', before).count() as u64;
        let start = memchr::memrchr(b'\n', before).map_or(self.line_start, |at| self.offset + at as u64 + 1);
        (start, number)
    }

    /// Cuts off everything before `offset`.
    pub fn from(mut self, offset: u64) -> Self {
        if offset <= self.offset {
            return self;
        }
        let cut = ((offset - self.offset) as usize).min(self.data.len());
        (self.line_start, self.first_line) = self.line_at(self.offset + cut as u64);
        self.data = self.data.slice(cut..);
        self.offset += cut as u64;
        let current = self.marks.iter().rposition(|mark| mark.byte <= cut as u64).unwrap_or(0);
        self.marks.drain(..current);
        for mark in &mut self.marks {
            mark.byte = mark.byte.saturating_sub(cut as u64);
        }
        self
    }

    /// Cuts off everything from `offset` on.
    pub fn until(mut self, offset: u64) -> Self {
        let keep = (offset.saturating_sub(self.offset) as usize).min(self.data.len());
        self.data = self.data.slice(..keep);
        while self.marks.len() > 1 && self.marks.last().is_some_and(|mark| mark.byte >= keep as u64) {
            self.marks.pop();
        }
        self
    }
}
