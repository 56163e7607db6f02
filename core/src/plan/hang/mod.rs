//! Whether a running attempt stands still. Flags with evidence; ends nothing (only a silence deadline does).
//!
//! The yardsticks are the job's own: how long its steps took, how often each rank printed, and the median over
//! ranks. A rank is named only when it differs from the others in something that they all showed before. Where
//! only rank 0 ever printed, the silence of the rest says nothing about them, and the answer is "rank unknown".

use chrono::{DateTime, Duration, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::words;
use crate::model::ReplicaKey;

#[cfg(test)]
mod stories;
mod suspect;

/// What was seen of one running replica.
#[derive(Debug, Clone, PartialEq)]
pub struct RankSigns {
    pub key: ReplicaKey,
    pub rank: u32,
    pub started_at: DateTime<Utc>,
    pub last_output_at: Option<DateTime<Utc>>,
    /// The last steps with their times, oldest first; thirty suffice.
    pub steps: Vec<StepAt>,
    /// Processor use over the last look, in thousandths of a core; shown, never decisive.
    pub cpu_milli: Option<u64>,
    /// The kernel's letter for the process (`R`, `S`, `D`, `T` ...), if the runtime can tell. `T`: stopped by a signal.
    pub process_state: Option<char>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepAt {
    pub step: i64,
    pub at: DateTime<Utc>,
}

/// How a running attempt gets on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Judgement {
    /// Steps or output come as they did before.
    Well,
    /// There is nothing to measure against: it has printed too little so far.
    TooEarly { looked_at: Vec<String> },
    /// The present step takes longer than the job's steps did, and not yet so long that it is a hang.
    Slow {
        since: DateTime<Utc>,
        message: String,
        looked_at: Vec<String>,
    },
    Hung {
        since: DateTime<Utc>,
        /// The rank that stands out. `None`: rank unknown.
        suspect: Option<Suspect>,
        message: String,
        /// What was looked at, one sentence each.
        looked_at: Vec<String>,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Suspect {
    pub key: ReplicaKey,
    pub rank: u32,
    pub evidence: Vec<String>,
}

/// Judges one running attempt, from all its replicas that still run. `since` is when it was last known to be
/// watched without a break: what came before our own absence is not held against the job.
pub fn judge(ranks: &[RankSigns], running_at: DateTime<Utc>, since: DateTime<Utc>, now: DateTime<Utc>) -> Judgement {
    let signs = Signs::of(ranks, running_at.max(since), now);
    match signs.pace {
        Some(pace) => by_steps(&signs, pace),
        None => by_silence(&signs),
    }
}

/// A job is slow when a step takes three times the median, and stands still at ten times, and three times the
/// longest that it ever took lately (an evaluation that comes again is known by then). Below the floors nothing is
/// said, since a job with quick steps pauses for many reasons.
const SLOW_TIMES: i32 = 3;
const SLOW_FLOOR: Duration = Duration::seconds(3);
const HUNG_TIMES: i32 = 10;
const HUNG_LONGEST_TIMES: i32 = 3;
const HUNG_FLOOR: Duration = Duration::seconds(60);
/// Without any steps there is no yardstick but this.
const SILENT: Duration = Duration::minutes(15);

/// How long a report of steps takes.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// The median over ranks of each rank's own median.
    median: Duration,
    longest: Duration,
}

impl Pace {
    fn slow(self) -> Duration {
        (self.median * SLOW_TIMES).max(SLOW_FLOOR)
    }

    fn hung(self) -> Duration {
        (self.median * HUNG_TIMES)
            .max(self.longest * HUNG_LONGEST_TIMES)
            .max(HUNG_FLOOR)
    }
}

struct Signs<'a> {
    ranks: &'a [RankSigns],
    pace: Option<Pace>,
    /// Nothing older than this is held against anybody.
    from: DateTime<Utc>,
    now: DateTime<Utc>,
}

impl<'a> Signs<'a> {
    fn of(ranks: &'a [RankSigns], from: DateTime<Utc>, now: DateTime<Utc>) -> Self {
        Self {
            ranks,
            pace: pace(ranks),
            from,
            now,
        }
    }

    /// How long ago a sign was, as far as we watched.
    fn age(&self, sign: Option<DateTime<Utc>>) -> Duration {
        self.now - sign.map_or(self.from, |at| at.max(self.from))
    }

    fn last_step(&self) -> Option<StepAt> {
        self.ranks
            .iter()
            .filter_map(|rank| rank.steps.last().copied())
            .max_by_key(|step| step.at)
    }

    fn last_output(&self) -> Option<DateTime<Utc>> {
        self.ranks.iter().filter_map(|rank| rank.last_output_at).max()
    }
}

fn by_steps(signs: &Signs<'_>, pace: Pace) -> Judgement {
    let last = signs.last_step();
    let since = last.map_or(signs.from, |step| step.at);
    let age = signs.age(last.map(|step| step.at));
    let usual = words::brief(pace.median);
    let at_step = last.map_or(String::new(), |step| format!(" (step {})", words::count(step.step)));
    // A line that carries a step is output too; only output after it shows life beyond steps.
    let printing = signs
        .last_output()
        .is_some_and(|at| at > since + pace.slow().min(HUNG_FLOOR) / 2)
        && signs.age(signs.last_output()) < pace.hung();
    if age >= pace.hung() && !printing {
        let suspect = suspect::who_stands_out(signs.ranks, pace.median);
        let message = format!(
            "No rank has made a step since {}{at_step}; before, one took about {usual}. {}",
            words::exact(since),
            suspect::in_words(suspect.as_ref())
        );
        let looked_at = suspect::looked_at(signs.ranks);
        return Judgement::Hung {
            since,
            suspect,
            message,
            looked_at,
        };
    }
    if let Some(judgement) = left_behind(signs, pace) {
        return judgement;
    }
    if age >= pace.slow() {
        let more = if printing {
            ", though lines are still printed"
        } else {
            ""
        };
        let message = format!(
            "The step since {}{at_step} takes longer than usual, which is about {usual}{more}.",
            words::exact(since)
        );
        let looked_at = suspect::looked_at(signs.ranks);
        return Judgement::Slow {
            since,
            message,
            looked_at,
        };
    }
    Judgement::Well
}

/// Ranks that stand while others go on. Only where every rank reports steps does it say something that one does not.
fn left_behind(signs: &Signs<'_>, pace: Pace) -> Option<Judgement> {
    let all_report = signs.ranks.len() > 1 && signs.ranks.iter().all(|rank| rank.steps.len() > 1);
    if !all_report {
        return None;
    }
    let last_sign = |rank: &RankSigns| rank.steps.last().map(|step| step.at).max(rank.last_output_at);
    let standing: Vec<&RankSigns> = signs
        .ranks
        .iter()
        .filter(|rank| signs.age(last_sign(rank)) >= pace.hung())
        .collect();
    if standing.is_empty() || standing.len() == signs.ranks.len() {
        return None;
    }
    let since = standing.iter().filter_map(|rank| last_sign(rank)).min()?;
    let numbers: Vec<u32> = standing.iter().map(|rank| rank.rank).collect();
    let suspect = match standing[..] {
        [only] => Some(Suspect {
            key: only.key.clone(),
            rank: only.rank,
            evidence: vec![format!(
                "its last sign was at {}, while {} went on",
                words::exact(since),
                words::counted(signs.ranks.len() as u64 - 1, "other rank")
            )],
        }),
        _ => None,
    };
    let message = format!(
        "{} made no step since {}, while the others went on. {}",
        words::sentence(&words::ranks(&numbers)),
        words::exact(since),
        suspect::in_words(suspect.as_ref())
    );
    Some(Judgement::Hung {
        since,
        suspect,
        message,
        looked_at: suspect::looked_at(signs.ranks),
    })
}

/// No steps to measure by: only a long silence of all says something, or a process that is stopped.
fn by_silence(signs: &Signs<'_>) -> Judgement {
    let last = signs
        .ranks
        .iter()
        .flat_map(|rank| [rank.last_output_at, rank.steps.last().map(|step| step.at)])
        .max();
    let last = last.flatten();
    let age = signs.age(last);
    let suspect = suspect::stopped(signs.ranks);
    let looked_at = suspect::looked_at(signs.ranks);
    if age >= SILENT || (suspect.is_some() && age >= HUNG_FLOOR) {
        let since = last.map_or(signs.from, |at| at.max(signs.from));
        let message = format!(
            "No rank has printed since {}, and too few steps were reported to compare with. {}",
            words::exact(since),
            suspect::in_words(suspect.as_ref())
        );
        return Judgement::Hung {
            since,
            suspect,
            message,
            looked_at,
        };
    }
    match last.is_some() && age < HUNG_FLOOR {
        true => Judgement::Well,
        false => Judgement::TooEarly { looked_at },
    }
}

/// How long steps take, where enough were reported: three intervals of one rank at least.
fn pace(ranks: &[RankSigns]) -> Option<Pace> {
    let intervals = |rank: &RankSigns| -> Vec<Duration> {
        let pairs = rank.steps.windows(2).filter(|pair| pair[1].step > pair[0].step);
        pairs
            .map(|pair| (pair[1].at - pair[0].at).max(Duration::zero()))
            .collect()
    };
    let of_ranks: Vec<Vec<Duration>> = ranks.iter().map(intervals).filter(|one| one.len() >= 3).collect();
    let longest = of_ranks.iter().flatten().copied().max()?;
    let median = median(of_ranks.into_iter().map(shared).filter_map(median).collect())?;
    Some(Pace { median, longest })
}

/// Reports that were stored together have one time. The wait before them is shared out among them: else most steps of
/// a quick job would seem to take no time.
fn shared(intervals: Vec<Duration>) -> Vec<Duration> {
    let mut spans = Vec::with_capacity(intervals.len());
    // What was stored first has no wait before it that is known.
    let known = intervals
        .iter()
        .position(|span| !span.is_zero())
        .unwrap_or(intervals.len());
    for group in intervals[known..].chunk_by(|_, next| next.is_zero()) {
        let each = Duration::milliseconds(group[0].num_milliseconds() / group.len() as i64);
        spans.extend(std::iter::repeat_n(each, group.len()));
    }
    if spans.is_empty() { intervals } else { spans }
}

fn median(mut spans: Vec<Duration>) -> Option<Duration> {
    spans.sort_unstable();
    spans.get(spans.len() / 2).copied()
}
