//! How far a job is: step, total, rate, time left, and the state in words that every page leads with.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{hang::StepAt, why::Why};
use crate::model::{Outcome, Phase};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Progress {
    pub step: i64,
    pub total: Option<u64>,
    /// Steps per second over the recent window, robust against single long steps.
    pub rate: Option<f64>,
    pub seconds_left: Option<u64>,
    pub at: DateTime<Utc>,
}

/// Progress from the last steps of the rank that is furthest (oldest first). `None` without any step.
pub fn progress(steps: &[StepAt], total: Option<u64>, now: DateTime<Utc>) -> Option<Progress> {
    let _ = (steps, total, now);
    todo!()
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
    pub ran_for: Option<chrono::Duration>,
    pub stale_since: Option<DateTime<Utc>>,
    /// Set conditions in a word or two each, worst first: "rank 3 hung".
    pub flags: &'a [&'a str],
}

/// "Running, 8 of 8 ranks, step 1,240 of 5,000, about 2 h left".
pub fn state_sentence(facts: &StateFacts<'_>, now: DateTime<Utc>) -> String {
    let _ = (facts, now);
    todo!()
}
