//! Searching what replicas printed, stream by stream. One call does a bounded amount of work; its cursor goes on.
//!
//! A pattern is matched against each line's bytes as they were stored, colours and carriage returns included, up to
//! [`LONGEST`](super::run::LONGEST) bytes of the line.

use memchr::memmem::Finder;
use regex::bytes::{Regex, RegexBuilder};
use trainyard_core::model::StreamId;

use super::{
    LogsError,
    line::{LogLine, RawLine},
    page::to_lines,
    run::{Run, RunBody},
    stream::{From, StreamReader},
};
use crate::db::{Db, logs::StreamRow};

/// What a reader may hold while it searches.
const BUDGET: usize = 4 << 20;
const LONGEST_PATTERN: usize = 1000;

/// What to look for.
#[derive(Debug, Clone)]
pub enum Needle {
    Literal(Finder<'static>),
    Regex(Regex),
}

impl Needle {
    pub fn new(pattern: &str, is_regex: bool, ignore_case: bool) -> Result<Self, LogsError> {
        if pattern.is_empty() || pattern.len() > LONGEST_PATTERN {
            return Err(LogsError::Pattern(format!(
                "it has {} bytes; 1 to {LONGEST_PATTERN} are allowed",
                pattern.len()
            )));
        }
        if !is_regex && !ignore_case {
            return Ok(Needle::Literal(Finder::new(pattern).into_owned()));
        }
        let escaped = if is_regex {
            pattern.to_owned()
        } else {
            regex::escape(pattern)
        };
        RegexBuilder::new(&escaped)
            .case_insensitive(ignore_case)
            .size_limit(1 << 20)
            .dfa_size_limit(4 << 20)
            .build()
            .map(Needle::Regex)
            .map_err(|error| {
                let words = error.to_string();
                let last = words.lines().last().unwrap_or_default();
                LogsError::Pattern(last.strip_prefix("error: ").unwrap_or(last).to_owned())
            })
    }

    fn is_in(&self, line: &RawLine<'_>) -> bool {
        match self {
            Needle::Literal(finder) => finder.find(line.bytes).is_some(),
            Needle::Regex(regex) => regex.is_match(line.bytes),
        }
    }

    /// `false`: no line of the run can have it. Quick, for literals.
    fn may_be_in(&self, run: &Run) -> bool {
        match (self, &run.body) {
            (_, RunBody::Gap(_)) => false,
            (Needle::Literal(finder), RunBody::Lines(data)) => finder.find(data).is_some(),
            _ => true,
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
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            lines: 1000,
            lines_per_stream: 200,
            bytes: 256 << 20,
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
    /// Where to go on; `None`: everything was looked at.
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
    let mut order: Vec<usize> = (0..streams.len()).collect();
    order.sort_by_key(|&index| (streams[index].attempt, streams[index].id));
    let mut found = Found {
        groups: Vec::new(),
        next: None,
        searched: 0,
    };
    let mut lines = 0;
    for index in order {
        let row = &streams[index];
        let start = match from {
            Some(cursor) if (row.attempt, row.id) < (cursor.attempt, cursor.stream) => continue,
            Some(cursor) if row.id == cursor.stream => From::Line(cursor.line),
            _ => From::Start,
        };
        let mut group = Group {
            stream: index,
            lines: Vec::new(),
            cut: false,
        };
        let mut reader = StreamReader::open(db, row.clone(), start, BUDGET).await?;
        loop {
            let run = match reader.next().await? {
                Some(run) => run,
                None => match reader.unfinished() {
                    Some(run) => {
                        take(needle, row, &run, limits.lines_per_stream, &mut group);
                        break;
                    }
                    None => break,
                },
            };
            if lines + group.lines.len() >= limits.lines || found.searched >= limits.bytes {
                found.next = Some(Cursor {
                    attempt: row.attempt,
                    stream: row.id,
                    line: run.first_line,
                });
                break;
            }
            found.searched += run.size() as u64;
            take(needle, row, &run, limits.lines_per_stream, &mut group);
            if group.cut {
                break;
            }
        }
        lines += group.lines.len();
        if !group.lines.is_empty() {
            found.groups.push(group);
        }
        if found.next.is_some() {
            break;
        }
    }
    Ok(found)
}

fn take(needle: &Needle, row: &StreamRow, run: &Run, limit: usize, group: &mut Group) {
    if !needle.may_be_in(run) {
        return;
    }
    for line in run.lines() {
        if !needle.is_in(&line) {
            continue;
        }
        if group.lines.len() >= limit {
            group.cut = true;
            return;
        }
        let one = one_line(run, &line);
        group.lines.extend(to_lines(row, &one, false));
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
