//! Lines for one answer: chosen streams, a beginning, an end, a limit; and a position from which to go on.

use std::collections::VecDeque;

use trainyard_core::model::{LogStream, StreamId};

use super::{
    LogsError,
    line::{Encoder, Form, LineKind, LogLine, format_time, gap_words, last_state, text},
    merge::{Begin, Merged, Placed},
    position::{Place, Position},
    run::{Run, RunBody},
    stream::From,
};
use crate::db::{
    Db,
    logs::{JobKey, StreamRow, read},
};

/// No answer has more lines than this, however they are asked for.
pub const LINES: usize = 20_000;
/// Text of one answer; it may end there before it has as many lines as were asked for.
pub const BYTES: usize = 8 << 20;

/// Which streams of a job. `Default`: all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    pub attempt: Option<i32>,
    pub role: Option<String>,
    pub index: Option<i32>,
    pub rank: Option<i32>,
    pub stream: Option<LogStream>,
    /// Exactly this one.
    pub id: Option<StreamId>,
}

impl Filter {
    pub fn takes(&self, row: &StreamRow) -> bool {
        self.attempt.is_none_or(|attempt| row.attempt == attempt)
            && self.role.as_ref().is_none_or(|role| row.role == *role)
            && self.index.is_none_or(|index| row.index == index)
            && self.rank.is_none_or(|rank| row.rank == rank)
            && self.stream.is_none_or(|stream| row.stream == stream)
            && self.id.is_none_or(|id| row.id == id)
    }
}

/// The streams of a job that a filter takes.
pub async fn streams(db: &Db, key: JobKey, filter: &Filter) -> Result<Vec<StreamRow>, LogsError> {
    let mut rows = read::streams(db, key).await?;
    rows.retain(|row| filter.takes(row));
    Ok(rows)
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Query {
    pub begin: Begin,
    /// Nothing that comes behind this position.
    pub until: Option<Position>,
    /// At most so many lines, and about so many bytes of text: the first ones, or the last ones of a tail.
    pub lines: usize,
    pub bytes: usize,
}

/// Runs in order, within the limits of a query.
#[derive(Debug)]
pub struct Page {
    pub runs: Vec<Placed>,
    /// Where to go on.
    pub next: Position,
    /// There is more now, behind `next`.
    pub more: bool,
    /// There may be more before the first run.
    pub older: bool,
}

/// Reads one page.
pub async fn page(db: &Db, streams: &[StreamRow], query: &Query) -> Result<Page, LogsError> {
    if let Begin::From(From::Tail(count)) = query.begin {
        let last = Last::new((count as usize).min(query.lines), query.bytes);
        return match &query.until {
            Some(until) => tail_until(db, streams, last, until).await,
            None => tail(db, streams, last).await,
        };
    }
    let older = query.begin != Begin::From(From::Start);
    let mut position = before(streams, &query.begin);
    let mut merged = Merged::new(db, streams, query.begin.clone()).until(query.until.clone());
    let mut runs = Vec::new();
    let (mut lines, mut bytes) = (0, 0);
    let mut more = false;
    while let Some(Placed { stream, run }) = merged.next().await? {
        let row = &streams[stream];
        let partial = matches!(run.body, RunBody::Unfinished { .. });
        if lines >= query.lines || bytes >= query.bytes {
            more = true;
            break;
        }
        let (run, rest) = run.split(query.lines - lines, query.bytes - bytes);
        lines += run.count();
        bytes += run.size();
        if !partial {
            position.reach(row.attempt, run.place(row));
        }
        runs.push(Placed { stream, run });
        if rest.is_some() {
            more = true;
            break;
        }
    }
    Ok(Page {
        runs,
        next: position,
        more,
        older,
    })
}

/// The position that stands for a beginning, so that going on never goes back before it.
pub fn before(streams: &[StreamRow], begin: &Begin) -> Position {
    let mut position = Position::start();
    match begin {
        Begin::Position(given) => position = given.clone(),
        Begin::From(From::Time(at)) => {
            for row in streams {
                position.reach(row.attempt, Place::after(at.saturating_sub(1)));
            }
        }
        // These count within one stream; where it ends now is where more of it will come.
        Begin::From(From::Line(_) | From::Byte(_)) => {
            for row in streams {
                let place = Place {
                    at: 0,
                    stream: row.id,
                    end: row.line_start,
                    gap: false,
                };
                position.reach(row.attempt, place);
            }
        }
        Begin::From(From::After(place)) => {
            for row in streams {
                position.reach(row.attempt, *place);
            }
        }
        Begin::From(From::Start | From::Tail(_)) => {}
    }
    position
}

/// The last runs of those that came by: what is held is bounded, however much comes by.
struct Last {
    lines: usize,
    bytes: usize,
    runs: VecDeque<Placed>,
    /// Lines and bytes of `runs`.
    have: (usize, usize),
    /// Something came by that is not in `runs`.
    dropped: bool,
}

impl Last {
    fn new(lines: usize, bytes: usize) -> Self {
        Self {
            lines,
            bytes,
            runs: VecDeque::new(),
            have: (0, 0),
            dropped: false,
        }
    }

    /// The same, with nothing in it yet and room for what this one has no line of.
    fn rest(&self) -> Self {
        Self::new(self.lines - self.have.0, self.bytes.saturating_sub(self.have.1))
    }

    fn is_full(&self) -> bool {
        self.have.0 >= self.lines || self.have.1 >= self.bytes
    }

    fn push(&mut self, placed: Placed) {
        self.have.0 += placed.run.count();
        self.have.1 += placed.run.size();
        self.runs.push_back(placed);
        while let Some(first) = self.runs.front() {
            let without = (self.have.0 - first.run.count(), self.have.1 - first.run.size());
            if without.0 < self.lines && without.1 < self.bytes {
                break;
            }
            self.have = without;
            self.dropped = true;
            self.runs.pop_front();
        }
    }

    /// What came before all of this, as far as there is room.
    fn push_before(&mut self, mut earlier: Last) {
        self.dropped |= earlier.dropped;
        self.have.0 += earlier.have.0;
        self.have.1 += earlier.have.1;
        earlier.runs.append(&mut self.runs);
        self.runs = earlier.runs;
    }

    /// No line more than there is room for.
    fn cut(mut self) -> Self {
        let over = self.have.0.saturating_sub(self.lines);
        if over > 0
            && let Some(first) = self.runs.front_mut()
            && let (cut, Some(rest)) = first.run.clone().split(over, usize::MAX)
        {
            self.have = (self.have.0 - over, self.have.1 - cut.size());
            self.dropped = true;
            first.run = rest;
        }
        self
    }

    fn into_page(self, next: Position, more: bool) -> Page {
        Page {
            runs: self.runs.into(),
            next,
            more,
            older: self.dropped,
        }
    }
}

/// The last lines of all streams together. Takes few lines of each stream first, and more only if those do not reach
/// far enough back.
async fn tail(db: &Db, streams: &[StreamRow], mut last: Last) -> Result<Page, LogsError> {
    let mut position = Position::start();
    let mut attempts: Vec<i32> = streams.iter().map(|row| row.attempt).collect();
    attempts.sort_unstable();
    attempts.dedup();
    let newest = attempts.last().copied();
    for &attempt in attempts.iter().rev() {
        // The newest one tells where to go on, even if none of its lines is wanted.
        if last.is_full() && Some(attempt) != newest {
            last.dropped = true;
            break;
        }
        let chosen: Vec<usize> = (0..streams.len())
            .filter(|&index| streams[index].attempt == attempt)
            .collect();
        let (earlier, reached) = tail_of_attempt(db, streams, &chosen, &last).await?;
        if let Some(place) = reached {
            position.reach(attempt, place);
        }
        last.push_before(earlier);
    }
    if let Some(newest) = newest {
        position.finish_below(newest);
    }
    Ok(last.into_page(position, false))
}

/// The last whole lines up to a position: how a reader scrolls back. How far back they lie is not known, so longer and
/// longer stretches are read, of which the last lines alone are kept.
async fn tail_until(db: &Db, streams: &[StreamRow], wanted: Last, until: &Position) -> Result<Page, LogsError> {
    const FIRST: i64 = 2_000;
    let earliest = streams.iter().filter_map(|row| row.first_at).min();
    let latest = streams.iter().filter_map(|row| {
        let last = row.last_at?.timestamp_millis();
        Some(until.of(row.attempt).map_or(last, |place| place.at.min(last)))
    });
    let (Some(earliest), Some(latest)) = (earliest, latest.max()) else {
        return Ok(wanted.into_page(until.clone(), true));
    };
    let mut stretch = FIRST;
    loop {
        let from = latest.saturating_sub(stretch);
        let whole = from <= earliest.timestamp_millis();
        let begin = if whole { From::Start } else { From::Time(from) };
        let mut merged = Merged::new(db, streams, Begin::From(begin)).until(Some(until.clone()));
        let mut last = wanted.rest();
        while let Some(placed) = merged.next().await? {
            if !matches!(placed.run.body, RunBody::Unfinished { .. }) {
                last.push(placed);
            }
        }
        if last.is_full() || whole {
            last.dropped |= !whole;
            return Ok(last.cut().into_page(until.clone(), true));
        }
        stretch = stretch.saturating_mul(4);
    }
}

/// The last lines of one attempt, as far as `last` has room for them, and the place of the last whole line.
async fn tail_of_attempt(
    db: &Db,
    streams: &[StreamRow],
    chosen: &[usize],
    last: &Last,
) -> Result<(Last, Option<Place>), LogsError> {
    let rows: Vec<StreamRow> = chosen.iter().map(|&index| streams[index].clone()).collect();
    let count = last.rest().lines;
    let mut each = (4 * count / rows.len().max(1)).clamp(16, count.max(16));
    loop {
        let mut merged = Merged::new(db, &rows, Begin::From(From::Tail(each as u64)));
        let mut found = last.rest();
        let mut reached = None;
        // Before this time, streams of which only a part was read may have more lines.
        let mut whole_from = i64::MIN;
        let mut begun = vec![false; rows.len()];
        while let Some(mut placed) = merged.next().await? {
            let row = &rows[placed.stream];
            if !std::mem::replace(&mut begun[placed.stream], true) && placed.run.first_line > 0 {
                whole_from = whole_from.max(placed.run.at);
            }
            if !matches!(placed.run.body, RunBody::Unfinished { .. }) {
                reached = Some(placed.run.place(row)).max(reached);
            }
            placed.stream = chosen[placed.stream];
            found.push(placed);
        }
        let certain = found.runs.front().is_none_or(|first| first.run.at > whole_from);
        if certain || each >= count {
            found.dropped |= whole_from > i64::MIN;
            return Ok((found.cut(), reached));
        }
        each = (each * 4).min(count);
    }
}

impl Page {
    /// What is older than this page lies up to here: the position right before its first line.
    pub fn start(&self, streams: &[StreamRow]) -> Position {
        let whole = |placed: &&Placed| !matches!(placed.run.body, RunBody::Unfinished { .. });
        let Some(first) = self.runs.iter().find(whole) else {
            return self.next.clone();
        };
        let row = &streams[first.stream];
        let mut position = Position::start();
        position.finish_below(row.attempt);
        position.reach(row.attempt, first.run.before(row));
        position
    }

    /// The page as bytes of JSON lines.
    pub fn encode(&self, streams: &[StreamRow], form: Form, raw: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoders: Vec<Option<Encoder>> = vec![None; streams.len()];
        for placed in &self.runs {
            let encoder =
                encoders[placed.stream].get_or_insert_with(|| Encoder::new(&streams[placed.stream], form, raw));
            encoder.write(&mut out, &placed.run);
        }
        out
    }

    /// The page as values, for pages in HTML.
    pub fn lines(&self, streams: &[StreamRow], raw: bool) -> Vec<LogLine> {
        self.runs
            .iter()
            .flat_map(|placed| to_lines(&streams[placed.stream], &placed.run, raw))
            .collect()
    }
}

/// The lines of a run as values.
pub fn to_lines(row: &StreamRow, run: &Run, raw: bool) -> Vec<LogLine> {
    let line = |number, offset, kind, text: String| LogLine {
        line: number,
        offset,
        at: format_time(run.at),
        kind,
        attempt: row.attempt,
        role: row.role.clone(),
        index: row.index,
        rank: row.rank,
        stream: row.stream,
        text,
        partial: false,
        missing: 0,
        overwritten: false,
    };
    if let RunBody::Gap(gap) = &run.body {
        return vec![line(None, gap.offset, LineKind::Gap, gap_words(&gap.reason, gap.bytes))];
    }
    run.lines()
        .map(|found| {
            let (shown, overwritten) = if raw {
                (found.bytes, false)
            } else {
                last_state(found.bytes)
            };
            LogLine {
                partial: found.partial,
                missing: found.missing,
                overwritten,
                ..line(
                    Some(found.number + 1),
                    found.offset,
                    LineKind::Output,
                    text(shown, raw).into_owned(),
                )
            }
        })
        .collect()
}
