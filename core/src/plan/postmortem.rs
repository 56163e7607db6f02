//! What is kept of an attempt that ended badly: who ended how, who was first, who were victims, what the nodes were
//! like then, what the policy did and what to do next. Made once, stored as it is, never computed again.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    attempt::{AttemptEnd, FirstFailure, Reason, ReplicaFacts},
    recognise::Recognised,
    retry::Verdict,
};
use crate::model::{ConditionStatus, Outcome, Severity};

/// What the post-mortem is made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Ended<'a> {
    pub job_name: &'a str,
    pub number: u32,
    pub end: &'a AttemptEnd,
    pub replicas: &'a [EndedReplica<'a>],
    pub nodes: &'a [NodeThen],
    pub verdict: Option<&'a Verdict>,
    /// The last checkpoint of this attempt and the last step that was seen.
    pub checkpoint_step: Option<i64>,
    pub last_step: Option<i64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EndedReplica<'a> {
    pub facts: &'a ReplicaFacts,
    pub node: Option<&'a str>,
    /// Its last lines over both streams, oldest first.
    pub last_lines: &'a [&'a str],
    /// The runtime's words where it could not start or was lost.
    pub message: Option<&'a str>,
    /// What it was limited to, for out-of-memory.
    pub memory_limit: Option<u64>,
}

/// A node's condition at the time of the end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct NodeThen {
    pub node: String,
    pub condition: String,
    pub status: ConditionStatus,
    pub severity: Severity,
    pub message: String,
    pub since: Option<DateTime<Utc>>,
}

/// The frozen document. Within v1 fields are only added.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PostMortem {
    pub version: u32,
    pub attempt: u32,
    pub outcome: Outcome,
    pub reason: Reason,
    /// What happened, in one or two sentences.
    pub summary: String,
    pub next: String,
    pub ended_at: DateTime<Utc>,
    pub first_failure: Option<FirstFailure>,
    pub replicas: Vec<ReplicaEnd>,
    /// Only what was not well.
    pub nodes: Vec<NodeThen>,
    pub policy: Option<Verdict>,
    pub policy_sentence: String,
    /// Steps done since the last checkpoint, if both are known.
    pub steps_lost: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ReplicaEnd {
    pub role: String,
    pub index: u32,
    pub rank: u32,
    pub node: Option<String>,
    pub part: Part,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub ended_at: Option<DateTime<Utc>>,
    /// The exit in words: "ended by SIGSEGV (signal 11): it touched memory that is not its own".
    pub exit: String,
    pub recognised: Option<Recognised>,
    pub last_lines: Vec<String>,
    pub last_step: Option<i64>,
}

/// A replica's part in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    FirstFailure,
    /// Failed too, at its own time and by its own fault as far as is known.
    AlsoFailed,
    /// Ended because another did: stopped by us, or left by its peer.
    Victim,
    Succeeded,
    /// Never ran.
    NeverRan,
}

/// At most this many last lines are kept per replica, and this many characters of each.
pub const LINES_KEPT: usize = 50;
pub const LINE_LENGTH: usize = 1_000;

pub fn post_mortem(ended: &Ended<'_>) -> PostMortem {
    let _ = ended;
    todo!()
}
