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
    /// Nothing that ended at this time (ms) or later.
    pub until: Option<i64>,
    /// At most so many lines, and about so many bytes of text.
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
}

/// Reads one page.
pub async fn page(db: &Db, streams: &[StreamRow], query: &Query) -> Result<Page, LogsError> {
    if let Begin::From(From::Tail(count)) = query.begin {
        let count = (count as usize).min(query.lines);
        return match query.until {
            Some(until) => tail_until(db, streams, count, until).await,
            None => tail(db, streams, count).await,
        };
    }
    let mut position = before(streams, &query.begin);
    let mut merged = Merged::new(db, streams, query.begin.clone());
    let mut runs = Vec::new();
    let (mut lines, mut bytes) = (0, 0);
    while let Some(Placed { stream, run }) = merged.next().await? {
        let row = &streams[stream];
        let partial = matches!(run.body, RunBody::Unfinished { .. });
        // Lines come in the order of their times, so what follows is as late.
        if query.until.is_some_and(|until| run.at >= until) {
            break;
        }
        if lines >= query.lines || bytes >= query.bytes {
            return Ok(Page {
                runs,
                next: position,
                more: true,
            });
        }
        let (run, rest) = run.split(query.lines - lines, query.bytes - bytes);
        lines += run.count();
        bytes += run.size();
        if !partial {
            position.reach(row.attempt, run.place(row));
        }
        runs.push(Placed { stream, run });
        if rest.is_some() {
            return Ok(Page {
                runs,
                next: position,
                more: true,
            });
        }
    }
    Ok(Page {
        runs,
        next: position,
        more: false,
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

/// The last lines of all streams together. Takes few lines of each stream first, and more only if those do not reach
/// far enough back.
async fn tail(db: &Db, streams: &[StreamRow], count: usize) -> Result<Page, LogsError> {
    let mut position = Position::start();
    let mut kept: VecDeque<Placed> = VecDeque::new();
    let mut have = 0;
    let mut attempts: Vec<i32> = streams.iter().map(|row| row.attempt).collect();
    attempts.sort_unstable();
    attempts.dedup();
    for &attempt in attempts.iter().rev() {
        if have >= count {
            break;
        }
        let chosen: Vec<usize> = (0..streams.len())
            .filter(|&index| streams[index].attempt == attempt)
            .collect();
        let (runs, reached) = tail_of_attempt(db, streams, &chosen, count - have).await?;
        if let Some(place) = reached {
            position.reach(attempt, place);
        }
        have += runs.iter().map(|placed| placed.run.count()).sum::<usize>();
        for placed in runs.into_iter().rev() {
            kept.push_front(placed);
        }
    }
    if let Some(&last) = attempts.last() {
        position.finish_below(last);
    }
    while let Some(first) = kept.front_mut() {
        if have <= count {
            break;
        }
        let (_, rest) = first.run.clone().split(have - count, usize::MAX);
        let before = first.run.count();
        match rest {
            Some(rest) => {
                have -= before - rest.count();
                first.run = rest;
            }
            None => {
                have -= before;
                kept.pop_front();
            }
        }
    }
    Ok(Page {
        runs: kept.into(),
        next: position,
        more: false,
    })
}

/// The last whole lines that ended before a time: how a reader scrolls back. How far back they lie is not known, so
/// longer and longer stretches are read, of which the last lines alone are kept.
async fn tail_until(db: &Db, streams: &[StreamRow], count: usize, until: i64) -> Result<Page, LogsError> {
    const FIRST: i64 = 2_000;
    let earliest = streams.iter().filter_map(|row| row.first_at).min();
    let earliest = earliest.map_or(until, |at| at.timestamp_millis());
    let mut stretch = FIRST;
    loop {
        let from = until.saturating_sub(stretch);
        let whole = from <= earliest;
        let begin = if whole { From::Start } else { From::Time(from) };
        let mut merged = Merged::new(db, streams, Begin::From(begin));
        let mut kept: VecDeque<Placed> = VecDeque::new();
        let (mut have, mut seen) = (0, 0);
        while let Some(placed) = merged.next().await? {
            if placed.run.at >= until {
                break;
            }
            if matches!(placed.run.body, RunBody::Unfinished { .. }) {
                continue;
            }
            have += placed.run.count();
            seen += placed.run.count();
            kept.push_back(placed);
            while let Some(first) = kept.front().filter(|first| have - first.run.count() >= count) {
                have -= first.run.count();
                kept.pop_front();
            }
        }
        if seen >= count || whole {
            if let Some(first) = kept.front_mut()
                && have > count
                && let (_, Some(rest)) = first.run.clone().split(have - count, usize::MAX)
            {
                first.run = rest;
            }
            return Ok(Page {
                runs: if count == 0 { Vec::new() } else { kept.into() },
                next: before(streams, &Begin::From(From::Time(until))),
                more: true,
            });
        }
        stretch = stretch.saturating_mul(4);
    }
}

async fn tail_of_attempt(
    db: &Db,
    streams: &[StreamRow],
    chosen: &[usize],
    count: usize,
) -> Result<(Vec<Placed>, Option<Place>), LogsError> {
    let rows: Vec<StreamRow> = chosen.iter().map(|&index| streams[index].clone()).collect();
    let mut each = (4 * count / rows.len().max(1)).clamp(16, count.max(16));
    loop {
        let mut merged = Merged::new(db, &rows, Begin::From(From::Tail(each as u64)));
        let mut runs = Vec::new();
        let mut reached = None;
        // Before this time, streams of which only a part was read may have more lines.
        let mut whole_from = i64::MIN;
        let mut begun = vec![false; rows.len()];
        while let Some(placed) = merged.next().await? {
            let row = &rows[placed.stream];
            if !std::mem::replace(&mut begun[placed.stream], true) && placed.run.first_line > 0 {
                whole_from = whole_from.max(placed.run.at);
            }
            if !matches!(placed.run.body, RunBody::Unfinished { .. }) {
                reached = Some(placed.run.place(row)).max(reached);
            }
            runs.push(placed);
        }
        let certain: usize = runs
            .iter()
            .filter(|placed| placed.run.at > whole_from)
            .map(|placed| placed.run.count())
            .sum();
        if certain >= count || each >= count {
            let runs = runs.into_iter().map(|placed| Placed {
                stream: chosen[placed.stream],
                run: placed.run,
            });
            return Ok((runs.collect(), reached));
        }
        each = (each * 4).min(count);
    }
}

impl Page {
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
