//! Why a job is not running: one sentence, the layer, the numbers, the next step. A function of records alone.
//!
//! Layers are a list ([`LAYERS`]) asked in turn; each sees the same facts and answers or passes. The first answer is
//! the reason, the others stand beside it. What clusters add later (quotas, Kueue, unschedulable pods) are further
//! entries.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub mod capacity;
mod layers;
#[cfg(test)]
mod stories;

use super::{admit::NotYet, attempt::StopCause, words};
use crate::{
    document::job::SecretRef,
    model::{Layer, Phase, ReplicaKey, ReplicaPhase, Wanted},
};

/// The facts of one job that the layers look at. What was not looked up is left empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts<'a> {
    pub name: &'a str,
    pub wanted: Wanted,
    pub phase: Phase,
    /// When the present phase began.
    pub since: DateTime<Utc>,
    pub priority: i32,
    pub queue_deadline: Option<chrono::Duration>,
    pub waited_before: chrono::Duration,
    pub backoff: Option<Backoff<'a>>,
    /// Who asked for the suspension, and when.
    pub suspended: Option<ByWhom<'a>>,
    pub team: &'a str,
    pub team_exists: bool,
    /// Secrets that the document names and that the team does not have (or not with that key).
    pub missing_secrets: &'a [SecretRef],
    /// The cluster that the document names, or that was chosen.
    pub cluster: Option<ClusterFacts<'a>>,
    /// With no cluster named: every cluster that the team may use, with why it does not take the job.
    pub candidates: &'a [Candidate<'a>],
    /// What admission said last.
    pub queue: Option<&'a NotYet>,
    /// The live attempt.
    pub attempt: Option<AttemptView<'a>>,
    pub stale_since: Option<DateTime<Utc>>,
    /// The records were restored then, and nobody has confirmed that workers may act on them.
    pub restored_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff<'a> {
    pub until: DateTime<Utc>,
    pub retry: u32,
    pub max: u32,
    /// How the last attempt ended, as one sentence.
    pub last: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ByWhom<'a> {
    pub who: &'a str,
    pub at: DateTime<Utc>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ClusterFacts<'a> {
    pub name: &'a str,
    pub exists: bool,
    /// The team's grant allows it.
    pub granted: bool,
    /// A worker holds the cluster. `None`: none does, and `worker_seen_at` says since when.
    pub worker: Option<&'a str>,
    pub worker_seen_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate<'a> {
    pub cluster: ClusterFacts<'a>,
    pub hold: Option<&'a NotYet>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AttemptView<'a> {
    pub number: u32,
    pub admitted_at: DateTime<Utc>,
    pub start_deadline: Option<chrono::Duration>,
    /// Why the last try to start it failed, if it did. It is tried again.
    pub failed_try: Option<&'a str>,
    pub stop_cause: Option<StopCause>,
    pub stopping_at: Option<DateTime<Utc>>,
    pub grace: chrono::Duration,
    /// Phase, and the runtime's words where it has some.
    pub replicas: &'a [(ReplicaKey, ReplicaPhase, Option<String>)],
}

/// The answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Why {
    /// Waiting time, cause and next step in words: what a page and the command line print.
    pub sentence: String,
    /// The first entry is the one that holds the job up now; others come after it.
    pub reasons: Vec<WhyReason>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WhyReason {
    pub layer: Layer,
    /// A stable code, such as `too_big`.
    pub code: WhyCode,
    /// The cause as part of a sentence, without a full stop; `next` likewise.
    pub message: String,
    pub since: Option<DateTime<Utc>>,
    /// When it ends by itself, if that is known.
    pub until: Option<DateTime<Utc>>,
    pub numbers: Vec<Figure>,
    /// What a person can do.
    pub next: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Figure {
    pub name: String,
    pub value: i64,
    /// `cores/1000`, `bytes`, `gpus`, `nodes`, `jobs`, `seconds`, or the resource's own name.
    pub unit: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WhyCode {
    /// The records were restored, and workers only observe.
    Restored,
    TeamMissing,
    ClusterMissing,
    NoGrant,
    NoClusterFits,
    SecretMissing,
    Suspended,
    Suspending,
    Stopping,
    Backoff,
    WorkerGone,
    NoNodes,
    TooBig,
    NoRoom,
    Behind,
    /// Admission has not looked at it yet.
    NotLookedAt,
    Starting,
    StartSlow,
    /// Something of the machine keeps it from starting; it is tried again.
    StartFails,
    /// A deadline will end the wait.
    QueueDeadline,
}

/// A layer's question. `None`: nothing to say here.
pub type LayerFn = fn(&Facts<'_>, DateTime<Utc>) -> Option<WhyReason>;

/// Outermost first: what would still hold the job up if everything below it were well.
pub const LAYERS: &[LayerFn] = &[
    layers::restored,
    layers::suspended,
    layers::stopping,
    layers::team,
    layers::cluster,
    layers::secrets,
    layers::worker_gone,
    layers::backoff,
    layers::no_cluster_fits,
    layers::queue,
    layers::starting,
    layers::queue_deadline,
];

/// Why the job is not running. `None` when it runs or is final.
pub fn why(facts: &Facts<'_>, now: DateTime<Utc>) -> Option<Why> {
    let reasons: Vec<WhyReason> = LAYERS.iter().filter_map(|layer| layer(facts, now)).collect();
    let first = reasons.first()?;
    let span = words::duration(now - facts.since);
    let lead = match facts.phase {
        Phase::Queued => format!("Waiting {span}: {}", first.message),
        Phase::Starting => format!("Starting for {span}: {}", first.message),
        Phase::Stopping => format!("Stopping for {span}: {}", first.message),
        _ => words::sentence(&first.message),
    };
    Some(Why {
        sentence: format!("{lead}. Next: {}.", first.next),
        reasons,
    })
}
