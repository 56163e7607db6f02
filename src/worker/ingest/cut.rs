//! One stream's part of a flush: what was read becomes masked chunks and caught numbers. Pure, so that it can run
//! aside on another thread, and be thrown away when the flush fails.

use std::sync::Arc;

use bytes::Bytes;

use super::{
    catch::{Catch, Haul},
    mask::Masker,
    state::StreamState,
};
use crate::{
    db::logs::{Body, ChunkRow},
    logs::{
        chunk::{self, CHUNK, Output},
        marks::Mark,
    },
};

/// A flush of a stream from this size on is sealed at once; less is stored raw and merged later.
const SEAL_FROM: usize = CHUNK / 4;
/// A chunk ends at a line end if one is this near.
const LINE_END_WITHIN: usize = 64 << 10;

/// What was taken from a stream's source, in order.
#[derive(Debug, Clone)]
pub enum Taken {
    Bytes(Bytes),
    Gap {
        reason: &'static str,
        /// How much of the source it skips. `None`: nobody knows.
        bytes: Option<u64>,
    },
}

/// What one stream's flush starts from.
#[derive(Clone)]
pub struct Task {
    pub state: StreamState,
    pub taken: Vec<Taken>,
    /// The source ended, and all of it was taken.
    pub last: bool,
    pub masker: Arc<Masker>,
    pub catch: Catch,
    pub at: i64,
}

/// What one stream's flush comes to.
#[derive(Debug, Clone)]
pub struct Done {
    /// Where the stream will stand once this is stored.
    pub state: StreamState,
    pub chunks: Vec<ChunkRow>,
    pub haul: Haul,
}

impl Done {
    /// What the chunks take in the store.
    pub fn stored_bytes(&self) -> u64 {
        let size = |chunk: &ChunkRow| match &chunk.body {
            Body::Output { data: Some(data), .. } => data.len() as u64,
            _ => 0,
        };
        self.chunks.iter().map(size).sum()
    }
}

pub fn cut(task: Task) -> Done {
    let mut done = Done {
        state: task.state.clone(),
        chunks: Vec::new(),
        haul: Haul::default(),
    };
    let mut rest = &task.taken[..];
    while let Some((first, after)) = rest.split_first() {
        match first {
            Taken::Gap { reason, bytes } => {
                take_gap(&task, &mut done, reason, *bytes);
                rest = after;
            }
            Taken::Bytes(_) => {
                // Neighbours are one text for masking.
                let count = rest.iter().take_while(|part| matches!(part, Taken::Bytes(_))).count();
                let text = joined(&rest[..count]);
                rest = &rest[count..];
                take_text(&task, &mut done, text, !rest.is_empty());
            }
        }
    }
    if task.last {
        done.haul.finish(&mut done.state, &task.catch, task.at);
        done.state.covered = 0;
        done.state.ended = true;
    }
    done
}

fn joined(parts: &[Taken]) -> Bytes {
    let texts = || {
        parts.iter().filter_map(|part| match part {
            Taken::Bytes(bytes) => Some(bytes),
            Taken::Gap { .. } => None,
        })
    };
    match parts {
        [Taken::Bytes(bytes)] => bytes.clone(),
        _ => texts().flatten().copied().collect(),
    }
}

fn take_text(task: &Task, done: &mut Done, input: Bytes, before_gap: bool) {
    let masker = &task.masker;
    if masker.is_empty() {
        done.state.source_offset += input.len() as u64;
        store(task, done, input);
        return;
    }
    let mut out = Vec::with_capacity(input.len());
    let mut covered = done.state.covered as usize;
    if done.state.gaps_at_end > 0 {
        covered = masker.torn_start(&input);
        if covered > 0 {
            out.extend_from_slice(b"***");
        }
    }
    let masked = if before_gap {
        let whole = masker.mask_torn_end(&input);
        let mut masked = masker.mask(&input[..whole], covered, true, &mut out);
        if whole < input.len() && masked.covered == 0 {
            out.extend_from_slice(b"***");
        }
        masked.consumed = input.len();
        masked
    } else {
        masker.mask(&input, covered, task.last, &mut out)
    };
    done.state.covered = masked.covered as u64;
    done.state.source_offset += masked.consumed as u64;
    store(task, done, Bytes::from(out));
}

fn take_gap(task: &Task, done: &mut Done, reason: &str, bytes: Option<u64>) {
    done.haul.finish(&mut done.state, &task.catch, task.at);
    let state = &mut done.state;
    done.chunks.push(ChunkRow {
        stream: state.id,
        byte_offset: state.bytes,
        place: state.gaps_at_end,
        bytes: 0,
        first_line: state.lines,
        lines: 0,
        line_start: state.line_start,
        first_at: task.at,
        last_at: task.at,
        marks: Vec::new(),
        sealed: true,
        body: Body::Gap {
            reason: reason.to_owned(),
            bytes,
        },
    });
    state.gaps_at_end = state.gaps_at_end.saturating_add(1).min(i16::MAX - 1);
    state.covered = 0;
    state.source_offset += bytes.unwrap_or(0);
    state.dropped_bytes += bytes.unwrap_or(0);
}

/// Cuts text into rows and reads its lines.
fn store(task: &Task, done: &mut Done, mut data: Bytes) {
    if data.is_empty() {
        return;
    }
    done.haul.read(&mut done.state, &data, &task.catch, task.at);
    while data.len() >= SEAL_FROM {
        let part = data.split_to(cut_at(&data));
        push(task, done, part, true);
    }
    if !data.is_empty() {
        push(task, done, data, false);
    }
}

/// Where the next chunk of much text ends.
fn cut_at(data: &[u8]) -> usize {
    if data.len() <= CHUNK {
        return data.len();
    }
    let window = &data[CHUNK - LINE_END_WITHIN..CHUNK];
    memchr::memrchr(b'\n', window).map_or(CHUNK, |at| CHUNK - LINE_END_WITHIN + at + 1)
}

fn push(task: &Task, done: &mut Done, data: Bytes, sealed: bool) {
    let state = &mut done.state;
    let last_end = memchr::memrchr(b'\n', &data);
    let output = Output {
        offset: state.bytes,
        first_line: state.lines,
        line_start: state.line_start,
        data,
        marks: vec![Mark { byte: 0, at: task.at }],
    };
    let row = chunk::close(state.id, &output, sealed);
    if let Some(end) = last_end {
        state.line_start = state.bytes + end as u64 + 1;
    }
    state.bytes += row.bytes;
    state.lines += row.lines;
    state.gaps_at_end = 0;
    done.chunks.push(row);
}
