//! Whether a running attempt stands still. Flags with evidence; ends nothing (only a silence deadline does).
//!
//! The yardsticks are the job's own: how long its steps took, how often each rank printed, and the median over
//! ranks. A rank is named only when it differs from the others in something that they all showed before. Where
//! only rank 0 ever printed, the silence of the rest says nothing about them, and the answer is "rank unknown".

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model::ReplicaKey;

/// What was seen of one running replica.
#[derive(Debug, Clone, PartialEq)]
pub struct RankSigns {
    pub key: ReplicaKey,
    pub rank: u32,
    pub started_at: DateTime<Utc>,
    pub last_output_at: Option<DateTime<Utc>>,
    /// The last steps with their times, oldest first; thirty suffice.
    pub steps: Vec<StepAt>,
    /// Processor use over the last look, in thousandths of a core; shown as evidence, never decisive alone.
    pub cpu_milli: Option<u64>,
    /// The process is stopped by a signal or waits on a disk, if the runtime can tell (`T` or `D` in the kernel's words).
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

/// Judges one running attempt. `since` is when it was last known to be watched without a break.
pub fn judge(ranks: &[RankSigns], running_at: DateTime<Utc>, since: DateTime<Utc>, now: DateTime<Utc>) -> Judgement {
    let _ = (ranks, running_at, since, now);
    todo!()
}
