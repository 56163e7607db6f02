//! What is kept of an attempt that ended badly: who ended how, who was first, who were victims, what the nodes were
//! like then, what the policy did and what to do next. Made once, stored as it is, never computed again.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    attempt::{AttemptEnd, Evidence, FirstFailure, Reason, ReplicaFacts, first_failure},
    exits,
    recognise::Recognised,
    retry::Verdict,
};
pub use printed::{LINE_LENGTH, LOOKED_AT, Printed};

use crate::model::{ConditionStatus, Outcome, ReplicaPhase, Severity};

mod printed;
mod sentences;
#[cfg(test)]
mod stories;

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
    pub printed: &'a Printed,
    /// The runtime's words where it could not start or was lost.
    pub message: Option<&'a str>,
    /// What it was limited to, for out-of-memory.
    pub memory_limit: Option<u64>,
}

/// A node's condition at the time of the end. `true` means that something is wrong.
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

/// So much is kept of what was printed: the lines of each that failed, fewer of each victim, and of no more
/// replicas than these, so that a post-mortem of ten thousand ranks stays a document.
pub const LINES_KEPT: usize = 50;
pub const LINES_OF_VICTIM: usize = 10;
pub const FAILED_WITH_LINES: usize = 16;
pub const VICTIMS_WITH_LINES: usize = 16;

/// Makes the document. The lines that are handed in may say more than what was known when the attempt ended, so the
/// first failure is named again from them.
pub fn post_mortem(ended: &Ended<'_>) -> PostMortem {
    let facts: Vec<ReplicaFacts> = ended
        .replicas
        .iter()
        .map(|replica| ReplicaFacts {
            evidence: (replica.printed.recognised.as_ref().map(|found| found.evidence)).or(replica.facts.evidence),
            ..replica.facts.clone()
        })
        .collect();
    let first = first_failure(&facts);
    let mut lines = LinesLeft::default();
    let mut replicas = Vec::with_capacity(facts.len());
    // The first failure takes its lines before the room for them is used up.
    let mut order: Vec<usize> = (0..facts.len()).collect();
    order.sort_by_key(|&place| {
        (
            first.as_ref().is_none_or(|first| first.key != facts[place].key),
            facts[place].rank,
        )
    });
    for place in order {
        let part = part(&facts[place], first.as_ref());
        replicas.push(replica_end(&ended.replicas[place], &facts[place], part, &mut lines));
    }
    replicas.sort_by_key(|replica| replica.rank);
    let of_first = first.as_ref().and_then(|first| {
        let place = facts.iter().position(|facts| facts.key == first.key)?;
        Some(&ended.replicas[place])
    });
    let steps_lost = ended
        .last_step
        .zip(ended.checkpoint_step)
        .map(|(last, kept)| (last - kept).max(0));
    PostMortem {
        version: 1,
        attempt: ended.number,
        outcome: ended.end.outcome,
        reason: ended.end.reason,
        summary: sentences::summary(ended, first.as_ref(), of_first, &replicas, steps_lost),
        next: sentences::next(ended, of_first),
        ended_at: ended.end.at,
        nodes: ended.nodes.iter().filter(|node| not_well(node)).cloned().collect(),
        policy: ended.verdict.cloned(),
        policy_sentence: ended.verdict.map(Verdict::in_words).unwrap_or_default(),
        steps_lost,
        first_failure: first,
        replicas,
    }
}

fn not_well(node: &NodeThen) -> bool {
    node.status != ConditionStatus::False && node.severity != Severity::Info
}

fn part(facts: &ReplicaFacts, first: Option<&FirstFailure>) -> Part {
    match facts.phase {
        _ if first.is_some_and(|first| first.key == facts.key) => Part::FirstFailure,
        ReplicaPhase::Succeeded => Part::Succeeded,
        _ if facts.started_at.is_none() && facts.exit.is_none() => Part::NeverRan,
        ReplicaPhase::Failed if facts.evidence == Some(Evidence::Consequence) => Part::Victim,
        ReplicaPhase::Failed | ReplicaPhase::Lost => Part::AlsoFailed,
        _ => Part::Victim,
    }
}

fn replica_end(replica: &EndedReplica<'_>, facts: &ReplicaFacts, part: Part, lines: &mut LinesLeft) -> ReplicaEnd {
    let kept = lines.for_part(part);
    let last = &replica.printed.last_lines;
    ReplicaEnd {
        role: facts.key.role.clone(),
        index: facts.key.index,
        rank: facts.rank,
        node: replica.node.map(str::to_owned),
        part,
        exit_code: facts.exit.as_ref().and_then(|exit| exit.code),
        signal: facts.exit.as_ref().and_then(exits::signal),
        ended_at: facts.ended_at,
        exit: sentences::exit(replica, facts),
        recognised: replica.printed.recognised.clone(),
        last_lines: last[last.len().saturating_sub(kept)..].to_vec(),
        last_step: facts.step,
    }
}

/// How many more replicas of each part may bring their lines.
struct LinesLeft {
    failed: usize,
    victims: usize,
}

impl Default for LinesLeft {
    fn default() -> Self {
        Self {
            failed: FAILED_WITH_LINES,
            victims: VICTIMS_WITH_LINES,
        }
    }
}

impl LinesLeft {
    fn for_part(&mut self, part: Part) -> usize {
        let (left, lines) = match part {
            Part::FirstFailure | Part::AlsoFailed => (&mut self.failed, LINES_KEPT),
            Part::Victim => (&mut self.victims, LINES_OF_VICTIM),
            Part::Succeeded | Part::NeverRan => return 0,
        };
        if *left == 0 {
            return 0;
        }
        *left -= 1;
        lines
    }
}
