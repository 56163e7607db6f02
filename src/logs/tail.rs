//! The last lines, and how a reader scrolls back. Streams are read forwards alone, so stretches at their ends are read, of
//! which the last lines are kept: longer and longer ones until they hold enough.

use std::collections::VecDeque;

use super::{
    LogsError,
    merge::{Begin, Merged, Placed},
    page::{Page, Query},
    position::{Place, Position},
    run::RunBody,
    stream::{self, From},
};
use crate::db::{Db, logs::StreamRow};

/// The last so many lines that a query wants, of those up to its `until`.
pub async fn tail(db: &Db, streams: &[StreamRow], query: &Query, lines: usize) -> Result<Page, LogsError> {
    let last = Last::new(lines, query.bytes);
    match (&query.until, query.mpi_rank) {
        (None, None) => tail_of_all(db, streams, last).await,
        _ => tail_until(db, streams, last, query).await,
    }
}

/// The last lines of all streams together. Takes few lines of each stream first, and more only if those do not reach
/// far enough back.
async fn tail_of_all(db: &Db, streams: &[StreamRow], mut last: Last) -> Result<Page, LogsError> {
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

/// The last lines up to a position, or of one rank, however few of the lines are its. How far back they lie is not known,
/// so longer and longer stretches are read.
async fn tail_until(db: &Db, streams: &[StreamRow], wanted: Last, query: &Query) -> Result<Page, LogsError> {
    let until = query.until.clone().unwrap_or_else(|| end(streams));
    let behind = query.until.is_some();
    let mut stretch = match query.mpi_rank {
        None => Stretch::Millis(2_000),
        Some(_) => Stretch::Bytes(query.look / 64 + 1),
    };
    loop {
        let since = stretch.begin(db, streams, &until).await?;
        let mut merged = Merged::new(db, streams, Begin::From(since.map_or(From::Start, From::Time)))
            .until(Some(until.clone()))
            .said_by(query.mpi_rank);
        let mut last = wanted.rest();
        while let Some(placed) = merged.next().await? {
            // Scrolling back, a line that had no end yet was shown already.
            if !(behind && matches!(placed.run.body, RunBody::Unfinished { .. })) {
                last.push(placed);
            }
        }
        let enough = last.is_full() || since.is_none();
        if enough || stretch.is_longest(query.look) {
            let looked_since = since.filter(|_| !enough);
            last.dropped |= since.is_some();
            return Ok(Page {
                looked_since,
                ..last.cut().into_page(until, behind)
            });
        }
        stretch = stretch.longer();
    }
}

/// Behind everything that is stored: rows are read at one moment, which holds every flush whole.
fn end(streams: &[StreamRow]) -> Position {
    let mut position = Position::start();
    for row in streams {
        if let Some(at) = row.last_at {
            position.reach(row.attempt, Place::after(at.timestamp_millis()));
        }
    }
    if let Some(newest) = streams.iter().map(|row| row.attempt).max() {
        position.finish_below(newest);
    }
    position
}

/// How far back is read.
#[derive(Debug, Clone, Copy)]
enum Stretch {
    /// Where every line is wanted: costs no look at any stream.
    Millis(i64),
    /// Where few lines may be wanted, so that work is bounded: about so many bytes of each stream.
    Bytes(u64),
}

impl Stretch {
    fn longer(self) -> Self {
        match self {
            Stretch::Millis(millis) => Stretch::Millis(millis.saturating_mul(4)),
            Stretch::Bytes(bytes) => Stretch::Bytes(bytes.saturating_mul(8)),
        }
    }

    fn is_longest(self, look: u64) -> bool {
        matches!(self, Stretch::Bytes(bytes) if bytes >= look)
    }

    /// The time (ms) at which the stretch before a position begins. `None`: it is all that there is.
    async fn begin(self, db: &Db, streams: &[StreamRow], until: &Position) -> Result<Option<i64>, LogsError> {
        let last_at = |row: &StreamRow| Some(row.last_at?.timestamp_millis());
        let since = match self {
            Stretch::Millis(millis) => {
                let latest = streams.iter().filter_map(|row| {
                    let last = last_at(row)?;
                    Some(until.of(row.attempt).map_or(last, |place| place.at.min(last)))
                });
                latest.max().map(|latest| latest.saturating_sub(millis))
            }
            Stretch::Bytes(bytes) => {
                let mut newest_first: Vec<&StreamRow> = streams.iter().filter(|row| row.bytes > bytes).collect();
                newest_first.sort_by_key(|row| std::cmp::Reverse(row.last_at));
                let mut since = None;
                for row in newest_first {
                    // What a stream printed before is not looked at anyway.
                    if last_at(row) <= since {
                        break;
                    }
                    since = since.max(stream::back(db, row, until.of(row.attempt), bytes).await?);
                }
                since
            }
        };
        let earliest = streams.iter().filter_map(|row| row.first_at).min();
        Ok(since.filter(|since| earliest.is_some_and(|earliest| *since > earliest.timestamp_millis())))
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
        if placed.run.count() == 0 {
            return;
        }
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
            looked_since: None,
        }
    }
}
