//! One stream, forwards, from a byte, a line, a time or a position. Reads what was stored when it was opened.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    LogsError,
    chunk::{self, Gap, Output, Piece},
    position::Place,
    run::{Cutter, Run, RunBody},
};
use crate::db::{
    Db,
    logs::{
        ChunkRow, StreamRow,
        read::{self, Target},
    },
};

/// Where a reader begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum From {
    Start,
    /// A line by its number, from 0.
    Line(u64),
    /// The line that this byte lies in.
    Byte(u64),
    /// The first line that ended at this time (ms) or later.
    Time(i64),
    /// The first line behind this place.
    After(Place),
    /// The last lines, the unfinished one included.
    Tail(u64),
}

/// Reads a stream run by run. Holds at most about `budget` bytes of text and one page of rows.
pub struct StreamReader {
    db: Db,
    row: StreamRow,
    cutter: Cutter,
    rows: VecDeque<ChunkRow>,
    budget: usize,
    /// The last gap delivered or skipped; those up to it are not delivered again.
    gap: Option<(u64, i16)>,
    /// Gaps of flushes up to this one are not delivered at all.
    gaps_after: i64,
    removed: bool,
    ended: bool,
}

impl StreamReader {
    pub async fn open(db: &Db, row: StreamRow, from: From, budget: usize) -> Result<Self, LogsError> {
        let (line_start, line, gaps_after) = if row.removed_at.is_some() {
            (0, 0, i64::MIN)
        } else {
            begin(db, &row, from).await?
        };
        Ok(Self {
            db: db.clone(),
            cutter: Cutter::new(line_start, line),
            rows: VecDeque::new(),
            budget,
            gap: None,
            gaps_after,
            removed: row.removed_at.is_some() && row.bytes > 0 && matches!(from, From::Start | From::Tail(1..)),
            ended: row.removed_at.is_some(),
            row,
        })
    }

    pub fn row(&self) -> &StreamRow {
        &self.row
    }

    /// The next run of whole lines, or a gap. `None`: that is all that was stored when the reader was opened.
    pub async fn next(&mut self) -> Result<Option<Run>, LogsError> {
        if let Some(run) = self.take_removed() {
            return Ok(Some(run));
        }
        loop {
            if let Some(run) = self.cutter.pop() {
                return Ok(Some(run));
            }
            if self.ended {
                return Ok(None);
            }
            match self.rows.pop_front() {
                Some(row) => self.feed(row)?,
                None => self.fetch().await?,
            }
        }
    }

    /// After the end: the line that has no end yet.
    pub fn unfinished(&self) -> Option<Run> {
        self.cutter.unfinished()
    }

    fn take_removed(&mut self) -> Option<Run> {
        let removed_at = self.row.removed_at.filter(|_| std::mem::take(&mut self.removed))?;
        Some(Run {
            at: self.row.last_at.unwrap_or(removed_at).timestamp_millis(),
            offset: 0,
            end: 0,
            first_line: 0,
            body: RunBody::Gap(Gap {
                offset: 0,
                at: removed_at.timestamp_millis(),
                reason: format!("retention removed it on {}", removed_at.format("%Y-%m-%d")),
                bytes: Some(self.row.bytes),
            }),
        })
    }

    async fn fetch(&mut self) -> Result<(), LogsError> {
        let from = self.cutter.next();
        let rows = read::chunks(&self.db, self.row.key, self.row.id, from, self.budget as u64).await?;
        let last_at = self.row.last_at.map_or(i64::MIN, |at| at.timestamp_millis());
        self.rows = rows
            .into_iter()
            .filter(|row| match row.body {
                // What was added after the reader was opened is not its business.
                crate::db::logs::Body::Gap { .. } => {
                    row.byte_offset >= from
                        && row.byte_offset <= self.row.bytes
                        && row.first_at <= last_at
                        && row.first_at > self.gaps_after
                        && self.gap.is_none_or(|seen| (row.byte_offset, row.place) > seen)
                }
                crate::db::logs::Body::Output { .. } => row.byte_offset < self.row.bytes,
            })
            .collect();
        self.ended = self.rows.is_empty();
        Ok(())
    }

    fn feed(&mut self, row: ChunkRow) -> Result<(), LogsError> {
        let place = (row.byte_offset, row.place);
        match chunk::open(row)? {
            Piece::Gap(gap) => {
                self.gap = Some(place);
                self.cutter.feed(Piece::Gap(gap));
            }
            Piece::Output(output) => {
                let mut output = output.from(self.cutter.next()).until(self.row.bytes);
                if output.data.len() > self.budget {
                    output = self.part(output);
                    // The rest is fetched again when its turn comes: one of thousands of streams must not hold it.
                    self.rows.clear();
                }
                self.cutter.feed(Piece::Output(output));
            }
        }
        Ok(())
    }

    fn part(&self, output: Output) -> Output {
        let end = output.offset + self.budget as u64;
        let mut part = output.until(end);
        part.data = Bytes::copy_from_slice(&part.data);
        part
    }
}

/// Where the first wanted line begins, its number, and up to which flush gaps were seen.
async fn begin(db: &Db, row: &StreamRow, from: From) -> Result<(u64, u64, i64), LogsError> {
    let all = i64::MIN;
    let end = (row.line_start, row.lines);
    let ((start, line), gaps_after) = match from {
        From::Start => ((0, 0), all),
        From::Line(line) => (at_line(db, row, line).await?, all),
        From::Tail(count) => {
            let total = row.lines + u64::from(row.bytes > row.line_start);
            (at_line(db, row, total.saturating_sub(count)).await?, all)
        }
        From::Byte(byte) => (at_byte(db, row, byte).await?, all),
        From::Time(at) => (at_time(db, row, at).await?, at.saturating_sub(1)),
        From::After(place) if place == Place::START => ((0, 0), all),
        From::After(place) if place.stream == row.id => {
            // The gap of that place was read; a gap of a later flush was not.
            let gaps_after = if place.gap {
                place.at
            } else {
                place.at.saturating_sub(1)
            };
            (at_byte(db, row, place.end).await?, gaps_after)
        }
        From::After(place) => {
            let at = if place.stream < row.id {
                place.at
            } else {
                place.at.saturating_add(1)
            };
            (at_time(db, row, at).await?, at.saturating_sub(1))
        }
    };
    // A row that was removed between two queries leaves nothing to read.
    Ok(if start > row.bytes {
        (end.0, end.1, gaps_after)
    } else {
        (start, line, gaps_after)
    })
}

async fn at_line(db: &Db, row: &StreamRow, line: u64) -> Result<(u64, u64), LogsError> {
    if line == 0 {
        return Ok((0, 0));
    }
    if line >= row.lines {
        return Ok((row.line_start, row.lines));
    }
    let Some(output) = find(db, row, Target::LineEnd(line)).await? else {
        return Ok((row.line_start, row.lines));
    };
    let wanted = line.saturating_sub(output.first_line);
    let end = memchr::memchr_iter(b'\n', &output.data).nth(wanted.saturating_sub(1) as usize);
    Ok(match end {
        Some(at) => (output.offset + at as u64 + 1, line),
        None => (row.line_start, row.lines),
    })
}

async fn at_byte(db: &Db, row: &StreamRow, byte: u64) -> Result<(u64, u64), LogsError> {
    if byte >= row.bytes {
        return Ok((row.line_start, row.lines));
    }
    let found = find(db, row, Target::Byte(byte)).await?;
    Ok(found.map_or((row.line_start, row.lines), |output| {
        output.line_at(byte.clamp(output.offset, output.end()))
    }))
}

async fn at_time(db: &Db, row: &StreamRow, at: i64) -> Result<(u64, u64), LogsError> {
    let Some(output) = find(db, row, Target::Time(at)).await? else {
        return Ok((row.line_start, row.lines));
    };
    let first = output.marks.iter().find(|mark| mark.at >= at);
    let byte = first.map_or(output.end(), |mark| output.offset + mark.byte);
    Ok(output.line_at(byte.min(output.end())))
}

/// The time (ms) of the flush that lies so many bytes before a place of the stream, or before its end. `None`: that is before
/// its beginning.
pub async fn back(db: &Db, row: &StreamRow, place: Option<Place>, bytes: u64) -> Result<Option<i64>, LogsError> {
    let end = match place {
        Some(place) => begin(db, row, From::After(place)).await?.0,
        None => row.bytes,
    };
    let Some(byte) = end.checked_sub(bytes).filter(|byte| *byte > 0) else {
        return Ok(None);
    };
    let found = find(db, row, Target::Byte(byte)).await?;
    Ok(found.and_then(|output| {
        let flush = output.marks.iter().rfind(|mark| output.offset + mark.byte <= byte);
        flush.map(|mark| mark.at)
    }))
}

async fn find(db: &Db, row: &StreamRow, target: Target) -> Result<Option<Output>, LogsError> {
    Ok(match read::find(db, row.key, row.id, target).await? {
        Some(found) => match chunk::open(found)? {
            Piece::Output(output) => Some(output),
            Piece::Gap(_) => None,
        },
        None => None,
    })
}
