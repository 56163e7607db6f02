//! Searching what replicas printed, stream by stream. One call does a bounded amount of work, in bytes and in time, since
//! a regular expression can take as long as it likes over few bytes; its cursor goes on. Matching has threads of its own,
//! so that it holds up no other request.
//!
//! A pattern is matched against each line's bytes as they were stored, colours and carriage returns included, up to
//! [`LONGEST`](super::run::LONGEST) bytes of the line.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};
use tokio::sync::{Semaphore, SemaphorePermit};
use trainyard_core::{catch::tags::Speaker, model::StreamId};

use super::{
    LogsError,
    line::{LogLine, RawLine},
    page::{BYTES, to_lines},
    run::{Run, RunBody},
    stream::{From, StreamReader},
};
use crate::db::{Db, logs::StreamRow};

/// What a reader may hold while it searches.
const BUDGET: usize = 4 << 20;
const LONGEST_PATTERN: usize = 1000;
/// Memory of a compiled pattern. The slowest match of the longest line takes as long as this is large.
const LARGEST_PATTERN: usize = 512 << 10;
/// Text that is matched in one go.
const BATCH: usize = 1 << 20;
/// Searches that go on at the same time, over all callers, and how long another one waits for its turn.
static TURNS: Semaphore = Semaphore::const_new(4);
const PATIENCE: Duration = Duration::from_secs(2);

/// What to look for.
#[derive(Debug, Clone)]
pub struct Needle {
    pattern: Pattern,
    speaker: Option<Speaker>,
}

#[derive(Debug, Clone)]
enum Pattern {
    Literal(Finder<'static>),
    Regex(Regex),
}

impl Needle {
    pub fn new(pattern: &str, is_regex: bool, ignore_case: bool) -> Result<Self, LogsError> {
        Ok(Self {
            pattern: Pattern::new(pattern, is_regex, ignore_case)?,
            speaker: None,
        })
    }

    /// Only in lines in which this rank of `mpirun` speaks.
    pub fn said_by(mut self, mpi_rank: Option<u32>) -> Self {
        self.speaker = mpi_rank.map(Speaker::new);
        self
    }

    fn is_in(&self, line: &RawLine<'_>) -> bool {
        self.pattern.is_in(line.bytes) && self.speaker.as_ref().is_none_or(|speaker| speaker.is_in(line.bytes))
    }

    /// `false`: no line of the run can have it. Quick, for literals.
    fn may_be_in(&self, run: &Run) -> bool {
        match (&self.pattern, &run.body) {
            (_, RunBody::Gap(_)) => false,
            (Pattern::Literal(finder), RunBody::Lines(data)) => finder.find(data).is_some(),
            _ => true,
        }
    }
}

impl Pattern {
    fn new(pattern: &str, is_regex: bool, ignore_case: bool) -> Result<Self, LogsError> {
        if pattern.is_empty() || pattern.len() > LONGEST_PATTERN {
            return Err(LogsError::Pattern(format!(
                "it has {} bytes; 1 to {LONGEST_PATTERN} are allowed",
                pattern.len()
            )));
        }
        if !is_regex && !ignore_case {
            return Ok(Pattern::Literal(Finder::new(pattern).into_owned()));
        }
        let escaped = if is_regex {
            pattern.to_owned()
        } else {
            regex::escape(pattern)
        };
        RegexBuilder::new(&escaped)
            .case_insensitive(ignore_case)
            .size_limit(LARGEST_PATTERN)
            .dfa_size_limit(4 << 20)
            .build()
            .map(Pattern::Regex)
            .map_err(|error| {
                let words = error.to_string();
                let last = words.lines().last().unwrap_or_default();
                LogsError::Pattern(last.strip_prefix("error: ").unwrap_or(last).to_owned())
            })
    }

    fn is_in(&self, line: &[u8]) -> bool {
        match self {
            Pattern::Literal(finder) => finder.find(line).is_some(),
            Pattern::Regex(regex) => regex.is_match(line),
        }
    }
}

/// How much one call may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Lines found, over all streams.
    pub lines: usize,
    /// Lines found in one stream; the rest of it is skipped, so that one noisy rank does not hide the others.
    pub lines_per_stream: usize,
    /// Bytes of text looked at.
    pub bytes: u64,
    /// Time for matching. One line at least is looked at.
    pub time: Duration,
    /// Time for all of it, reading included. One line at least is looked at.
    pub whole: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lines: 1000,
            lines_per_stream: 200,
            bytes: 256 << 20,
            time: Duration::from_secs(2),
            whole: Duration::from_secs(8),
        }
    }
}

/// What was found in one stream.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// Which of the streams that were searched.
    pub stream: usize,
    pub lines: Vec<LogLine>,
    /// The stream was left at its limit: there may be more in it.
    pub cut: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Streams with something found, in the order of attempts and streams.
    pub groups: Vec<Group>,
    /// Where to go on; `None`: everything was looked at, but for the rest of streams that are [cut](Group::cut).
    pub next: Option<Cursor>,
    /// Bytes of text looked at in this call.
    pub searched: u64,
}

/// Where a search goes on: streams before this one are done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cursor {
    pub attempt: i32,
    pub stream: StreamId,
    pub line: u64,
}

impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.attempt, self.stream, self.line)
    }
}

impl std::str::FromStr for Cursor {
    type Err = LogsError;

    fn from_str(text: &str) -> Result<Self, LogsError> {
        let parse = || {
            let mut fields = text.split('.');
            let cursor = Cursor {
                attempt: fields.next()?.parse().ok()?,
                stream: fields.next()?.parse().ok()?,
                line: fields.next()?.parse().ok()?,
            };
            fields.next().is_none().then_some(cursor)
        };
        parse().ok_or_else(|| LogsError::Position(text.chars().take(200).collect()))
    }
}

/// Searches streams, from a cursor on.
pub async fn search(
    db: &Db,
    streams: &[StreamRow],
    needle: &Needle,
    from: Option<Cursor>,
    limits: Limits,
) -> Result<Found, LogsError> {
    // Before anything is read: who waits holds nothing.
    let Ok(Ok(turn)) = tokio::time::timeout(PATIENCE, TURNS.acquire()).await else {
        return Err(LogsError::Busy);
    };
    let turn = Arc::new(turn);
    let mut order: Vec<usize> = (0..streams.len()).collect();
    order.sort_by_key(|&index| (streams[index].attempt, streams[index].id));
    let mut look = Look {
        needle: Arc::new(needle.clone()),
        limits,
        lines: 0,
        text: 0,
        searched: 0,
        spent: Duration::ZERO,
        deadline: Instant::now() + limits.whole,
        begun: false,
    };
    let mut groups = Vec::new();
    let mut next = None;
    for index in order {
        let row = &streams[index];
        if row.bytes == 0 {
            continue;
        }
        let start = match from {
            Some(cursor) if (row.attempt, row.id) < (cursor.attempt, cursor.stream) => continue,
            Some(cursor) if row.id == cursor.stream => From::Line(cursor.line),
            _ => From::Start,
        };
        let mut reader = StreamReader::open(db, row.clone(), start, BUDGET).await?;
        let mut group = Group {
            stream: index,
            lines: Vec::new(),
            cut: false,
        };
        let mut ended = false;
        while !ended && !group.cut && next.is_none() {
            let mut runs = Vec::new();
            let mut size = 0;
            while size < BATCH && !ended {
                let run = reader.next().await?;
                ended = run.is_none();
                let Some(run) = run.or_else(|| reader.unfinished()) else {
                    break;
                };
                size += run.size().max(1);
                runs.push(run);
            }
            let stopped;
            (look, group, stopped) = matching(look, row.clone(), runs, group, turn.clone()).await;
            next = stopped.map(|line| Cursor {
                attempt: row.attempt,
                stream: row.id,
                line,
            });
        }
        if !group.lines.is_empty() {
            groups.push(group);
        }
        if next.is_some() {
            break;
        }
    }
    Ok(Found {
        groups,
        next,
        searched: look.searched,
    })
}

async fn matching(
    mut look: Look,
    row: StreamRow,
    runs: Vec<Run>,
    mut group: Group,
    turn: Arc<SemaphorePermit<'static>>,
) -> (Look, Group, Option<u64>) {
    let work = tokio::task::spawn_blocking(move || {
        // Held until the work is done, even if nobody waits for it any more.
        let _turn = turn;
        let started = Instant::now();
        let stopped = runs.iter().find_map(|run| look.at(&row, run, &mut group, started));
        look.spent += started.elapsed();
        (look, group, stopped)
    });
    match work.await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

/// One call of a search, as far as it came.
struct Look {
    needle: Arc<Needle>,
    limits: Limits,
    lines: usize,
    /// Bytes of those lines.
    text: usize,
    searched: u64,
    spent: Duration,
    deadline: Instant,
    /// A line was looked at: from then on, time may run out.
    begun: bool,
}

impl Look {
    /// Looks at a run. The line, from 0, at which a limit of the call was met.
    fn at(&mut self, row: &StreamRow, run: &Run, group: &mut Group, started: Instant) -> Option<u64> {
        if group.cut {
            return None;
        }
        if self.searched >= self.limits.bytes || self.is_late(started) {
            return Some(run.first_line);
        }
        self.searched += run.size() as u64;
        if !self.needle.may_be_in(run) {
            return None;
        }
        for line in run.lines() {
            if self.is_late(started) {
                return Some(line.number);
            }
            self.begun = true;
            if !self.needle.is_in(&line) {
                continue;
            }
            if self.lines >= self.limits.lines || self.text >= BYTES {
                return Some(line.number);
            }
            if group.lines.len() >= self.limits.lines_per_stream {
                group.cut = true;
                return None;
            }
            let one = one_line(run, &line);
            group.lines.extend(to_lines(row, &one, false));
            self.lines += 1;
            self.text += line.bytes.len();
        }
        None
    }

    fn is_late(&self, started: Instant) -> bool {
        self.begun && (self.spent + started.elapsed() >= self.limits.time || Instant::now() >= self.deadline)
    }
}

/// A found line as a run of its own.
fn one_line(run: &Run, line: &RawLine<'_>) -> Run {
    let text = bytes::Bytes::copy_from_slice(line.bytes);
    Run {
        at: run.at,
        offset: line.offset,
        end: line.offset + line.bytes.len() as u64,
        first_line: line.number,
        body: if line.partial {
            RunBody::Unfinished {
                text,
                missing: line.missing,
            }
        } else {
            RunBody::Cut {
                text,
                missing: line.missing,
            }
        },
    }
}
