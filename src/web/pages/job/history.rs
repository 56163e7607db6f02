//! A job's timeline: its waits, its attempts with their phases, checkpoints and the first failure, and what was wrong with
//! the nodes that it ran on, on one axis.

use chrono::{DateTime, Utc};
use trainyard_core::{
    model::{Outcome, ReplicaPhase},
    plan::words,
};

use crate::{
    db::{
        attempts_read::{Attempt, Replica},
        jobs_read::Job,
        page_reads::NodePast,
        reports::Checkpoint,
        usage_read::UsageInterval,
    },
    web::pages::{
        job::faults,
        timeline::{self, Bar, Lane, Point, PointKind, TimelineFigure},
        view::Tone,
    },
};

/// Lanes of attempts; older ones are counted in the first lane.
const LANES: usize = 6;

pub fn draw(
    job: &Job,
    attempts: &[Attempt],
    intervals: &[UsageInterval],
    checkpoints: &[Checkpoint],
    replicas: &[Replica],
    nodes: &[NodePast],
    now: DateTime<Utc>,
) -> TimelineFigure {
    let end = job.ended_at.unwrap_or(now);
    let mut lanes = vec![Lane {
        label: match attempts.len().saturating_sub(LANES) {
            0 => "Job".to_owned(),
            more => format!("Job; {} are not drawn", words::counted(more as u64, "earlier attempt")),
        },
        bars: waits(intervals, now),
        points: vec![Point {
            at: job.created_at,
            kind: PointKind::Person,
            title: format!("Submitted by {}, {}", job.owner.name, words::exact(job.created_at)),
        }],
    }];
    for attempt in attempts.iter().take(LANES).rev() {
        lanes.push(lane(
            attempt,
            checkpoints,
            if attempt.number == job.attempt { replicas } else { &[] },
            now,
        ));
    }
    lanes.extend(faults::lanes(nodes, job.created_at, end));
    let title = format!(
        "Timeline of {}, from {} to {}",
        job.name,
        words::exact(job.created_at),
        words::exact(end)
    );
    timeline::draw(&title, job.created_at, end, &lanes)
}

fn waits(intervals: &[UsageInterval], now: DateTime<Utc>) -> Vec<Bar> {
    intervals
        .iter()
        .filter(|interval| interval.phase == "queued")
        .map(|interval| Bar {
            tone: Tone::Waiting,
            from: interval.from,
            to: interval.to,
            word: "queued",
            title: format!("Queued {}", words::duration(interval.to.unwrap_or(now) - interval.from)),
        })
        .collect()
}

fn lane(attempt: &Attempt, checkpoints: &[Checkpoint], replicas: &[Replica], now: DateTime<Utc>) -> Lane {
    let mut label = format!("Attempt {}", attempt.number);
    match attempt.outcome {
        Some(outcome) => label.push_str(&format!(": {outcome}")),
        None => label.push_str(&format!(": {}", attempt.phase)),
    }
    if let Some(step) = attempt.resume_step {
        label.push_str(&format!(", resumed at step {}", words::count(step)));
    }
    // "suspended" needs no "Suspended." beside it.
    let only_outcome = |outcome: Outcome| {
        attempt
            .message
            .trim_end_matches('.')
            .eq_ignore_ascii_case(outcome.as_str())
    };
    if attempt.outcome.is_some_and(|outcome| !only_outcome(outcome)) && !attempt.message.is_empty() {
        label.push_str(&format!(" · {}", attempt.message));
    }
    let mut bars = Vec::new();
    let mut bar = |tone, word: &'static str, from: DateTime<Utc>, to: Option<DateTime<Utc>>| {
        let span = words::duration(to.unwrap_or(now) - from);
        bars.push(Bar {
            tone,
            from,
            to,
            word,
            title: format!("{} {span}, from {}", words::sentence(word), words::exact(from)),
        });
    };
    let running_to = attempt.stopping_at.or(attempt.ended_at);
    bar(
        Tone::Starting,
        "starting",
        attempt.admitted_at,
        attempt.running_at.or(running_to),
    );
    if let Some(from) = attempt.running_at {
        // The colour tells how it went once that is known.
        let (tone, word) = match attempt.outcome {
            Some(Outcome::Succeeded) => (Tone::Succeeded, "ran, succeeded"),
            Some(Outcome::Failed | Outcome::Lost) => (Tone::Running, "running"),
            _ => (Tone::Running, "running"),
        };
        bar(tone, word, from, running_to);
    }
    if let Some(from) = attempt.stopping_at {
        let tone = match attempt.outcome {
            Some(Outcome::Failed | Outcome::Lost) => Tone::Failed,
            _ => Tone::Cancelled,
        };
        bar(tone, "stopping", from, attempt.ended_at);
    }
    let mut points: Vec<Point> = checkpoints
        .iter()
        .filter(|checkpoint| checkpoint.attempt == attempt.number)
        .map(|checkpoint| Point {
            at: checkpoint.at,
            kind: PointKind::Checkpoint,
            title: format!(
                "Checkpoint at step {}, {}",
                words::count(checkpoint.step),
                words::exact(checkpoint.at)
            ),
        })
        .collect();
    let first = replicas
        .iter()
        .filter(|row| row.phase == ReplicaPhase::Failed)
        .filter_map(|row| Some((row.ended_at?, row)))
        .min_by_key(|(at, _)| *at);
    if let Some((at, row)) = first {
        points.push(Point {
            at,
            kind: PointKind::Fault,
            title: format!("Rank {} failed, {}", row.rank, words::exact(at)),
        });
    } else if let (Some(Outcome::Failed | Outcome::Lost), Some(at)) =
        (attempt.outcome, attempt.stopping_at.or(attempt.ended_at))
    {
        points.push(Point {
            at,
            kind: PointKind::Fault,
            title: format!("{}, {}", attempt.message, words::exact(at)),
        });
    }
    Lane { label, bars, points }
}
