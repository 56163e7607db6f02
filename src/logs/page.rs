//! Lines for one answer: chosen streams, a beginning, an end, a limit; and a position from which to go on.

use trainyard_core::{
    kinds::rendezvous::LAUNCHER,
    model::{LogStream, StreamId},
};

use super::{
    LogsError,
    line::{Encoder, Form, LineKind, LogLine, format_time, gap_words, last_state, text},
    merge::{Begin, Merged, Placed},
    position::{Place, Position},
    run::{Run, RunBody},
    stream::From,
    tail,
};
use crate::db::{
    Db,
    logs::{JobKey, StreamRow, read},
};

/// No answer has more lines than this, however they are asked for.
pub const LINES: usize = 20_000;
/// Text of one answer; it may end there before it has as many lines as were asked for.
pub const BYTES: usize = 8 << 20;
/// Text that one answer looks at for lines of a rank of `mpirun`, of which there may be few.
pub const LOOK: u64 = 64 << 20;

/// Which streams of a job, and which of their lines. `Default`: all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Filter {
    pub attempt: Option<i32>,
    pub role: Option<String>,
    pub index: Option<i32>,
    /// The replica's.
    pub rank: Option<i32>,
    pub stream: Option<LogStream>,
    /// Exactly this one.
    pub id: Option<StreamId>,
    /// Only lines in which this rank of `mpirun` speaks.
    pub mpi_rank: Option<u32>,
}

impl Filter {
    /// What it means for an MPI job: a rank is one of `mpirun`'s, and the launcher prints what they say.
    pub fn under_mpirun(self) -> Self {
        let Some(rank) = self.rank else { return self };
        Self {
            role: self.role.or_else(|| Some(LAUNCHER.to_owned())),
            rank: None,
            mpi_rank: Some(rank.unsigned_abs()),
            ..self
        }
    }

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
    /// Only lines in which this rank of `mpirun` speaks.
    pub mpi_rank: Option<u32>,
    /// About so many bytes are looked at for them; by a tail, of each stream.
    pub look: u64,
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
    /// A tail looked at what was stored since this time (ms), and found less than was asked for.
    pub looked_since: Option<i64>,
}

/// Reads one page.
pub async fn page(db: &Db, streams: &[StreamRow], query: &Query) -> Result<Page, LogsError> {
    if let Begin::From(From::Tail(count)) = query.begin {
        return tail::tail(db, streams, query, (count as usize).min(query.lines)).await;
    }
    let older = query.begin != Begin::From(From::Start);
    let mut position = before(streams, &query.begin);
    let mut merged = Merged::new(db, streams, query.begin.clone())
        .until(query.until.clone())
        .said_by(query.mpi_rank);
    let mut runs = Vec::new();
    let (mut lines, mut bytes, mut passed) = (0, 0, 0);
    let mut more = false;
    while let Some(Placed { stream, run }) = merged.next().await? {
        let row = &streams[stream];
        let partial = matches!(run.body, RunBody::Unfinished { .. });
        if lines >= query.lines || bytes >= query.bytes || passed > query.look {
            more = true;
            break;
        }
        passed += run.passed_bytes();
        let (run, rest) = run.split(query.lines - lines, query.bytes - bytes);
        lines += run.count();
        bytes += run.size();
        if !partial {
            position.reach(row.attempt, run.place(row));
        }
        if run.count() > 0 {
            runs.push(Placed { stream, run });
        }
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
        looked_since: None,
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

impl Page {
    /// What is older than this page lies up to here: the position right before its first line, or before
    /// what was looked at.
    pub fn start(&self, streams: &[StreamRow]) -> Position {
        if let Some(at) = self.looked_since {
            return before(streams, &Begin::From(From::Time(at)));
        }
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
