//! Records in the words of pages: times, states, conditions and events.

use chrono::{DateTime, Utc};
use trainyard_core::{
    model::{ConditionStatus, Phase, ReplicaPhase, Severity},
    plan::{
        admit::{Hold, NotYet},
        progress::{Progress, StateFacts, state_sentence},
        why::{Why, capacity},
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

/// Old news of something that may still run wears the hatched mark; a job that runs and is not well, the mark of that.
pub fn job_tone(job: &Job, aside: &Aside) -> Tone {
    match (job.stale_since, job.phase) {
        (Some(_), phase) if !phase.is_final() => Tone::Stale,
        (_, Phase::Running) if aside.critical => Tone::Critical,
        (_, Phase::Running) if !aside.troubles.is_empty() => Tone::Warning,
        (_, phase) => phase_tone(phase),
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
    pub since: Option<DateTime<Utc>>,
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
    let flags: Vec<String> = aside.troubles.iter().map(|kind| named(kind).to_lowercase()).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let facts = StateFacts {
        phase: job.phase,
        since: more.since.unwrap_or_else(|| phase_since(job, aside)),
        ranks_running: u32::try_from(aside.running).unwrap_or(0),
        ranks: u32::try_from(job.replicas).unwrap_or(0),
        progress: more.progress.or(known.as_ref()),
        why: more.why.or(stored.as_ref()),
        attempt: more.attempt,
        outcome: None,
        end: Some(job.message.as_str()).filter(|message| !message.is_empty()),
        ran_for: ran_for(aside),
        stale_since: job.stale_since,
        flags: &flags,
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
        // The job's page says it in the same words.
        Hold::TooBig { shortage } => capacity::too_big(shortage),
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

/// Since when a job is in its phase, as far as a list knows.
pub fn phase_since(job: &Job, aside: &Aside) -> DateTime<Utc> {
    match job.phase {
        Phase::Queued => job.queued_at,
        // A job that never ran was suspended while it waited.
        Phase::Suspended => aside.attempt_ended_at.unwrap_or(job.queued_at),
        phase if phase.is_final() => job.ended_at.unwrap_or(job.created_at),
        _ => job.started_at.unwrap_or(job.queued_at),
    }
}

/// How long its attempts took together; waits are no part of it.
pub fn ran_for(aside: &Aside) -> Option<chrono::Duration> {
    let ran = chrono::Duration::milliseconds((aside.ran * 1_000.0) as i64);
    (ran > chrono::Duration::zero()).then_some(ran)
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
        message: turn(&row).map_or_else(|| row.message.clone(), |turn| format!("{turn}: {}", row.message)),
        kind: row.kind,
        actor: row.actor,
    }
}

/// What a condition became: its evidence alone does not say whether it got better or worse.
fn turn(event: &Event) -> Option<String> {
    let word = |name: &str| event.data.get(name).and_then(serde_json::Value::as_str);
    let how = match (word("status")?, word("severity")?) {
        ("true", severity) => severity,
        ("false", _) => "fine",
        _ => "unknown",
    };
    let name = named(word("type")?);
    // "No longer: slow" names it already.
    let told = event.message.to_lowercase().contains(&name.to_lowercase());
    (event.kind == "condition.changed" && !told).then(|| format!("{name}, {how}"))
}

/// What replicas ask for together: `4 replicas, together 8 cores, 16 GiB, 4 GPUs`.
pub fn asks(replicas: i32, cpu_milli: i64, memory_bytes: i64, gpus: i32) -> String {
    let unsigned = |number: i64| u64::try_from(number).unwrap_or(0);
    let mut parts = vec![words::cores(unsigned(cpu_milli))];
    if memory_bytes > 0 {
        parts.push(words::bytes(unsigned(memory_bytes)));
    }
    if gpus > 0 {
        parts.push(words::counted(unsigned(gpus.into()), "GPU"));
    }
    let together = if replicas == 1 { ": " } else { ", together " };
    format!(
        "{}{together}{}",
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

/// An address with those of its parameters that have a value.
pub fn address(path: &str, pairs: &[(&str, Option<&str>)]) -> String {
    let query: Vec<String> = (pairs.iter())
        .filter_map(|(name, value)| Some(format!("{name}={}", encoded((*value)?))))
        .collect();
    match query.is_empty() {
        true => path.to_owned(),
        false => format!("{path}?{}", query.join("&")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_a_condition_says_which_way_it_went() {
        let event = |status: &str, message: &str| Event {
            seq: 1,
            at: DateTime::UNIX_EPOCH,
            kind: "condition.changed".into(),
            actor: None,
            message: message.into(),
            data: serde_json::json!({ "type": "overloaded", "status": status, "severity": "warning" }),
        };
        let said = |row| super::event(row, DateTime::UNIX_EPOCH).message;
        assert_eq!(
            said(event("true", "Load 8.2 on 2 cores")),
            "Overloaded, warning: Load 8.2 on 2 cores"
        );
        assert_eq!(
            said(event("false", "Load 0.7 on 2 cores")),
            "Overloaded, fine: Load 0.7 on 2 cores"
        );
        assert_eq!(said(event("false", "No longer: overloaded")), "No longer: overloaded");
    }

    #[test]
    fn codes_become_names_and_names_stay_inside_addresses() {
        assert_eq!(named("disk_filling"), "Disk filling");
        assert_eq!(named("DiskPressure"), "Disk pressure");
        assert_eq!(encoded("a b&c=é/"), "a%20b%26c%3D%C3%A9%2F");
    }
}
