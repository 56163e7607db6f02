//! Usage intervals: from submission to end, every moment of a job belongs to exactly one of them.

use chrono::{DateTime, Utc};

use crate::model::{Outcome, UnknownWord, words};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

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
    /// The attempt's number; a wait belongs to the attempt that it leads to.
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

/// Every interval of the job, in order, without gap or overlap. Times that run backwards are clamped.
pub fn intervals(life: &Life<'_>) -> Vec<Interval> {
    let _ = life;
    todo!()
}

/// An ended attempt's running interval as kept and lost parts. Empty parts are left out.
pub fn split(span: &Span) -> Vec<Interval> {
    let _ = span;
    todo!()
}
