//! Output as files: a stream's bytes as they were stored, or all of a job's lines as text. Never all in memory.

use bytes::Bytes;
use futures::{Stream, TryStreamExt, stream};

use super::{
    LogsError,
    chunk::{self, Piece},
    line::{Encoder, Form, format_time, gap_words},
    merge::{Begin, Merged, Placed},
    run::{Run, RunBody},
};
use crate::db::{
    Db,
    logs::{Body, StreamRow, read},
};

/// Text that is sent at once.
const PART: usize = 256 << 10;
/// Rows that are fetched at once, by their text.
const FETCH: u64 = 4 << 20;

/// The bytes of one stream, exactly as stored. Where output is missing, a line in brackets says so, on a line of its own.
pub fn bytes(db: &Db, row: StreamRow) -> impl Stream<Item = Result<Bytes, LogsError>> + Send + 'static {
    struct State {
        db: Db,
        row: StreamRow,
        next: u64,
        gap: Option<(u64, i16)>,
        rows: std::collections::VecDeque<crate::db::logs::ChunkRow>,
    }
    let state = State {
        db: db.clone(),
        row,
        next: 0,
        gap: None,
        rows: Default::default(),
    };
    stream::try_unfold(state, |mut state| async move {
        loop {
            let Some(chunk) = state.rows.pop_front() else {
                let rows = read::chunks(&state.db, state.row.key, state.row.id, state.next, FETCH).await?;
                let (next, end, gap) = (state.next, state.row.bytes, state.gap);
                state.rows = rows
                    .into_iter()
                    .filter(|row| match row.body {
                        Body::Gap { .. } => {
                            row.byte_offset >= next
                                && row.byte_offset <= end
                                && gap.is_none_or(|seen| (row.byte_offset, row.place) > seen)
                        }
                        Body::Output { .. } => row.byte_offset < end,
                    })
                    .collect();
                if state.rows.is_empty() {
                    return Ok(None);
                }
                continue;
            };
            let place = (chunk.byte_offset, chunk.place);
            match chunk::open(chunk)? {
                Piece::Gap(gap) => {
                    state.gap = Some(place);
                    let words = format!("\n[{}]\n", gap_words(&gap.reason, gap.bytes));
                    return Ok(Some((Bytes::from(words), state)));
                }
                Piece::Output(output) => {
                    let output = output.from(state.next).until(state.row.bytes);
                    if !output.data.is_empty() {
                        state.next = output.end();
                        return Ok(Some((output.data, state)));
                    }
                }
            }
        }
    })
}

/// How a job's lines are written into one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// `2026-11-30T12:00:00.123Z 1 worker-0 stdout | text`
    Text,
    /// A [`LogLine`](super::line::LogLine) of JSON per line.
    Ndjson { raw: bool },
}

/// All lines of the chosen streams, or those in which a rank of `mpirun` speaks, in order, in parts of some 256 KiB.
pub fn lines(
    db: &Db,
    streams: Vec<StreamRow>,
    begin: Begin,
    shape: Shape,
    mpi_rank: Option<u32>,
) -> impl Stream<Item = Result<Bytes, LogsError>> + Send + 'static {
    let merged = Merged::new(db, &streams, begin).said_by(mpi_rank);
    let writers: Vec<Writer> = streams.iter().map(|row| Writer::new(row, shape)).collect();
    stream::try_unfold((merged, writers), |(mut merged, writers)| async move {
        let mut out = Vec::with_capacity(PART + PART / 4);
        while out.len() < PART {
            let Some(Placed { stream, run }) = merged.next().await? else {
                break;
            };
            // A flush may be far larger than a part.
            let mut rest = Some(run);
            while let Some(run) = rest {
                let (some, more) = run.split(usize::MAX, PART);
                writers[stream].write(&mut out, &some);
                rest = more;
            }
        }
        Ok((!out.is_empty()).then(|| (Bytes::from(out), (merged, writers))))
    })
    .into_stream()
}

enum Writer {
    Text(Vec<u8>),
    Json(Encoder),
}

impl Writer {
    fn new(row: &StreamRow, shape: Shape) -> Self {
        match shape {
            Shape::Text => {
                Writer::Text(format!(" {} {}-{} {} | ", row.attempt, row.role, row.index, row.stream).into_bytes())
            }
            Shape::Ndjson { raw } => Writer::Json(Encoder::new(row, Form::Ndjson, raw)),
        }
    }

    fn write(&self, out: &mut Vec<u8>, run: &Run) {
        let prefix = match self {
            Writer::Json(encoder) => {
                encoder.write(out, run);
                return;
            }
            Writer::Text(prefix) => prefix,
        };
        let at = format_time(run.at);
        if let RunBody::Gap(gap) = &run.body {
            out.extend_from_slice(at.as_bytes());
            out.extend_from_slice(prefix);
            out.extend_from_slice(format!("[{}]\n", gap_words(&gap.reason, gap.bytes)).as_bytes());
        }
        for line in run.lines() {
            out.extend_from_slice(at.as_bytes());
            out.extend_from_slice(prefix);
            out.extend_from_slice(line.bytes);
            if line.missing > 0 {
                out.extend_from_slice(format!(" [{} bytes more]", line.missing).as_bytes());
            }
            out.push(b'\n');
        }
    }
}
