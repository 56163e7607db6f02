//! All chosen streams of a job in one order: attempt by attempt, and within it flush by flush.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

use futures::StreamExt;
use trainyard_core::catch::tags::Speaker;

use super::{
    LogsError,
    position::{Place, Position},
    run::{Run, RunBody},
    stream::{From, StreamReader},
};
use crate::db::{Db, logs::StreamRow};

/// Text that one reader may hold over all its streams.
const BUDGET: usize = 48 << 20;
/// Below this, fetching the same chunk again and again would cost more than memory does.
const SMALLEST: usize = 128 << 10;
/// For one stream alone, more would only make the first answer late.
const LARGEST: usize = 4 << 20;

/// Where a merged reader begins. `Line` and `Byte` count within a stream, so they want exactly one.
#[derive(Debug, Clone, PartialEq)]
pub enum Begin {
    From(From),
    Position(Position),
}

/// A run with the stream that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Which of the streams that the reader was opened with.
    pub stream: usize,
    pub run: Run,
}

impl Run {
    pub fn place(&self, row: &StreamRow) -> Place {
        Place {
            at: self.at,
            stream: row.id,
            end: self.end,
            gap: matches!(self.body, RunBody::Gap(_)),
        }
    }

    /// The place right before its first line. A gap stands behind the line that ends where it does.
    pub fn before(&self, row: &StreamRow) -> Place {
        let place = self.place(row);
        Place {
            end: self.offset,
            gap: !place.gap,
            ..place
        }
    }

    /// The lines of it that a position covers.
    fn up_to(self, row: &StreamRow, until: &Position) -> Option<Run> {
        if until.covers(row.attempt, self.place(row)) {
            return Some(self);
        }
        // The position may lie among the lines of one flush.
        let last = until.of(row.attempt)?;
        let within = (self.at, row.id) == (last.at, last.stream) && self.offset < last.end;
        let covered = last.end.saturating_sub(self.offset) as usize;
        within.then(|| self.split(usize::MAX, covered).0)
    }
}

/// Reads streams in the order of their lines. What was stored when it was opened is all that it reads.
pub struct Merged {
    db: Db,
    begin: Begin,
    until: Option<Position>,
    speaker: Option<Speaker>,
    /// (place among the streams given, row), the attempts in order.
    waiting: VecDeque<(usize, StreamRow)>,
    open: Vec<(usize, StreamReader)>,
    heads: BinaryHeap<Reverse<Head>>,
    unfinished: VecDeque<Placed>,
}

struct Head {
    place: Place,
    /// Index in `open`.
    reader: usize,
    run: Run,
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}

impl Eq for Head {}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

impl Merged {
    /// `streams` as `db::logs::read::streams` gives them, filtered at will.
    pub fn new(db: &Db, streams: &[StreamRow], begin: Begin) -> Self {
        let mut waiting: Vec<(usize, StreamRow)> = streams.iter().cloned().enumerate().collect();
        waiting.sort_by_key(|(_, row)| (row.attempt, row.id));
        Self {
            db: db.clone(),
            begin,
            until: None,
            speaker: None,
            waiting: waiting.into(),
            open: Vec::new(),
            heads: BinaryHeap::new(),
            unfinished: VecDeque::new(),
        }
    }

    /// Leaves out what comes behind this position.
    pub fn until(mut self, position: Option<Position>) -> Self {
        self.until = position;
        self
    }

    /// Only the lines in which this rank of `mpirun` speaks. The others come as [`RunBody::Passed`].
    pub fn said_by(mut self, mpi_rank: Option<u32>) -> Self {
        self.speaker = mpi_rank.map(Speaker::new);
        self
    }

    /// The next run in order. After the last one of an attempt come its unfinished lines.
    pub async fn next(&mut self) -> Result<Option<Placed>, LogsError> {
        loop {
            if let Some(Reverse(head)) = self.heads.pop() {
                let (stream, _) = self.open[head.reader];
                let (run, rest) = match &self.speaker {
                    Some(speaker) => head.run.sift(speaker),
                    None => (head.run, None),
                };
                match rest {
                    Some(run) => self.heads.push(Reverse(Head { run, ..head })),
                    None => self.advance(head.reader).await?,
                }
                return Ok(Some(Placed { stream, run }));
            }
            let open = std::mem::take(&mut self.open);
            let until = self.until.as_ref();
            let speaker = self.speaker.as_ref();
            self.unfinished.extend(open.iter().filter_map(|(stream, reader)| {
                let run = wanted(until, reader.row(), reader.unfinished()?)?;
                let run = match speaker {
                    Some(speaker) => run.sift(speaker).0,
                    None => run,
                };
                let stream = *stream;
                (!matches!(run.body, RunBody::Passed)).then_some(Placed { stream, run })
            }));
            if let Some(placed) = self.unfinished.pop_front() {
                return Ok(Some(placed));
            }
            if self.waiting.is_empty() {
                return Ok(None);
            }
            self.open_attempt().await?;
        }
    }

    async fn open_attempt(&mut self) -> Result<(), LogsError> {
        let Some(attempt) = self.waiting.front().map(|(_, row)| row.attempt) else {
            return Ok(());
        };
        let count = self
            .waiting
            .iter()
            .take_while(|(_, row)| row.attempt == attempt)
            .count();
        let budget = (BUDGET / count).clamp(SMALLEST, LARGEST);
        let mut opening = Vec::new();
        for (stream, row) in self.waiting.drain(..count) {
            let from = match &self.begin {
                Begin::From(from) => *from,
                Begin::Position(position) => match position.of(attempt) {
                    Some(place) => From::After(place),
                    None => continue,
                },
            };
            if !is_behind(&row, from) {
                opening.push(open(self.db.clone(), stream, row, from, budget));
            }
        }
        // Several at once: a job of a thousand streams would otherwise wait for a thousand answers in turn.
        let mut opening = futures::stream::iter(opening).buffered(8);
        while let Some(opened) = opening.next().await {
            let (stream, reader, run) = opened?;
            self.open.push((stream, reader));
            self.push(self.open.len() - 1, run);
        }
        Ok(())
    }

    async fn advance(&mut self, reader: usize) -> Result<(), LogsError> {
        let run = self.open[reader].1.next().await?;
        self.push(reader, run);
        Ok(())
    }

    fn push(&mut self, reader: usize, run: Option<Run>) {
        let row = self.open[reader].1.row();
        // Times do not go back within a stream, so one that is too late ends it.
        if let Some(run) = run.and_then(|run| wanted(self.until.as_ref(), row, run)) {
            let place = run.place(row);
            self.heads.push(Reverse(Head { place, reader, run }));
        }
    }
}

fn wanted(until: Option<&Position>, row: &StreamRow, run: Run) -> Option<Run> {
    match until {
        Some(until) => run.up_to(row, until),
        None => Some(run),
    }
}

async fn open(
    db: Db,
    stream: usize,
    row: StreamRow,
    from: From,
    budget: usize,
) -> Result<(usize, StreamReader, Option<Run>), LogsError> {
    let mut reader = StreamReader::open(&db, row, from, budget).await?;
    let run = reader.next().await?;
    Ok((stream, reader, run))
}

/// Nothing of the stream can be wanted: it got nothing since. Spares a query per silent stream. An unfinished line
/// was shown when it came.
fn is_behind(row: &StreamRow, from: From) -> bool {
    let last_at = row.last_at.map_or(i64::MIN, |at| at.timestamp_millis());
    match from {
        From::Time(at) => last_at < at,
        From::After(place) => last_at < place.at,
        _ => row.last_at.is_none(),
    }
}
