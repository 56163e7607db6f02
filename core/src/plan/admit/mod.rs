//! Gang admission for one cluster: which waiting jobs start now, where each replica goes, and why the rest wait.
//!
//! The rules, in order:
//! 1. Jobs are looked at by priority (higher first), then age, then id.
//! 2. A job starts when all its replicas fit at once; each replica fits on one node.
//! 3. A job that could not be placed on the empty cluster is told so and never holds up anybody.
//! 4. The first job that could be placed but has no room now is the *head*. A place is set aside for it, and a
//!    job behind it starts only if it can't delay the head (`reserve` says how).
//!
//! A large job is never starved: `reserve` has the rule and its bound, and a simulation holds it to them.
//!
//! Nothing here knows teams' quotas, other clusters or time limits of the queue; they are decided elsewhere.

use std::collections::BTreeMap;

use chrono::{DateTime, Duration, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

mod fit;
#[cfg(test)]
mod properties;
mod queue;
mod reserve;
mod shortage;
#[cfg(test)]
mod stories;

pub use queue::admit;

use crate::{
    document::job::{JobDocument, Resources, Role},
    model::{AttemptId, JobId, NodeId, ReplicaKey, TeamId},
};

/// An amount of everything that is counted: what a node has, what a replica needs, what is left.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    pub cpu_milli: u64,
    pub memory_bytes: u64,
    pub gpus: u64,
    /// Named others, as the cluster calls them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub other: BTreeMap<String, u64>,
}

/// The replicas of one role, which are identical.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RoleDemand {
    pub role: String,
    pub replicas: u32,
    pub each: Amount,
}

/// A job that waits in the queue.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    pub job: JobId,
    pub name: String,
    pub team: TeamId,
    pub priority: i32,
    /// Since when it waits; its age in the queue's order.
    pub queued_at: DateTime<Utc>,
    /// Not to start before this (a backoff).
    pub not_before: Option<DateTime<Utc>>,
    pub roles: Vec<RoleDemand>,
    /// The longest that it can hold resources once admitted, where its deadlines bound that ([`longest_hold`]).
    pub longest_hold: Option<Duration>,
}

/// What one live attempt holds, whatever its phase: a stopping attempt still holds everything.
#[derive(Debug, Clone, PartialEq)]
pub struct Holder {
    pub job: JobId,
    pub attempt: AttemptId,
    pub name: String,
    pub priority: i32,
    pub queued_at: DateTime<Utc>,
    pub admitted_at: DateTime<Utc>,
    /// When its deadlines end it at the latest.
    pub ends_by: Option<DateTime<Utc>>,
    pub parts: Vec<Held>,
}

/// What an attempt holds on one node. Several entries may name the same node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub node: NodeId,
    pub amount: Amount,
    /// Which GPUs, where the node numbers them.
    pub gpus: Vec<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub id: NodeId,
    pub name: String,
    /// What jobs may use of it. A node that takes no new jobs (cordoned, stale, sick) is left out by the caller or
    /// has `open: false`, so that what runs there is still counted.
    pub capacity: Amount,
    /// The GPUs by index, where replicas are told which to use. Empty: they are only counted, by `capacity.gpus`.
    pub gpus: Vec<u32>,
    pub open: bool,
}

/// One call's bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LookAhead {
    /// At most this many jobs that could start are looked at in one call, in the queue's order. Jobs that can't
    /// (too big, or in a backoff) do not count, so that they never hide the others; ten times as many end the call.
    pub jobs: usize,
}

impl Default for LookAhead {
    fn default() -> Self {
        Self { jobs: 2_000 }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Admissions {
    /// In the order in which they were admitted.
    pub admitted: Vec<Admitted>,
    /// Every other job that was looked at, in the queue's order.
    pub waiting: Vec<NotYet>,
    /// How many jobs further back were not looked at in this call.
    pub beyond: usize,
    /// The next time at which the answer may change by itself (a backoff that ends).
    pub look_again_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admitted {
    pub job: JobId,
    /// In rank order.
    pub replicas: Vec<Placed>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub key: ReplicaKey,
    pub rank: u32,
    pub node: NodeId,
    pub gpus: Vec<u32>,
}

/// Why a job that was looked at does not start now. Stored with the job and shown by [`super::why`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NotYet {
    pub job: JobId,
    /// How many jobs of the queue come before it.
    pub ahead: u32,
    pub hold: Hold,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "hold", rename_all = "snake_case")]
pub enum Hold {
    /// The cluster has no node that takes jobs.
    NoNodes,
    /// It would not fit on the empty cluster. It never starts here unless the cluster grows.
    TooBig { shortage: Shortage },
    /// A backoff runs.
    Backoff { until: DateTime<Utc> },
    /// It is the head: it starts next, once there is room.
    NoRoom {
        shortage: Shortage,
        /// Who would have to end, earliest known end first; the first ten.
        must_end: Vec<JobRef>,
        must_end_count: u32,
        /// When all of them have ended at the latest, if every one has a deadline.
        by: Option<DateTime<Utc>>,
    },
    /// It waits behind the head: there is no room for it either, or starting it now could delay the head.
    Behind {
        head: JobRef,
        /// What it lacks itself. `None`: there is room, and that room is set aside for the head.
        shortage: Option<Shortage>,
    },
}

/// The resource that is short, in numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Shortage {
    /// `cpu` (thousandths of a core), `memory` (bytes), `gpus`, or the name of another resource.
    pub resource: String,
    pub role: String,
    pub replicas: u32,
    /// What one replica asks for.
    pub each: u64,
    /// What the whole job asks for, over all roles.
    pub asked: u64,
    pub free: u64,
    pub total: u64,
    /// The largest amount that one node has free, and that node.
    pub largest_free: u64,
    pub largest_free_node: Option<String>,
    /// The largest amount that one node has when it is empty.
    pub largest_total: u64,
    pub nodes: u32,
    /// One replica does not fit on any single node, even an empty one.
    pub one_replica_too_big: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct JobRef {
    pub job: JobId,
    pub name: String,
    pub ends_by: Option<DateTime<Utc>>,
}

/// What a document asks for, role by role, in rank order.
pub fn demand(document: &JobDocument) -> Vec<RoleDemand> {
    let of_role = |role: &Role| RoleDemand {
        role: role.name.clone(),
        replicas: role.replicas,
        each: amount(&role.resources),
    };
    document.roles.iter().map(of_role).collect()
}

/// What one replica of a role asks for. Memory that is left out is neither counted nor limited.
pub fn amount(resources: &Resources) -> Amount {
    Amount {
        cpu_milli: resources.cpu.as_milli(),
        memory_bytes: resources.memory.map_or(0, |memory| memory.as_bytes()),
        gpus: u64::from(resources.gpus),
        other: resources.other.clone(),
    }
}

/// The longest that an attempt of this document can hold resources, if its deadlines bound both start and run:
/// both, and the grace of its stop.
pub fn longest_hold(document: &JobDocument) -> Option<Duration> {
    let deadlines = &document.deadlines;
    Some(deadlines.start?.as_chrono() + deadlines.run?.as_chrono() + document.stop.grace.as_chrono())
}

/// When a live attempt of this document ends at the latest, for [`Holder::ends_by`].
pub fn ends_by(
    document: &JobDocument,
    admitted_at: DateTime<Utc>,
    running_at: Option<DateTime<Utc>>,
) -> Option<DateTime<Utc>> {
    let run = document.deadlines.run?.as_chrono() + document.stop.grace.as_chrono();
    match running_at {
        Some(running_at) => Some(running_at + run),
        None => Some(admitted_at + document.deadlines.start?.as_chrono() + run),
    }
}
