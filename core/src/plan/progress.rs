//! How far a job is: step, total, rate, time left, and the state in words that every page leads with.

use chrono::{DateTime, Duration, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{hang::StepAt, why::Why, words};
use crate::model::{Outcome, Phase};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    pub step: i64,
    pub total: Option<u64>,
    /// Steps per second over the recent window; its longest tenth of pauses is left out.
    pub rate: Option<f64>,
    /// `None` also while no step has come for so long that the rate says nothing any more.
    pub seconds_left: Option<u64>,
    pub at: DateTime<Utc>,
}

/// The rate looks at no more reports than these.
const WINDOW: usize = 100;

/// Progress from the last steps of the rank that is furthest (oldest first). `None` without any step.
pub fn progress(steps: &[StepAt], total: Option<u64>, now: DateTime<Utc>) -> Option<Progress> {
    let last = *steps.last()?;
    // After a restart steps count from the checkpoint again: only what came since they last went back counts.
    let begin = steps
        .windows(2)
        .rposition(|pair| pair[1].step < pair[0].step)
        .map_or(0, |place| place + 1);
    let recent = &steps[begin.max(steps.len().saturating_sub(WINDOW))..];
    let rate = rate(recent);
    let left = total
        .and_then(|total| i64::try_from(total).ok())
        .map(|total| (total - last.step).max(0));
    let seconds_left = rate.zip(left).and_then(|(rate, left)| {
        let stale = (now - last.at).num_milliseconds() as f64 / 1_000.0 > (10.0 / rate).max(60.0);
        // Rounded up, so that the last step is not "0 s left"; casts of a float saturate.
        (!stale || left == 0).then_some((left as f64 / rate).ceil() as u64)
    });
    Some(Progress {
        step: last.step,
        total,
        rate,
        seconds_left,
        at: last.at,
    })
}

/// Steps per second, without the tenth of the intervals that were slowest per step (an evaluation, a checkpoint).
fn rate(steps: &[StepAt]) -> Option<f64> {
    let mut intervals: Vec<(i64, f64)> = steps
        .windows(2)
        .map(|pair| {
            (
                pair[1].step - pair[0].step,
                (pair[1].at - pair[0].at).num_milliseconds() as f64 / 1_000.0,
            )
        })
        .filter(|&(steps, seconds)| steps > 0 && seconds >= 0.0)
        .collect();
    intervals.sort_by(|one, other| (one.1 / one.0 as f64).total_cmp(&(other.1 / other.0 as f64)));
    let dropped = if intervals.len() < 5 {
        0
    } else {
        intervals.len().div_ceil(10)
    };
    intervals.truncate(intervals.len() - dropped);
    let (steps, seconds) = intervals
        .iter()
        .fold((0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (seconds > 0.0).then(|| steps as f64 / seconds)
}

/// What the state sentence is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct StateFacts<'a> {
    pub phase: Phase,
    /// When the phase began.
    pub since: DateTime<Utc>,
    pub ranks_running: u32,
    pub ranks: u32,
    pub progress: Option<&'a Progress>,
    pub why: Option<&'a Why>,
    /// The attempt's number, if there is one, and how many the policy allows.
    pub attempt: Option<(u32, u32)>,
    pub outcome: Option<Outcome>,
    /// Of a final job: how it ended, as one sentence.
    pub end: Option<&'a str>,
    pub ran_for: Option<Duration>,
    pub stale_since: Option<DateTime<Utc>>,
    /// Set conditions in a word or two each, worst first: "rank 3 hung".
    pub flags: &'a [&'a str],
}

/// "Running, 8 of 8 ranks, step 1,240 of 5,000, about 2 h left".
pub fn state_sentence(facts: &StateFacts<'_>, now: DateTime<Utc>) -> String {
    let sentence = match facts.phase {
        Phase::Running => running(facts),
        Phase::Queued | Phase::Starting | Phase::Stopping | Phase::Suspended => waiting(facts, now),
        Phase::Succeeded | Phase::Failed | Phase::Cancelled => ended(facts),
    };
    match facts.stale_since.filter(|_| facts.phase.is_active()) {
        Some(since) => {
            format!(
                "Not seen for {}; when last seen: {sentence}",
                words::duration(now - since)
            )
        }
        None => sentence,
    }
}

fn running(facts: &StateFacts<'_>) -> String {
    let mut parts = vec!["Running".to_owned()];
    // What is wrong stands before how far it is.
    if !facts.flags.is_empty() {
        parts.push(format!("but {}", facts.flags.join(" and ")));
    }
    parts.push(format!(
        "{} of {}",
        words::count(facts.ranks_running),
        words::counted(u64::from(facts.ranks), "rank")
    ));
    if let Some((number @ 2.., most)) = facts.attempt {
        // A resumed job has more attempts than the policy's retries alone would make.
        parts.push(format!("attempt {number} of {}", most.max(number)));
    }
    if let Some(progress) = facts.progress {
        let step = words::count(progress.step);
        parts.push(match progress.total {
            Some(total) => format!("step {step} of {}", words::count(total)),
            None => format!("step {step}"),
        });
        if let Some(seconds) = progress.seconds_left.filter(|&seconds| seconds > 0) {
            let span = Duration::seconds(i64::try_from(seconds).unwrap_or(i64::MAX / 1_000).min(i64::MAX / 1_000));
            parts.push(format!("{} left", words::about(span)));
        }
    }
    parts.join(", ")
}

fn waiting(facts: &StateFacts<'_>, now: DateTime<Utc>) -> String {
    if let Some(why) = facts.why {
        return why.sentence.clone();
    }
    let span = words::duration(now - facts.since);
    match facts.phase {
        Phase::Queued => format!("Waiting {span}"),
        Phase::Suspended => format!("Suspended for {span}"),
        Phase::Stopping => format!("Stopping for {span}"),
        _ => format!(
            "Starting for {span}, {} of {} up",
            words::count(facts.ranks_running),
            words::counted(u64::from(facts.ranks), "rank")
        ),
    }
}

fn ended(facts: &StateFacts<'_>) -> String {
    let mut sentence = words::sentence(facts.phase.as_str());
    if let Some(span) = facts.ran_for {
        sentence.push_str(&format!(" after {}", words::duration(span)));
    }
    if let Some((number @ 2.., _)) = facts.attempt {
        sentence.push_str(&format!(", at attempt {number}"));
    }
    // How a job ended well needs no telling, nor that a cancelled one was cancelled.
    let told = words::sentence(facts.phase.as_str());
    let end = facts.end.filter(|end| end.trim_end_matches('.') != told);
    match end.filter(|_| facts.phase != Phase::Succeeded) {
        Some(end) => format!("{sentence}: {end}"),
        None => sentence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::seconds(seconds)
    }

    fn every(seconds: i64, steps: std::ops::RangeInclusive<i64>) -> Vec<StepAt> {
        steps
            .map(|step| StepAt {
                step,
                at: at(step * seconds),
            })
            .collect()
    }

    #[test]
    fn time_left_follows_the_rate_and_not_a_single_long_step() {
        let mut steps = every(2, 1..=50);
        steps
            .iter_mut()
            .skip(40)
            .for_each(|step| step.at += Duration::seconds(600));
        let progress = progress(&steps, Some(1_250), at(702)).unwrap();
        assert_eq!(
            (progress.step, progress.rate, progress.seconds_left),
            (50, Some(0.5), Some(2_400))
        );
    }

    #[test]
    fn after_a_restart_only_the_new_steps_count() {
        let mut steps = every(1, 1..=20);
        steps.extend((11..=14).map(|step| StepAt {
            step,
            at: at(1_000 + step * 4),
        }));
        let progress = progress(&steps, None, at(1_060)).unwrap();
        assert_eq!(
            (progress.step, progress.rate, progress.seconds_left),
            (14, Some(0.25), None)
        );
    }

    #[test]
    fn a_job_that_stands_has_no_time_left_to_promise() {
        let steps = every(2, 1..=50);
        assert_eq!(progress(&steps, Some(100), at(110)).unwrap().seconds_left, Some(100));
        assert_eq!(progress(&steps, Some(100), at(200)).unwrap().seconds_left, None);
        assert_eq!(progress(&steps, Some(50), at(900)).unwrap().seconds_left, Some(0));
        assert_eq!(progress(&steps, Some(40), at(101)).unwrap().seconds_left, Some(0));
    }

    #[test]
    fn too_few_or_odd_steps_give_no_rate() {
        assert_eq!(progress(&[], Some(10), at(0)), None);
        assert_eq!(progress(&every(1, 1..=1), Some(10), at(5)).unwrap().rate, None);
        assert_eq!(progress(&every(0, 1..=9), Some(10), at(5)).unwrap().rate, None);
        let same = vec![StepAt { step: 5, at: at(0) }, StepAt { step: 5, at: at(9) }];
        assert_eq!(progress(&same, Some(u64::MAX), at(10)).unwrap().rate, None);
    }

    fn facts<'a>(phase: Phase) -> StateFacts<'a> {
        StateFacts {
            phase,
            since: at(0),
            ranks_running: 8,
            ranks: 8,
            progress: None,
            why: None,
            attempt: Some((1, 3)),
            outcome: None,
            end: None,
            ran_for: None,
            stale_since: None,
            flags: &[],
        }
    }

    #[test]
    fn the_state_is_told_in_words() {
        let here = Progress {
            step: 1_240,
            total: Some(5_000),
            rate: Some(0.5),
            seconds_left: Some(7_520),
            at: at(0),
        };
        let running = StateFacts {
            progress: Some(&here),
            ..facts(Phase::Running)
        };
        assert_eq!(
            state_sentence(&running, at(60)),
            "Running, 8 of 8 ranks, step 1,240 of 5,000, about 2 h left"
        );
        let hung = StateFacts {
            flags: &["rank 3 hung"],
            attempt: Some((2, 3)),
            ..facts(Phase::Running)
        };
        assert_eq!(
            state_sentence(&hung, at(60)),
            "Running, but rank 3 hung, 8 of 8 ranks, attempt 2 of 3"
        );
        let stale = StateFacts {
            stale_since: Some(at(0)),
            ..facts(Phase::Running)
        };
        assert_eq!(
            state_sentence(&stale, at(240)),
            "Not seen for 4 min; when last seen: Running, 8 of 8 ranks"
        );
        assert_eq!(state_sentence(&facts(Phase::Queued), at(840)), "Waiting 14 min");
        let starting = StateFacts {
            ranks_running: 3,
            ..facts(Phase::Starting)
        };
        assert_eq!(state_sentence(&starting, at(20)), "Starting for 20 s, 3 of 8 ranks up");
        let failed = StateFacts {
            end: Some("Rank 3 (worker-3) failed first: exit code 1."),
            ran_for: Some(Duration::seconds(720)),
            attempt: Some((2, 2)),
            ..facts(Phase::Failed)
        };
        assert_eq!(
            state_sentence(&failed, at(900)),
            "Failed after 12 min, at attempt 2: Rank 3 (worker-3) failed first: exit code 1."
        );
        let cancelled = StateFacts {
            end: Some("Cancelled."),
            ran_for: Some(Duration::seconds(15)),
            ..facts(Phase::Cancelled)
        };
        assert_eq!(state_sentence(&cancelled, at(20)), "Cancelled after 15 s");
        let done = StateFacts {
            end: Some("All."),
            ran_for: Some(Duration::seconds(8_040)),
            ..facts(Phase::Succeeded)
        };
        assert_eq!(state_sentence(&done, at(9_000)), "Succeeded after 2 h 14 min");
    }
}
