//! Reading the window of output that a page shows.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use regex::{Regex, RegexBuilder};
use serde_json::json;
use trainyard_core::{model::JobId, plan::words};

use super::{
    Found, LogRow, LogsPage, LogsQuery, chosen, chosen_rank, ranks,
    rows::{self, TimeMode},
};
use crate::{
    db::{
        Db, Scope, attempts_read, jobs_read,
        logs::{self, StreamRow, follow},
        page_reads,
    },
    logs::{
        line::LogLine,
        merge::Begin,
        page::{self, Query},
        position::Position,
        search::{self, Limits, Needle},
        stream::From,
    },
    web::{
        Error,
        pages::{
            found, told,
            view::{Crumb, Section, SelectOption, Shell},
        },
    },
};

/// Lines of a page without JavaScript, and what JavaScript begins with.
const WINDOW: usize = 500;
/// How far behind the line that is asked for the window begins.
const LEAD: u64 = 150;
/// Lines of one moment that are looked through for the line that is asked for.
const FAR: usize = 5_000;
const BYTES: usize = 4 << 20;
const REPLICAS: usize = 2_000;

/// What is chosen of the output.
#[derive(Clone, Copy)]
struct Output<'a> {
    db: &'a Db,
    streams: &'a [StreamRow],
    /// Only lines in which this rank of `mpirun` speaks.
    mpi_rank: Option<u32>,
}

/// A part of the output.
struct Window {
    lines: Vec<LogLine>,
    /// What is older lies up to here. `None`: nothing is.
    older: Option<Position>,
    /// Where following goes on, and whether there is something already.
    next: Position,
    newer: bool,
}

pub async fn load(db: &Db, scope: &Scope, id: JobId, query: &LogsQuery, now: DateTime<Utc>) -> Result<LogsPage, Error> {
    let detail = found("job", id, jobs_read::get(db, scope, id).await)?;
    let home = found("job", id, jobs_read::home(db, scope, id).await)?;
    let key = found("job", id, logs::readable(db, scope, id).await)?;
    let attempts = attempts_read::attempts(db, &home, None, 100).await?;
    let number = query.attempt(home.attempt);
    let attempt = attempts.iter().find(|attempt| attempt.number == number);
    let all = page::streams(
        db,
        key,
        &page::Filter {
            attempt: Some(number),
            ..page::Filter::default()
        },
    )
    .await?;
    let mpi = ranks::mpi_job(detail.document.get());
    let filter = query.filter(number, mpi.as_ref());
    let streams: Vec<StreamRow> = all.iter().filter(|row| filter.takes(row)).cloned().collect();
    let output = Output {
        db,
        streams: &streams,
        mpi_rank: filter.mpi_rank,
    };
    let search = LogsQuery::text(&query.search).map(str::to_owned);
    let only = search.as_deref().filter(|_| query.only);
    let window = match only {
        Some(text) => matching(output, text, query.regex).await?,
        None => window(output, query).await?,
    };
    let ranks = match &mpi {
        Some(document) => ranks::options(db, key, number, document, filter.mpi_rank).await?,
        None => Vec::new(),
    };
    let complete = follow::is_complete(db, id).await?;
    let start = attempt.map_or(detail.job.created_at, |attempt| {
        attempt.running_at.unwrap_or(attempt.admitted_at)
    });
    let mode = match LogsQuery::text(&query.time) {
        Some("start") => TimeMode::Start(start),
        Some("off") => TimeMode::Off,
        _ => TimeMode::Clock,
    };
    let chosen = chosen(&filter);
    let address = format!("/jobs/{id}/logs?{chosen}");
    let found = match &search {
        Some(text) => Some(hits(output, text, query.regex, &address).await?),
        None => None,
    };
    let aside = page_reads::asides(db, &[id], now)
        .await?
        .remove(&id)
        .unwrap_or_default();
    let sentence = told::job_sentence(&detail.job, &aside, &told::More::default(), now);
    let name = detail.job.name.clone();
    let placed = [&query.at, &query.before, &query.since]
        .into_iter()
        .any(Option::is_some);
    let follow = !complete && !placed && (search.is_none() || only.is_some());
    let api = api_choice(&filter);
    let resume = format!("/jobs/{id}/logs/live?{chosen}&from=");
    let config = json!({
        "lines": format!("/api/v1/jobs/{id}/logs?{api}"),
        "live": (!complete).then(|| format!("{resume}{}", told::encoded(&window.next.to_string()))),
        "resume": resume,
        "start": start.timestamp_millis(),
        "older": window.older.is_some(),
        "newer": window.newer,
        "attempt": number,
        "only": only.map(|text| json!({ "text": text, "regex": query.regex, "context": address })),
    });
    let mut rows: Vec<LogRow> = window.lines.into_iter().map(|line| rows::row(line, mode)).collect();
    rows::choose(&mut rows, LogsQuery::text(&query.at), LogsQuery::text(&query.to));
    if only.is_some() {
        for row in &mut rows {
            row.href = format!("{address}&at={0}#{0}", row.anchor);
        }
    }
    let beyond = |side, position: &Position| format!("{address}&{side}={}", told::encoded(&position.to_string()));
    Ok(LogsPage {
        shell: Shell {
            title: format!("Output of {name}"),
            section: Section::Jobs,
            crumbs: vec![
                Crumb {
                    label: "Jobs".into(),
                    href: "/jobs".into(),
                },
                Crumb {
                    label: name.clone(),
                    href: format!("/jobs/{id}"),
                },
            ],
            here: address.clone(),
            notice: no_error(query).map(str::to_owned),
            wide: true,
            ..Shell::default()
        },
        id: id.to_string(),
        name,
        tone: told::job_tone(&detail.job, &aside),
        sentence,
        attempts: match attempts.is_empty() {
            true => vec![SelectOption {
                value: String::new(),
                label: "none yet".into(),
                selected: true,
            }],
            false => attempts
                .iter()
                .map(|attempt| SelectOption {
                    value: attempt.number.to_string(),
                    label: format!(
                        "{}, {}",
                        attempt.number,
                        attempt
                            .outcome
                            .map_or_else(|| attempt.phase.to_string(), |outcome| outcome.to_string())
                    ),
                    selected: attempt.number == number,
                })
                .collect(),
        },
        replicas: replicas(&all, query),
        ranks,
        times: [("clock", "clock, UTC"), ("start", "since the start"), ("off", "off")]
            .into_iter()
            .map(|(value, label)| SelectOption {
                value: value.into(),
                label: label.into(),
                selected: mode.class() == value,
            })
            .collect(),
        time_mode: mode.class(),
        regex: query.regex,
        only: only.is_some(),
        follow,
        live: !complete,
        one: detail.job.replicas == 1 || query.replica().is_some(),
        found,
        first_error: Some(format!("/jobs/{id}/first-error?{chosen}")),
        download: format!("/api/v1/jobs/{id}/logs/download?{api}"),
        older: window.older.as_ref().map(|position| beyond("before", position)),
        newer: window.newer.then(|| beyond("since", &window.next)),
        none: match only {
            Some(_) if complete => "No line has this in it.".to_owned(),
            Some(_) => "No line has this in it yet.".to_owned(),
            None => match filter.mpi_rank {
                Some(rank) if window.older.is_some() => {
                    format!(
                        "Rank {rank} of mpirun has printed nothing since then: what is older was not looked at yet."
                    )
                }
                Some(rank) if home.attempt > 0 => format!("Rank {rank} of mpirun has printed nothing."),
                _ => none(complete, home.attempt, streams.is_empty()).to_owned(),
            },
        },
        rows,
        search: search.unwrap_or_default(),
        viewer_config: config.to_string(),
    })
}

/// What the search for the first error did not find.
fn no_error(query: &LogsQuery) -> Option<&'static str> {
    match (query.none.as_deref()?, &query.at) {
        ("error", _) => Some("No line of this attempt looks like an error."),
        ("unread", None) => Some(
            "No line of what was looked at looks like an error, but there was not time for all of it. Choose one replica.",
        ),
        ("unread", Some(_)) => Some(
            "There was not time to look at all of the output: an earlier error is possible. Choose one replica to be sure.",
        ),
        _ => None,
    }
}

fn none(complete: bool, attempt: i32, no_stream: bool) -> &'static str {
    match (attempt, complete, no_stream) {
        (0, false, _) => "No attempt was started yet. Its output appears here as it is printed.",
        (0, true, _) => "The job ended before any attempt was started, so nothing was printed.",
        (_, false, _) => {
            "Nothing was printed yet. Output appears here as it is printed. Python holds it back unless PYTHONUNBUFFERED=1 is set."
        }
        (_, true, true) => "Nothing is stored for this choice.",
        (_, true, false) => "Nothing was printed.",
    }
}

fn api_choice(filter: &page::Filter) -> String {
    let mut words = format!("attempt={}", filter.attempt.unwrap_or(0));
    if let (Some(role), Some(index)) = (&filter.role, filter.index) {
        words.push_str(&format!("&role={}&index={index}", told::encoded(role)));
    }
    words + &chosen_rank(filter)
}

fn replicas(streams: &[StreamRow], query: &LogsQuery) -> Vec<SelectOption> {
    let ranks: BTreeMap<i32, String> = streams
        .iter()
        .map(|row| (row.rank, format!("{}-{}", row.role, row.index)))
        .collect();
    let chosen = query.replica().map(|key| key.to_string());
    let all = match (ranks.len(), ranks.values().next()) {
        (0, _) => "all".to_owned(),
        (1, Some(only)) => {
            return vec![SelectOption {
                value: String::new(),
                label: format!("{only}, the only one"),
                selected: true,
            }];
        }
        (count, _) => format!("All {}, by time", words::count(count as i64)),
    };
    std::iter::once(SelectOption {
        value: String::new(),
        label: all,
        selected: chosen.is_none(),
    })
    .chain(ranks.into_iter().take(REPLICAS).map(|(rank, key)| SelectOption {
        label: format!("{key} (rank {rank})"),
        selected: chosen.as_deref() == Some(key.as_str()),
        value: key,
    }))
    .collect()
}

async fn window(output: Output<'_>, query: &LogsQuery) -> Result<Window, Error> {
    let streams = output.streams;
    if let Some(anchor) = LogsQuery::text(&query.at).and_then(rows::of_anchor)
        && let Some(window) = around(output, anchor).await?
    {
        return Ok(window);
    }
    let behind = |text: &Option<String>| LogsQuery::text(text).and_then(|text| position(streams, text));
    if let Some(since) = behind(&query.since) {
        let page = read(output, Begin::Position(since), None, WINDOW).await?;
        return Ok(Window {
            older: Some(page.start(streams)),
            newer: page.more,
            lines: page.lines(streams, false),
            next: page.next,
        });
    }
    let until = behind(&query.before);
    let newer = until.is_some();
    let page = read(output, Begin::From(From::Tail(WINDOW as u64)), until, WINDOW).await?;
    Ok(Window {
        older: page.older.then(|| page.start(streams)),
        newer,
        lines: page.lines(streams, false),
        next: page.next,
    })
}

/// What `before` and `since` say: a position, or a time, which stands for all that was stored before it.
fn position(streams: &[StreamRow], text: &str) -> Option<Position> {
    if let Ok(at) = text.parse::<DateTime<Utc>>() {
        return Some(page::before(streams, &Begin::From(From::Time(at.timestamp_millis()))));
    }
    text.parse().ok()
}

/// The lines that a search finds, and nothing else; what comes later is sifted by the reader's own page.
async fn matching(output: Output<'_>, text: &str, is_regex: bool) -> Result<Window, Error> {
    const SHOWN: usize = 1_000;
    // Where following goes on is known before the search: a line that is in both is shown once.
    let all = Output {
        mpi_rank: None,
        ..output
    };
    let next = read(all, Begin::From(From::Tail(1)), None, 1).await?.next;
    let mut lines: Vec<LogLine> = match Needle::new(text, is_regex, !is_regex) {
        Ok(needle) => {
            let limits = Limits {
                lines: SHOWN,
                lines_per_stream: SHOWN / 2,
                ..Limits::default()
            };
            let needle = needle.said_by(output.mpi_rank);
            let found = search::search(output.db, output.streams, &needle, None, limits).await?;
            found.groups.into_iter().flat_map(|group| group.lines).collect()
        }
        // What is wrong with it is told where hits are counted.
        Err(_) => Vec::new(),
    };
    lines.sort_by(|a, b| (&a.at, a.rank, a.stream.as_str(), a.line).cmp(&(&b.at, b.rank, b.stream.as_str(), b.line)));
    Ok(Window {
        lines,
        older: None,
        next,
        newer: false,
    })
}

/// The lines around one. `None`: it is not there.
async fn around(output: Output<'_>, anchor: (&str, i32, &str, u64)) -> Result<Option<Window>, Error> {
    let streams = output.streams;
    let (role, index, stream, line) = anchor;
    let row = streams
        .iter()
        .rfind(|row| row.role == role && row.index == index && row.stream.as_str() == stream);
    let Some(row) = row else { return Ok(None) };
    let one = [row.clone()];
    let alone = Output {
        streams: &one,
        mpi_rank: None,
        ..output
    };
    let alone = read(alone, Begin::From(From::Line(line - 1)), None, 1).await?;
    let Some(at) = alone.runs.first().map(|placed| placed.run.at) else {
        return Ok(None);
    };
    let border = page::before(streams, &Begin::From(From::Time(at)));
    let tail = Begin::From(From::Tail(LEAD));
    let before = read(output, tail, Some(border.clone()), LEAD as usize).await?;
    let behind = read(output, Begin::Position(border), None, FAR).await?;
    let mut lines = before.lines(streams, false);
    let mut rest = behind.lines(streams, false);
    let wanted = |found: &LogLine| {
        found.line == Some(line) && found.role == role && found.index == index && found.stream == row.stream
    };
    match rest.iter().position(wanted) {
        Some(_) => {
            lines.append(&mut rest);
            Ok(Some(Window {
                older: before.older.then(|| before.start(streams)),
                newer: behind.more,
                next: behind.next,
                lines,
            }))
        }
        // Thousands of lines of other ranks were stored in the same moment: the line's own stream is shown.
        None => {
            let from = line.saturating_sub(LEAD).max(1) - 1;
            let alone = Output {
                streams: &one,
                ..output
            };
            let page = read(alone, Begin::From(From::Line(from)), None, WINDOW).await?;
            Ok(Some(Window {
                older: Some(page.start(&one)),
                newer: true,
                lines: page.lines(&one, false),
                next: page.next,
            }))
        }
    }
}

async fn read(output: Output<'_>, begin: Begin, until: Option<Position>, lines: usize) -> Result<page::Page, Error> {
    let query = Query {
        begin,
        until,
        lines,
        bytes: BYTES,
        mpi_rank: output.mpi_rank,
        look: page::LOOK,
    };
    Ok(page::page(output.db, output.streams, &query).await?)
}

async fn hits(output: Output<'_>, text: &str, is_regex: bool, address: &str) -> Result<Found, Error> {
    const SHOWN: usize = 200;
    let quoted: String = text.chars().take(80).collect();
    let (needle, pattern) = match (Needle::new(text, is_regex, !is_regex), highlight(text, is_regex)) {
        (Ok(needle), Some(pattern)) => (needle, pattern),
        (Err(crate::logs::LogsError::Pattern(why)), _) => {
            return Ok(Found {
                summary: format!(
                    "\"{quoted}\" is no regular expression: {why}. Untick Regex to search for the text itself."
                ),
                groups: Vec::new(),
            });
        }
        (Err(error), _) => return Err(error.into()),
        (Ok(_), None) => {
            return Ok(Found {
                summary: format!("\"{quoted}\" can't be searched for"),
                groups: Vec::new(),
            });
        }
    };
    let limits = Limits {
        lines: SHOWN,
        lines_per_stream: 50,
        ..Limits::default()
    };
    let (streams, needle) = (output.streams, needle.said_by(output.mpi_rank));
    let result = search::search(output.db, streams, &needle, None, limits).await?;
    let count: usize = result.groups.iter().map(|group| group.lines.len()).sum();
    let more = result.next.is_some() || result.groups.iter().any(|group| group.cut);
    let mut ranks: Vec<i32> = result
        .groups
        .iter()
        .filter_map(|group| streams.get(group.stream))
        .map(|row| row.rank)
        .collect();
    ranks.sort_unstable();
    ranks.dedup();
    let mut of: Vec<i32> = streams.iter().map(|row| row.rank).collect();
    of.sort_unstable();
    of.dedup();
    let summary = match (count, more) {
        (0, false) => format!(
            "\"{quoted}\" was not found in {}",
            words::counted(of.len() as u64, "rank")
        ),
        (0, true) => format!(
            "\"{quoted}\" was not found in the first {}",
            words::bytes(result.searched)
        ),
        (count, more) => format!(
            "\"{quoted}\" was found in {}{}, in {} of {}",
            if more { "at least " } else { "" },
            words::counted(count as u64, "line"),
            ranks.len(),
            words::counted(of.len() as u64, "rank"),
        ),
    };
    Ok(Found {
        summary,
        groups: rows::grouped(result.groups, &pattern, address),
    })
}

fn highlight(text: &str, is_regex: bool) -> Option<Regex> {
    let pattern = if is_regex { text.to_owned() } else { regex::escape(text) };
    RegexBuilder::new(&pattern)
        .case_insensitive(!is_regex)
        .size_limit(1 << 20)
        .build()
        .ok()
}
