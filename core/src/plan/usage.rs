//! Usage intervals: from submission to end, every moment of a job belongs to exactly one of them.
//!
//! They are computed from the times in the records, so that computing them again gives the same, and a worker that
//! was killed in between loses nothing. Amounts and prices are joined where they are stored.

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::{Outcome, UnknownWord, words};

words! {
    /// What a job did in an interval. Only `starting` and `running` hold resources.
    Use {
        Queued = "queued",
        Starting = "starting",
        /// From the last replica's start to the last one's end; stopping is part of it.
        Running = "running",
        Suspended = "suspended",
    }
}

/// Where a running interval went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Worth {
    /// It led to a checkpoint or to the job's success.
    Kept,
    /// Done since the last checkpoint of an attempt that did not succeed.
    Lost,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Interval {
    pub usage: Use,
    /// The attempt's number; a wait or suspension belongs to the attempt that comes next, whether it came or not.
    pub attempt: u32,
    pub from: DateTime<Utc>,
    /// `None`: it goes on.
    pub to: Option<DateTime<Utc>>,
    /// For an ended running interval.
    pub worth: Option<Worth>,
}

/// A job's life as recorded.
#[derive(Debug, Clone, PartialEq)]
pub struct Life<'a> {
    pub submitted_at: DateTime<Utc>,
    /// By number.
    pub attempts: &'a [Span],
    /// Times in suspension, oldest first; the last may go on.
    pub suspended: &'a [(DateTime<Utc>, Option<DateTime<Utc>>)],
    /// When the job became final.
    pub ended_at: Option<DateTime<Utc>>,
}

/// One attempt's times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    pub number: u32,
    pub admitted_at: DateTime<Utc>,
    pub running_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub outcome: Option<Outcome>,
    pub last_checkpoint_at: Option<DateTime<Utc>>,
}

/// Every interval of the job, in order, without gap or overlap. Times that run backwards are clamped; empty
/// intervals are left out.
pub fn intervals(life: &Life<'_>) -> Vec<Interval> {
    let mut out = Vec::new();
    let mut at = life.submitted_at;
    for span in life.attempts {
        let admitted_at = span.admitted_at.max(at);
        wait(&mut out, life.suspended, span.number, at, Some(admitted_at));
        let running_at = span.running_at.map(|running| running.max(admitted_at));
        let ended_at = span.ended_at.map(|ended| ended.max(running_at.unwrap_or(admitted_at)));
        push(
            &mut out,
            Use::Starting,
            span.number,
            admitted_at,
            running_at.or(ended_at),
            None,
        );
        if let Some(running_at) = running_at {
            out.extend(split(&Span {
                running_at: Some(running_at),
                ended_at,
                ..span.clone()
            }));
        }
        let Some(ended_at) = ended_at else { return out };
        at = ended_at;
    }
    if life.ended_at.is_none_or(|ended| ended > at) {
        let next = life.attempts.last().map_or(1, |span| span.number + 1);
        wait(&mut out, life.suspended, next, at, life.ended_at);
    }
    out
}

/// A running interval as its kept and lost parts, split at the last checkpoint; one that goes on is whole. An
/// attempt that succeeded kept everything.
pub fn split(span: &Span) -> Vec<Interval> {
    let mut out = Vec::new();
    let Some(from) = span.running_at else { return out };
    let Some(to) = span.ended_at else {
        push(&mut out, Use::Running, span.number, from, None, None);
        return out;
    };
    let to = to.max(from);
    let kept_until = match span.outcome {
        Some(Outcome::Succeeded) => to,
        _ => span.last_checkpoint_at.map_or(from, |at| at.clamp(from, to)),
    };
    push(
        &mut out,
        Use::Running,
        span.number,
        from,
        Some(kept_until),
        Some(Worth::Kept),
    );
    push(
        &mut out,
        Use::Running,
        span.number,
        kept_until,
        Some(to),
        Some(Worth::Lost),
    );
    out
}

/// A time without an attempt: queued, but for the parts in suspension.
fn wait(
    out: &mut Vec<Interval>,
    suspended: &[(DateTime<Utc>, Option<DateTime<Utc>>)],
    attempt: u32,
    mut from: DateTime<Utc>,
    to: Option<DateTime<Utc>>,
) {
    let cut = |at: DateTime<Utc>| to.map_or(at, |to| at.min(to));
    for &(begin, end) in suspended {
        let begin = cut(begin).max(from);
        let end = end.map(|end| cut(end).max(begin)).or(to.map(|to| to.max(begin)));
        if end.is_some_and(|end| end <= begin) {
            continue;
        }
        push(out, Use::Queued, attempt, from, Some(begin), None);
        push(out, Use::Suspended, attempt, begin, end, None);
        let Some(end) = end else { return };
        from = end;
    }
    push(out, Use::Queued, attempt, from, to, None);
}

fn push(
    out: &mut Vec<Interval>,
    usage: Use,
    attempt: u32,
    from: DateTime<Utc>,
    to: Option<DateTime<Utc>>,
    worth: Option<Worth>,
) {
    if to.is_none_or(|to| to > from) {
        out.push(Interval {
            usage,
            attempt,
            from,
            to,
            worth,
        });
    }
}

/// Holds a life's intervals against the promise: from submission to end (or open), without gap or overlap.
#[cfg(test)]
pub(super) fn check_cover(life: &Life<'_>, intervals: &[Interval]) {
    let mut at = life.submitted_at;
    for interval in intervals {
        assert_eq!(interval.from, at, "a gap or overlap before {interval:?}\n{life:?}");
        match interval.to {
            Some(to) => {
                assert!(to > at, "{interval:?}");
                at = to;
            }
            None => return assert_eq!(Some(interval), intervals.last()),
        }
    }
    if let Some(ended) = life.ended_at {
        assert_eq!(at, ended.max(life.submitted_at), "{life:?}\n{intervals:?}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::chance::Chance;
    use chrono::Duration;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::seconds(seconds)
    }

    fn span(number: u32, times: [i64; 3], outcome: Outcome, checkpoint: Option<i64>) -> Span {
        Span {
            number,
            admitted_at: at(times[0]),
            running_at: Some(at(times[1])),
            ended_at: Some(at(times[2])),
            outcome: Some(outcome),
            last_checkpoint_at: checkpoint.map(at),
        }
    }

    fn told(life: &Life<'_>) -> Vec<String> {
        let intervals = intervals(life);
        check_cover(life, &intervals);
        let tell = |interval: &Interval| {
            let to = interval
                .to
                .map_or("on".to_owned(), |to| (to - at(0)).num_seconds().to_string());
            let worth = interval
                .worth
                .map_or(String::new(), |worth| format!(" {worth:?}").to_lowercase());
            format!(
                "{} {} {}-{to}{worth}",
                interval.attempt,
                interval.usage,
                (interval.from - at(0)).num_seconds()
            )
        };
        intervals.iter().map(tell).collect()
    }

    #[test]
    fn a_retried_and_suspended_life_is_covered_from_submission_to_end() {
        let attempts = [
            span(1, [10, 15, 100], Outcome::Failed, Some(60)),
            span(2, [120, 125, 300], Outcome::Suspended, Some(300)),
            span(3, [450, 460, 500], Outcome::Succeeded, None),
        ];
        let life = Life {
            submitted_at: at(0),
            attempts: &attempts,
            suspended: &[(at(300), Some(at(400)))],
            ended_at: Some(at(500)),
        };
        let expected = [
            "1 queued 0-10",
            "1 starting 10-15",
            "1 running 15-60 kept",
            "1 running 60-100 lost",
            "2 queued 100-120",
            "2 starting 120-125",
            "2 running 125-300 kept",
            "3 suspended 300-400",
            "3 queued 400-450",
            "3 starting 450-460",
            "3 running 460-500 kept",
        ];
        assert_eq!(told(&life), expected);
    }

    #[test]
    fn what_goes_on_is_open_and_a_failed_attempt_without_a_checkpoint_lost_everything() {
        let mut attempts = vec![span(1, [10, 15, 100], Outcome::Failed, None)];
        fn life(attempts: &[Span]) -> Life<'_> {
            Life {
                submitted_at: at(0),
                attempts,
                suspended: &[],
                ended_at: None,
            }
        }
        assert_eq!(
            told(&life(&attempts)),
            [
                "1 queued 0-10",
                "1 starting 10-15",
                "1 running 15-100 lost",
                "2 queued 100-on"
            ]
        );
        attempts.push(Span {
            running_at: None,
            ended_at: None,
            ..span(2, [110, 0, 0], Outcome::Failed, None)
        });
        assert_eq!(told(&life(&attempts)).last().unwrap(), "2 starting 110-on");
    }

    #[test]
    fn an_attempt_that_never_ran_was_only_starting() {
        let attempts = [Span {
            running_at: None,
            ..span(1, [10, 0, 40], Outcome::Failed, None)
        }];
        let life = Life {
            submitted_at: at(0),
            attempts: &attempts,
            suspended: &[],
            ended_at: Some(at(40)),
        };
        assert_eq!(told(&life), ["1 queued 0-10", "1 starting 10-40"]);
    }

    #[test]
    fn clocks_that_run_backwards_never_make_a_gap() {
        for seed in 1..=2_000 {
            let mut chance = Chance::of(seed);
            let mut time = |at_most| at(chance.between(0, at_most) as i64);
            let attempts: Vec<Span> = (1..=3)
                .map(|number| Span {
                    number,
                    admitted_at: time(100),
                    running_at: Some(time(100)),
                    ended_at: Some(time(100)),
                    outcome: Some(Outcome::Failed),
                    last_checkpoint_at: Some(time(100)),
                })
                .collect();
            let suspended = [(time(100), Some(time(100))), (time(100), Some(time(100)))];
            // The end is the last thing that happens.
            let life = Life {
                submitted_at: time(50),
                attempts: &attempts,
                suspended: &suspended,
                ended_at: Some(at(101)),
            };
            check_cover(&life, &intervals(&life));
        }
    }
}
