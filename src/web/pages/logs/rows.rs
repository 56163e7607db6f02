//! Stored lines as rows of the viewer.

use std::{collections::BTreeMap, sync::OnceLock};

use chrono::{DateTime, Utc};
use regex::Regex;
use trainyard_core::plan::words;

use super::{FoundGroup, FoundHit, LogRow};
use crate::{
    logs::{
        line::{LineKind, LogLine},
        search,
    },
    web::pages::{terminal, told},
};

/// What looks like an error: a traceback, an exception's line, and what CUDA, NCCL, kernels and Rust say. `logs.js`
/// knows the same.
pub const ERROR: &str = r"^\s*Traceback \(most recent call last\)|^([A-Za-z_]\w*\.)*\w*(Error|Exception|Exit)\b|\bCUDA error\b|out of memory|NCCL (WARN|ERROR)|Segmentation fault|core dumped|panicked at";

/// How times are shown beside lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeMode {
    Clock,
    /// Since the attempt began.
    Start(DateTime<Utc>),
    Off,
}

impl TimeMode {
    pub fn class(self) -> &'static str {
        match self {
            TimeMode::Clock => "clock",
            TimeMode::Start(_) => "start",
            TimeMode::Off => "off",
        }
    }
}

/// A line's own name within its attempt, stable for ever.
pub fn anchor(line: &LogLine) -> String {
    format!(
        "{}-{}.{}.{}",
        line.role,
        line.index,
        line.stream,
        line.line.unwrap_or(0)
    )
}

/// Role and index, stream, and line of an anchor.
pub fn of_anchor(anchor: &str) -> Option<(&str, i32, &str, u64)> {
    let (rest, line) = anchor.rsplit_once('.')?;
    let (replica, stream) = rest.rsplit_once('.')?;
    let (role, index) = replica.rsplit_once('-')?;
    Some((
        role,
        index.parse().ok()?,
        stream,
        line.parse().ok().filter(|line| *line > 0)?,
    ))
}

pub fn row(line: LogLine, mode: TimeMode) -> LogRow {
    static LOOKS_WRONG: OnceLock<Option<Regex>> = OnceLock::new();
    let pattern = LOOKS_WRONG.get_or_init(|| Regex::new(ERROR).ok());
    let plain = terminal::plain(&line.text);
    let at = line.at.parse::<DateTime<Utc>>().unwrap_or(DateTime::UNIX_EPOCH);
    let mut segments = terminal::segments(&line.text);
    if line.missing > 0 {
        segments.push(terminal::Segment {
            class: "ad".into(),
            text: format!(" … {} bytes more", line.missing),
        });
    }
    LogRow {
        anchor: match line.kind {
            LineKind::Output => anchor(&line),
            LineKind::Gap => format!("gap.{}-{}.{}.{}", line.role, line.index, line.stream, line.offset),
        },
        number: line.line.unwrap_or(0),
        replica: format!("{}-{}", line.role, line.index),
        color: color(line.rank),
        stderr: line.stream == trainyard_core::model::LogStream::Stderr,
        chosen: false,
        href: format!("#{}", anchor(&line)),
        error: pattern.as_ref().is_some_and(|pattern| pattern.is_match(&plain)),
        time: time(at, mode),
        exact: at.format("%Y-%m-%d %H:%M:%S%.3f UTC").to_string(),
        iso: line.at,
        segments,
        gap: (line.kind == LineKind::Gap).then_some(line.text),
    }
}

fn color(rank: i32) -> u32 {
    rank.unsigned_abs() % 12
}

fn time(at: DateTime<Utc>, mode: TimeMode) -> String {
    match mode {
        TimeMode::Start(start) => {
            let milliseconds = (at - start).num_milliseconds().max(0);
            let seconds = milliseconds / 1000;
            format!(
                "{:02}:{:02}:{:02}.{:03}",
                seconds / 3600,
                seconds / 60 % 60,
                seconds % 60,
                milliseconds % 1000
            )
        }
        TimeMode::Clock | TimeMode::Off => at.format("%H:%M:%S%.3f").to_string(),
    }
}

/// Marks the rows from one line to another, in whatever order the address names them.
pub fn choose(rows: &mut [LogRow], at: Option<&str>, to: Option<&str>) {
    let place = |anchor: &str| rows.iter().position(|row| row.anchor == anchor);
    let Some(first) = at.and_then(place) else { return };
    let last = to.and_then(place).unwrap_or(first);
    for row in &mut rows[first.min(last)..=first.max(last)] {
        row.chosen = true;
    }
}

/// What was found, by replica; the streams of one are put together by time.
pub fn grouped(groups: Vec<search::Group>, pattern: &Regex, address: &str) -> Vec<FoundGroup> {
    let mut replicas: BTreeMap<(i32, String), (bool, Vec<LogLine>)> = BTreeMap::new();
    for group in groups {
        let Some(first) = group.lines.first() else { continue };
        let replica = (first.rank, format!("{}-{}", first.role, first.index));
        let (cut, lines) = replicas.entry(replica).or_default();
        *cut |= group.cut;
        lines.extend(group.lines);
    }
    let group = |((rank, replica), (cut, mut lines)): ((i32, String), (bool, Vec<LogLine>))| {
        lines.sort_by(|one, other| one.at.cmp(&other.at));
        let count = words::counted(lines.len() as u64, "line");
        FoundGroup {
            color: color(rank),
            replica,
            count: if cut { format!("the first {count}") } else { count },
            hits: lines.iter().map(|line| hit(line, pattern, address)).collect(),
        }
    };
    replicas.into_iter().map(group).collect()
}

/// A found line, cut around what was found.
fn hit(line: &LogLine, pattern: &Regex, address: &str) -> FoundHit {
    const AROUND: usize = 60;
    let text = terminal::plain(&line.text);
    let found = pattern.find(&text).map_or(0..0, |found| found.range());
    let lead: Vec<char> = text[..found.start].chars().collect();
    let before: String = lead.iter().skip(lead.len().saturating_sub(AROUND)).collect();
    let anchor = anchor(line);
    FoundHit {
        href: format!("{address}&at={}#{anchor}", told::encoded(&anchor)),
        line: line.line.unwrap_or(0),
        stderr: line.stream == trainyard_core::model::LogStream::Stderr,
        before: if lead.len() > AROUND {
            format!("…{before}")
        } else {
            before
        },
        hit: text[found.clone()].chars().take(AROUND * 2).collect(),
        after: text[found.end..].chars().take(AROUND * 2).collect(),
        anchor,
    }
}

#[cfg(test)]
mod tests {
    use trainyard_core::model::LogStream;

    use super::*;

    fn line(text: &str) -> LogLine {
        LogLine {
            line: Some(7),
            offset: 0,
            at: "2026-11-30T13:00:01.250Z".into(),
            kind: LineKind::Output,
            attempt: 1,
            role: "param-server".into(),
            index: 3,
            rank: 15,
            stream: LogStream::Stderr,
            text: text.into(),
            partial: false,
            missing: 0,
            overwritten: false,
        }
    }

    #[test]
    fn an_anchor_leads_back_to_its_line() {
        let anchor = anchor(&line(""));
        assert_eq!(anchor, "param-server-3.stderr.7");
        assert_eq!(of_anchor(&anchor), Some(("param-server", 3, "stderr", 7)));
        for wrong in ["", "a", "a-1.stdout", "a-1.stdout.0", "a.stdout.1", "a-x.stdout.1"] {
            assert_eq!(of_anchor(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn errors_are_marked_and_plain_talk_of_errors_is_not() {
        for wrong in [
            "Traceback (most recent call last):",
            "\u{1b}[31mValueError: no",
            "torch.cuda.OutOfMemoryError: CUDA out of memory",
            "RuntimeError",
            "x.py:7: CUDA error: device-side assert",
            "node-1:12 [0] NCCL WARN Connect failed",
            "Segmentation fault (core dumped)",
        ] {
            assert!(row(line(wrong), TimeMode::Clock).error, "{wrong}");
        }
        for fine in ["step=1 error=0.2", "validation error 0.31", "0 errors", "loss=0.2"] {
            assert!(!row(line(fine), TimeMode::Clock).error, "{fine}");
        }
    }

    #[test]
    fn what_looks_like_an_error_is_a_pattern_that_a_search_takes() {
        for pattern in [ERROR, r"(\w+)=(\w+) (\w+)=(\w+)", r"loss=\d+\.\d{3,}"] {
            assert!(search::Needle::new(pattern, true, true).is_ok(), "{pattern}");
        }
        assert!(search::Needle::new(r"\w{50}", true, false).is_err());
    }

    #[test]
    fn a_range_is_marked_whichever_end_is_named_first() {
        let rows = |at: Option<&str>, to: Option<&str>| -> Vec<bool> {
            let lines = (1..=4).map(|number| LogLine {
                line: Some(number),
                ..line("")
            });
            let mut rows: Vec<LogRow> = lines.map(|line| row(line, TimeMode::Clock)).collect();
            choose(&mut rows, at, to);
            rows.iter().map(|row| row.chosen).collect()
        };
        let (two, three) = (Some("param-server-3.stderr.2"), Some("param-server-3.stderr.3"));
        assert_eq!(rows(two, three), [false, true, true, false]);
        assert_eq!(rows(three, two), [false, true, true, false]);
        assert_eq!(rows(two, Some("param-server-3.stderr.99")), [false, true, false, false]);
        assert_eq!(rows(None, two), [false; 4]);
    }

    #[test]
    fn times_are_of_the_clock_or_since_the_start() {
        let start = "2026-11-30T12:00:00Z".parse().unwrap();
        assert_eq!(row(line(""), TimeMode::Start(start)).time, "01:00:01.250");
        assert_eq!(row(line(""), TimeMode::Clock).time, "13:00:01.250");
    }

    #[test]
    fn a_hit_shows_what_is_around_it() {
        let pattern = Regex::new("(?i)nan").unwrap();
        let hit = hit(
            &line(&format!("{}loss=NaN lr=1", "é".repeat(80))),
            &pattern,
            "/jobs/x/logs?attempt=1",
        );
        assert_eq!((hit.hit.as_str(), hit.after.as_str()), ("NaN", " lr=1"));
        assert!(hit.before.starts_with('…') && hit.before.ends_with("loss="));
        assert_eq!(
            hit.href,
            "/jobs/x/logs?attempt=1&at=param-server-3.stderr.7#param-server-3.stderr.7"
        );
    }

    #[test]
    fn what_is_found_stands_by_replica_and_within_it_by_time() {
        let found = |rank: i32, stream, at: &str, cut| search::Group {
            stream: 0,
            lines: vec![LogLine {
                at: at.into(),
                rank,
                index: rank,
                stream,
                ..line("loss=NaN")
            }],
            cut,
        };
        let groups = vec![
            found(1, LogStream::Stdout, "2026-11-30T13:00:02.000Z", false),
            found(1, LogStream::Stderr, "2026-11-30T13:00:01.000Z", true),
            found(0, LogStream::Stdout, "2026-11-30T13:00:03.000Z", false),
        ];
        let grouped = grouped(groups, &Regex::new("NaN").unwrap(), "/jobs/x/logs?attempt=1");
        let told: Vec<_> = (grouped.iter())
            .map(|group| (group.replica.as_str(), group.count.as_str()))
            .collect();
        assert_eq!(
            told,
            [("param-server-0", "1 line"), ("param-server-1", "the first 2 lines")]
        );
        let streams: Vec<bool> = grouped[1].hits.iter().map(|hit| hit.stderr).collect();
        assert_eq!(streams, [true, false]);
    }
}
