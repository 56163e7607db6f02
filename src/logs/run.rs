//! Bytes in order become runs: whole lines that ended in one flush. A run is the unit of merging, so that a job of
//! thousands of streams is merged flush by flush and not line by line.

use std::{collections::VecDeque, ops::Range};

use bytes::{Buf, Bytes, BytesMut};

use super::{
    chunk::{Gap, Output, Piece},
    line::{newest_state, whole_characters},
};

/// Text of one line beyond this is not shown; how much is missing is told. Reading it raw is a download.
pub const LONGEST: usize = 64 * 1024;

/// Stands in the text of a line that a gap tore.
const TORN: &[u8] = b" [output is missing here] ";

/// Consecutive whole lines of one stream that ended in one flush, or a gap.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The flush in which the lines ended; for the unfinished line, the last one that added to it.
    pub at: i64,
    /// Where the first line begins.
    pub offset: u64,
    /// Where the next line begins.
    pub end: u64,
    /// The number of the first line, from 0.
    pub first_line: u64,
    pub body: RunBody,
}

#[derive(Debug, Clone, PartialEq)]
pub enum RunBody {
    /// Lines with their ends.
    Lines(Bytes),
    /// One line longer than [`LONGEST`], without its end: its first bytes, and how many are missing.
    Cut {
        text: Bytes,
        missing: u64,
    },
    /// The unfinished line at the end of the stream.
    Unfinished {
        text: Bytes,
        missing: u64,
    },
    Gap(Gap),
    /// Whole lines that nobody wants, see [`sift`](super::sift).
    Passed,
}

impl Run {
    /// The first part, of at most so many lines and about so many bytes (one line at least), and the rest.
    pub fn split(self, lines: usize, bytes: usize) -> (Run, Option<Run>) {
        let RunBody::Lines(data) = &self.body else {
            return (self, None);
        };
        let mut taken = 0;
        let mut cut = 0;
        for end in memchr::memchr_iter(b'\n', data) {
            taken += 1;
            cut = end + 1;
            if taken >= lines || cut >= bytes {
                break;
            }
        }
        if cut == data.len() {
            return (self, None);
        }
        // A line that was put together from several chunks may be shorter here than in the stream; it is alone.
        let middle = self.offset + cut as u64;
        let rest = Run {
            offset: middle,
            first_line: self.first_line + taken as u64,
            body: RunBody::Lines(data.slice(cut..)),
            ..self
        };
        let first = Run {
            end: middle,
            body: RunBody::Lines(data.slice(..cut)),
            ..self
        };
        (first, Some(rest))
    }

    /// Of an unfinished progress bar, the newest state alone: the others were overwritten.
    pub fn newest_state(mut self) -> Run {
        if let RunBody::Unfinished { text, .. } = &mut self.body {
            text.advance(newest_state(text).unwrap_or(0));
        }
        self
    }

    /// Bytes of text that it holds.
    pub fn size(&self) -> usize {
        match &self.body {
            RunBody::Lines(data) => data.len(),
            RunBody::Cut { text, .. } | RunBody::Unfinished { text, .. } => text.len(),
            RunBody::Gap(_) | RunBody::Passed => 0,
        }
    }
}

/// Turns a stream's pieces into runs. Starts at the beginning of a line.
#[derive(Debug)]
pub struct Cutter {
    /// The next byte that it wants; bytes before it are skipped.
    next: u64,
    line: u64,
    line_start: u64,
    /// The unfinished line so far, at most [`LONGEST`] bytes of it; of a long progress bar, its newest states.
    open: BytesMut,
    /// Its last byte was a `\r`, so that what comes next is a new state.
    returned: bool,
    missing: u64,
    open_at: i64,
    ready: VecDeque<Run>,
}

impl Cutter {
    pub fn new(line_start: u64, line: u64) -> Self {
        Self {
            next: line_start,
            line,
            line_start,
            open: BytesMut::new(),
            returned: false,
            missing: 0,
            open_at: 0,
            ready: VecDeque::new(),
        }
    }

    /// Starts in the middle of a line, at `next`. Of a line that is long already, what came before is not shown.
    pub fn at_end(line_start: u64, line: u64, next: u64) -> Self {
        let mut cutter = Self::new(line_start, line);
        if next - line_start > LONGEST as u64 {
            cutter.missing = next - line_start;
            cutter.next = next;
        }
        cutter
    }

    /// The offset up to which pieces were fed.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Where the unfinished line begins: the place to start again later.
    pub fn line_start(&self) -> u64 {
        self.line_start
    }

    pub fn line(&self) -> u64 {
        self.line
    }

    /// Takes the next piece. What lies before [`Cutter::next`] was seen and is skipped.
    pub fn feed(&mut self, piece: Piece) {
        match piece {
            Piece::Gap(gap) => self.feed_gap(gap),
            Piece::Output(output) => {
                if output.end() > self.next {
                    self.feed_output(&output);
                }
            }
        }
    }

    pub fn pop(&mut self) -> Option<Run> {
        self.ready.pop_front()
    }

    pub fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// The unfinished line, if it has any bytes.
    pub fn unfinished(&self) -> Option<Run> {
        let (shown, missing) = self.shown();
        (self.next > self.line_start).then(|| Run {
            at: self.open_at,
            offset: self.line_start,
            end: self.next,
            first_line: self.line,
            body: RunBody::Unfinished {
                text: Bytes::copy_from_slice(&self.open[shown]),
                missing,
            },
        })
    }

    /// A gap stands between the bytes before and after it; a line that it lies in goes on behind it, and says so.
    fn feed_gap(&mut self, gap: Gap) {
        if gap.offset < self.next {
            return;
        }
        if !self.open.is_empty() && self.open.len() + TORN.len() <= LONGEST {
            self.open.extend_from_slice(TORN);
        }
        self.ready.push_back(Run {
            at: gap.at,
            offset: gap.offset,
            end: gap.offset,
            first_line: self.line,
            body: RunBody::Gap(gap),
        });
    }

    fn feed_output(&mut self, output: &Output) {
        let skip = self.next.saturating_sub(output.offset) as usize;
        for (index, mark) in output.marks.iter().enumerate() {
            let end = output
                .marks
                .get(index + 1)
                .map_or(output.data.len(), |next| next.byte as usize);
            let start = (mark.byte as usize).max(skip);
            if start < end.min(output.data.len()) {
                self.feed_flush(mark.at, output.data.slice(start..end.min(output.data.len())));
            }
        }
    }

    fn feed_flush(&mut self, at: i64, mut data: Bytes) {
        self.open_at = at;
        if self.next > self.line_start {
            let Some(end) = memchr::memchr(b'\n', &data) else {
                self.keep_open(&data);
                return;
            };
            let rest = data.split_off(end + 1);
            self.keep_open(&data[..end]);
            self.next += 1;
            self.finish_open(at);
            data = rest;
        }
        let Some(last) = memchr::memrchr(b'\n', &data) else {
            self.keep_open(&data);
            return;
        };
        let rest = data.split_off(last + 1);
        let lines = memchr::memchr_iter(b'\n', &data).count() as u64;
        let end = self.next + data.len() as u64;
        self.ready.push_back(Run {
            at,
            offset: self.next,
            end,
            first_line: self.line,
            body: RunBody::Lines(data),
        });
        self.line += lines;
        self.next = end;
        self.line_start = end;
        self.keep_open(&rest);
    }

    fn keep_open(&mut self, mut data: &[u8]) {
        let Some(last) = data.last() else { return };
        let returned = std::mem::replace(&mut self.returned, *last == b'\r');
        self.next += data.len() as u64;
        if self.missing > 0 || self.open.len() + data.len() > LONGEST {
            if let Some(newest) = newest_state(data) {
                self.open.clear();
                self.missing = 0;
                data = &data[newest..];
            } else if returned && data.iter().any(|byte| *byte != b'\r') {
                self.open.clear();
                self.open.extend_from_slice(b"\r");
                self.missing = 0;
            } else if let Some(newest) = newest_state(&self.open) {
                self.open.advance(newest);
            }
        }
        let room = LONGEST - self.open.len();
        let kept = data.len().min(room);
        self.open.extend_from_slice(&data[..kept]);
        self.missing += (data.len() - kept) as u64;
    }

    /// What of the open line is shown, and how much is not.
    fn shown(&self) -> (Range<usize>, u64) {
        // However it came, of a line that is longer than its first state may be.
        let long = self.next - self.line_start > LONGEST as u64;
        let start = if long { newest_state(&self.open).unwrap_or(0) } else { 0 };
        if self.missing == 0 {
            return (start..self.open.len(), 0);
        }
        let kept = whole_characters(&self.open[start..]).len();
        let end = start + kept;
        (start..end, self.missing + (self.open.len() - end) as u64)
    }

    fn finish_open(&mut self, at: i64) {
        let (shown, missing) = self.shown();
        let mut text = self.open.split();
        text.truncate(shown.end);
        text.advance(shown.start);
        let body = if missing > 0 {
            RunBody::Cut {
                text: text.freeze(),
                missing,
            }
        } else {
            text.extend_from_slice(b"\n");
            RunBody::Lines(text.freeze())
        };
        self.ready.push_back(Run {
            at,
            offset: self.line_start,
            end: self.next,
            first_line: self.line,
            body,
        });
        self.missing = 0;
        self.returned = false;
        self.line += 1;
        self.line_start = self.next;
    }
}
