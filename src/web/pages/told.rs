//! Records in the words of pages: times, states, conditions and events.

use chrono::{DateTime, Utc};
use trainyard_core::{
    model::{ConditionStatus, Phase, ReplicaPhase, Severity},
    plan::{
        admit::{Hold, NotYet},
        progress::{Progress, StateFacts, state_sentence},
        why::Why,
        words,
    },
};

use super::view::{Condition, EventRow, Tone, When};
use crate::db::{
    conditions,
    jobs_read::Job,
    page_reads::{Aside, Event},
};

pub fn when(at: DateTime<Utc>, now: DateTime<Utc>) -> When {
    When::new(words::relative(at, now), at)
}

pub fn phase_tone(phase: Phase) -> Tone {
    match phase {
        Phase::Queued => Tone::Waiting,
        Phase::Starting => Tone::Starting,
        Phase::Running => Tone::Running,
        Phase::Stopping => Tone::Cancelled,
        Phase::Suspended => Tone::Suspended,
        Phase::Succeeded => Tone::Succeeded,
        Phase::Failed => Tone::Failed,
        Phase::Cancelled => Tone::Cancelled,
    }
}

/// Old news of something that may still run wears the hatched mark.
pub fn job_tone(job: &Job) -> Tone {
    match job.stale_since {
        Some(_) if !job.phase.is_final() => Tone::Stale,
        _ => phase_tone(job.phase),
    }
}

pub fn replica_tone(phase: ReplicaPhase) -> Tone {
    match phase {
        ReplicaPhase::Waiting => Tone::Waiting,
        ReplicaPhase::Starting => Tone::Starting,
        ReplicaPhase::Running => Tone::Running,
        ReplicaPhase::Succeeded => Tone::Succeeded,
        ReplicaPhase::Failed => Tone::Failed,
        ReplicaPhase::Stopped => Tone::Cancelled,
        ReplicaPhase::Lost => Tone::Stale,
    }
}

/// What a page knows of a job beside its record; a list knows less than the job's own page.
#[derive(Default)]
pub struct More<'a> {
    pub progress: Option<&'a Progress>,
    /// Asked now; left out, what admission said last has to do.
    pub why: Option<&'a Why>,
    pub attempt: Option<(u32, u32)>,
    pub flags: &'a [&'a str],
    pub since: Option<DateTime<Utc>>,
    pub ran_for: Option<chrono::Duration>,
}

/// "Running, 8 of 8 ranks, step 1,240 of 5,000, about 2 h left".
pub fn job_sentence(job: &Job, aside: &Aside, more: &More<'_>, now: DateTime<Utc>) -> String {
    let known = job.step.map(|step| Progress {
        step,
        total: job.total_steps.and_then(|total| u64::try_from(total).ok()),
        rate: None,
        seconds_left: None,
        at: job.step_at.unwrap_or(now),
    });
    let stored = match (more.why, &aside.not_yet) {
        (None, Some(not_yet)) if job.phase == Phase::Queued => Some(Why {
            sentence: format!("Waiting {}: {}", words::duration(now - job.queued_at), hold(not_yet)),
            reasons: Vec::new(),
        }),
        _ => None,
    };
    let facts = StateFacts {
        phase: job.phase,
        since: more.since.unwrap_or_else(|| phase_since(job)),
        ranks_running: u32::try_from(aside.running).unwrap_or(0),
        ranks: u32::try_from(job.replicas).unwrap_or(0),
        progress: more.progress.or(known.as_ref()),
        why: more.why.or(stored.as_ref()),
        attempt: more.attempt,
        outcome: None,
        end: Some(job.message.as_str()).filter(|message| !message.is_empty()),
        ran_for: more.ran_for.or_else(|| ran_for(job, now)),
        stale_since: job.stale_since,
        flags: more.flags,
    };
    // The next step has a line of its own.
    let sentence = state_sentence(&facts, now);
    let (state, _) = sentence.split_once(" Next: ").unwrap_or((&sentence, ""));
    state.trim_end_matches('.').to_owned()
}

/// Why a job of a queue does not start yet, in a table's room.
pub fn hold(not_yet: &NotYet) -> String {
    match &not_yet.hold {
        Hold::NoNodes => "no node takes jobs".to_owned(),
        Hold::TooBig { shortage } if shortage.one_replica_too_big => format!(
            "needs {} on one node; the largest has {}",
            amount(shortage.each, &shortage.resource),
            amount(shortage.largest_total, &shortage.resource)
        ),
        Hold::TooBig { shortage } => format!(
            "needs {}; the cluster has {}",
            amount(shortage.asked, &shortage.resource),
            amount(shortage.total, &shortage.resource)
        ),
        Hold::Backoff { until } => format!("pauses after a failure, until {}", words::exact(*until)),
        Hold::NoRoom { shortage, .. } => format!(
            "starts next; needs {}, {} free",
            amount(shortage.asked, &shortage.resource),
            amount(shortage.free, &shortage.resource)
        ),
        Hold::Behind { head, .. } => format!("behind {}, which starts first", head.name),
    }
}

/// So much of a resource, in its own unit.
fn amount(number: u64, resource: &str) -> String {
    match (number, resource) {
        (0, "gpus") => "no GPU".to_owned(),
        (0, "memory") => "no memory".to_owned(),
        (0, "cpu") => "no core".to_owned(),
        (_, "cpu") => words::cores(number),
        (_, "memory") => words::bytes(number),
        (_, "gpus") => words::counted(number, "GPU"),
        (_, other) => format!("{} {other}", words::count(number)),
    }
}

/// Parts of a sentence as a whole one.
pub fn full(text: &str) -> String {
    let text = text.trim_end();
    match text.ends_with(['.', '!', '?']) || text.is_empty() {
        true => words::sentence(text),
        false => format!("{}.", words::sentence(text)),
    }
}

/// Since when a job is in its phase, as far as its record alone tells.
pub fn phase_since(job: &Job) -> DateTime<Utc> {
    match job.phase {
        Phase::Queued => job.queued_at,
        phase if phase.is_final() => job.ended_at.unwrap_or(job.created_at),
        _ => job.started_at.unwrap_or(job.queued_at),
    }
}

/// From the first start to the end, waits between attempts included.
pub fn ran_for(job: &Job, now: DateTime<Utc>) -> Option<chrono::Duration> {
    let started = job.started_at?;
    Some(job.ended_at.unwrap_or(now) - started)
}

/// The answer to "why", unless it only repeats that nobody has looked yet.
pub fn next_step(why: &Why) -> Option<String> {
    why.reasons
        .first()
        .map(|reason| full(&reason.next))
        .filter(|next| !next.is_empty())
}

/// Conditions that hold or can't be told, the worst first. One that is known not to hold is `fine` to `all` only.
pub fn conditions(rows: Vec<conditions::Condition>, all: bool, now: DateTime<Utc>) -> Vec<Condition> {
    let mut rows = rows;
    let rank = |row: &conditions::Condition| match (row.status, row.severity) {
        (ConditionStatus::True, Severity::Critical) => 0,
        (ConditionStatus::True, Severity::Warning) => 1,
        (ConditionStatus::True, Severity::Info) => 2,
        (ConditionStatus::Unknown, _) => 3,
        (ConditionStatus::False, _) => 4,
    };
    rows.sort_by_key(rank);
    rows.into_iter()
        .filter(|row| all || row.status == ConditionStatus::True)
        .map(|row| {
            let (tone, severity) = match (row.status, row.severity) {
                (ConditionStatus::True, Severity::Critical) => (Tone::Critical, "critical"),
                (ConditionStatus::True, Severity::Warning) => (Tone::Warning, "warning"),
                (ConditionStatus::True, Severity::Info) => (Tone::Info, "info"),
                (ConditionStatus::Unknown, _) => (Tone::Stale, "unknown"),
                (ConditionStatus::False, _) => (Tone::Succeeded, "fine"),
            };
            Condition {
                tone,
                severity,
                name: named(&row.kind),
                message: row.message,
                code: row.reason,
                since: when(row.since, now),
            }
        })
        .collect()
}

/// `disk_filling` as `Disk filling`, `DiskPressure` as `Disk pressure`.
pub fn named(code: &str) -> String {
    let mut name = String::with_capacity(code.len() + 4);
    let mut before = ' ';
    for character in code.chars() {
        match character {
            '_' | '-' | '.' => name.push(' '),
            upper if upper.is_uppercase() && before.is_lowercase() => {
                name.push(' ');
                name.extend(upper.to_lowercase());
            }
            other => name.push(other),
        }
        before = character;
    }
    words::sentence(&name)
}

pub fn event(row: Event, now: DateTime<Utc>) -> EventRow {
    EventRow {
        seq: row.seq,
        at: when(row.at, now),
        message: row.message,
        kind: row.kind,
        actor: row.actor,
    }
}

/// What replicas ask for together: `4 replicas: 8 cores, 16 GiB, 4 GPUs`.
pub fn asks(replicas: i32, cpu_milli: i64, memory_bytes: i64, gpus: i32) -> String {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let mut parts = vec![words::cores(unsigned(cpu_milli))];
    if memory_bytes > 0 {
        parts.push(words::bytes(unsigned(memory_bytes)));
    }
    if gpus > 0 {
        parts.push(words::counted(unsigned(gpus.into()), "GPU"));
    }
    format!(
        "{}: {}",
        words::counted(unsigned(replicas.into()), "replica"),
        parts.join(", ")
    )
}

/// A name or a value as a part of an address.
pub fn encoded(text: &str) -> String {
    use std::fmt::Write;
    let mut safe = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => safe.push(char::from(byte)),
            // Writing to a String cannot fail.
            _ => drop(write!(safe, "%{byte:02X}")),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_become_names_and_names_stay_inside_addresses() {
        assert_eq!(named("disk_filling"), "Disk filling");
        assert_eq!(named("DiskPressure"), "Disk pressure");
        assert_eq!(encoded("a b&c=é/"), "a%20b%26c%3D%C3%A9%2F");
    }
}
