//! The heart: what to do about one job now. Facts from the records and one observation in, steps out.
//!
//! [`decide`] is a function of its arguments. Each step is idempotent, and once its steps are applied the same
//! facts lead to no further records being written (only to the outside acts that have not shown yet). So a crash
//! between acting and recording, a lost wake-up or a second worker are all the same case: look again.
//!
//! The order of the steps is the order in which the worker takes them: what records an intention comes before the
//! act that follows from it. All record steps of one decision belong in one transaction; the acts
//! ([`Step::is_act`]) go to the runtime and may be repeated.
//!
//! Deliberately absent: placement ([`super::admit`]), and words for people beyond one sentence per change
//! ([`super::why`], [`super::postmortem`]).

use chrono::{DateTime, Utc};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{
    document::job::{CheckpointSignal, Checkpoints, Deadlines, Framework, JobDocument, Restart, Stop},
    model::{
        AttemptPhase, ConditionStatus, Exit, IncarnationId, Observed, Outcome, Phase, ReplicaKey, ReplicaPhase,
        Severity, UnknownWord, Wanted, words,
    },
};

mod decide;
mod desk;
mod end;
mod first_failure;
mod fold;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod wishes;
#[cfg(test)]
mod world;

pub use decide::decide;
pub use first_failure::first_failure;
pub use fold::refused;

words! {
    /// Why an attempt was asked to end. The first cause stays, but a person's cancel or delete overrides a suspend.
    StopCause {
        ReplicaFailed = "replica_failed",
        ReplicaLost = "replica_lost",
        StartFailed = "start_failed",
        StartDeadline = "start_deadline",
        RunDeadline = "run_deadline",
        SilenceDeadline = "silence_deadline",
        /// The role that the job ends with has ended (the launcher of an MPI job).
        LauncherEnded = "launcher_ended",
        Suspend = "suspend",
        Cancel = "cancel",
        Delete = "delete",
    }
}

words! {
    /// Why a job or an attempt is where it is: the stable code beside the sentence.
    Reason {
        Submitted = "submitted",
        Admitted = "admitted",
        AllRunning = "all_running",
        AllSucceeded = "all_succeeded",
        LauncherSucceeded = "launcher_succeeded",
        ExitCode = "exit_code",
        Signal = "signal",
        OutOfMemory = "out_of_memory",
        /// The process ended and nobody saw how.
        ExitUnknown = "exit_unknown",
        StartFailed = "start_failed",
        ReplicaLost = "replica_lost",
        StartDeadline = "start_deadline",
        RunDeadline = "run_deadline",
        SilenceDeadline = "silence_deadline",
        QueueDeadline = "queue_deadline",
        /// A person asked for it.
        Cancelled = "cancelled",
        Suspended = "suspended",
        Resumed = "resumed",
        Deleted = "deleted",
        /// The policy starts another attempt.
        Retry = "retry",
        /// The job was active and no attempt of it is recorded; it waits again.
        AttemptMissing = "attempt_missing",
    }
}

words! {
    /// What may be true of a job besides its phase.
    ConditionKind {
        /// A rank stands still against the others and its own past.
        Hung = "hung",
        /// A step takes much longer than the job's own steps did.
        Slow = "slow",
        /// Asked to end, and processes are still there long after grace.
        StopOverdue = "stop_overdue",
        /// Not every replica runs long after admission, and no deadline bounds that.
        StartSlow = "start_slow",
    }
}

/// Something that is true (or unknown) of a job, with its evidence. Absent from the records means not true.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Condition {
    pub kind: ConditionKind,
    pub status: ConditionStatus,
    pub severity: Severity,
    /// A stable code. A condition is written again only when status or reason changes.
    pub reason: String,
    /// One sentence that names times, not durations, so that it does not age.
    pub message: String,
}

/// The role that an MPI job ends with.
pub const LAUNCHER: &str = "launcher";

/// The parts of the document that decide here.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Policy<'a> {
    pub restart: &'a Restart,
    pub deadlines: &'a Deadlines,
    pub stop: &'a Stop,
    pub checkpoints: &'a Checkpoints,
    /// The job ends with this role, whatever the others do. `None`: it ends when all replicas have ended, so a
    /// rank 0 or `master` that succeeds while workers still run is waited with, never ended early.
    pub ends_with: Option<&'a str>,
}

impl<'a> Policy<'a> {
    pub fn of(document: &'a JobDocument) -> Self {
        let launcher = document.framework == Framework::Mpi && document.roles.iter().any(|role| role.name == LAUNCHER);
        Self {
            restart: &document.restart,
            deadlines: &document.deadlines,
            stop: &document.stop,
            checkpoints: &document.checkpoints,
            ends_with: launcher.then_some(LAUNCHER),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct JobFacts<'a> {
    pub wanted: Wanted,
    pub phase: Phase,
    /// When the present wait in the queue began (submission, resume, or the end of the last attempt).
    pub queued_at: DateTime<Utc>,
    /// The backoff of the present wait.
    pub not_before: Option<DateTime<Utc>>,
    /// The sum of earlier waits, backoffs left out ([`super::retry::waited`] of each).
    pub waited_before: chrono::Duration,
    /// Earlier attempts of this job that ended `failed` or `lost`; the present one is not counted.
    pub failures_before: u32,
    /// Since when we can't see the job, as recorded.
    pub stale_since: Option<DateTime<Utc>>,
    /// A delete was carried out: the job is hidden.
    pub hidden: bool,
    pub conditions: &'a [Condition],
    pub policy: Policy<'a>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AttemptFacts {
    pub number: u32,
    pub phase: AttemptPhase,
    pub admitted_at: DateTime<Utc>,
    pub running_at: Option<DateTime<Utc>>,
    pub stopping_at: Option<DateTime<Utc>>,
    pub stop_cause: Option<StopCause>,
    /// When [`Step::SignalCheckpoint`] was carried out.
    pub checkpoint_asked_at: Option<DateTime<Utc>>,
    /// The time of the last checkpoint that was reported for this attempt.
    pub checkpoint_at: Option<DateTime<Utc>>,
    /// When [`Step::StopProcesses`] was first carried out.
    pub stop_asked_at: Option<DateTime<Utc>>,
    /// How it ended, once `phase` is ended.
    pub end: Option<AttemptEnd>,
    /// In rank order, every replica of the attempt.
    pub replicas: Vec<ReplicaFacts>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplicaFacts {
    pub key: ReplicaKey,
    pub rank: u32,
    pub phase: ReplicaPhase,
    pub incarnation: Option<IncarnationId>,
    pub started_at: Option<DateTime<Utc>>,
    /// When it became final, as far as is known.
    pub ended_at: Option<DateTime<Utc>>,
    /// How its process ended. A final replica without one could not start, was lost, or never ran.
    pub exit: Option<Exit>,
    /// Why it could not start, or how it was lost.
    pub message: Option<String>,
    pub last_output_at: Option<DateTime<Utc>>,
    pub step: Option<i64>,
    pub step_at: Option<DateTime<Utc>>,
    /// What its last lines say, if they were looked at ([`super::recognise::weigh`]).
    pub evidence: Option<Evidence>,
}

/// Whether a rank's last lines speak of a fault of its own, or of another rank's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A fault of its own: a traceback, out of memory, a missing module.
    Cause,
    /// Nothing that was recognised.
    Silent,
    /// A peer went away: connection reset, broken pipe, a collective that timed out.
    Consequence,
}

/// How an attempt ended, as recorded and as decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttemptEnd {
    pub outcome: Outcome,
    pub reason: Reason,
    pub message: String,
    pub at: DateTime<Utc>,
    pub first_failure: Option<FirstFailure>,
    /// The status that the policy looks at: the first failure's exit code, 128 + signal for a signal.
    pub code: Option<i32>,
}

/// Which rank failed first, and how sure that is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FirstFailure {
    pub key: ReplicaKey,
    pub rank: u32,
    pub certainty: Certainty,
    /// Other ranks whose failure came within a second and that the evidence does not tell apart.
    pub also: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Certainty {
    /// The only one that failed by itself.
    Only,
    /// More than a second before every other.
    Earliest,
    /// Within a second of others whose last lines speak of a lost peer, while its own do not.
    ByEvidence,
    /// Within a second of others, and nothing tells them apart: the earliest by time.
    Tied,
}

/// What the runtime shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sight<'a> {
    Seen {
        observed: &'a Observed,
        /// Since when this attempt is watched and its output read without a break. Silence is counted from here,
        /// so that our own absence is never taken for a job's.
        since: DateTime<Utc>,
    },
    /// The cluster's worker is gone or the runtime does not answer. Nothing is concluded about the job.
    NotObservable { since: DateTime<Utc> },
}

/// What the worker does, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Record: the job's phase.
    MoveJob {
        phase: Phase,
        reason: Reason,
        message: String,
        at: DateTime<Utc>,
    },
    /// Record: the attempt runs. `at` is when its last replica started, which may be before `now`.
    AttemptRuns {
        at: DateTime<Utc>,
    },
    /// Record: a replica's phase and what is known with it, whole.
    MoveReplica {
        key: ReplicaKey,
        phase: ReplicaPhase,
        incarnation: Option<IncarnationId>,
        started_at: Option<DateTime<Utc>>,
        ended_at: Option<DateTime<Utc>>,
        exit: Option<Exit>,
        /// Why it could not start, or how it was lost.
        message: Option<String>,
    },
    /// Act: start what is not there yet (`Runtime::start`).
    StartProcesses,
    /// Record: the attempt is to end; its phase becomes `stopping` and the cause is kept.
    StopAttempt {
        cause: StopCause,
        message: String,
        at: DateTime<Utc>,
    },
    /// Act: ask for a checkpoint (`Runtime::signal`), then record `checkpoint_asked_at`. A crash in between
    /// repeats the signal, so a program must bear two.
    SignalCheckpoint {
        signal: CheckpointSignal,
    },
    /// Act: end the processes (`Runtime::stop`), and record `stop_asked_at` the first time.
    StopProcesses,
    /// Record: the attempt's end. Its resources are free from here on.
    EndAttempt(AttemptEnd),
    /// Record: the job waits in the queue again, since `at`. Comes with a `MoveJob` to queued.
    Requeue {
        at: DateTime<Utc>,
        not_before: Option<DateTime<Utc>>,
    },
    SetCondition(Condition),
    ClearCondition(ConditionKind),
    /// Record: whether what we know is fresh (`None`) or stale since when.
    MarkSeen {
        stale_since: Option<DateTime<Utc>>,
    },
    /// Record: hide a job that was deleted, once its last logs are stored.
    HideJob,
}

impl Step {
    /// Whether it is done by the runtime. The others are records.
    pub fn is_act(&self) -> bool {
        matches!(
            self,
            Step::StartProcesses | Step::SignalCheckpoint { .. } | Step::StopProcesses
        )
    }
}

words! {
    /// Who moves a job on from where it is.
    Owner {
        /// The timer: see `look_again_at`.
        Timer = "timer",
        /// Admission of the cluster.
        Queue = "queue",
        /// A person (a suspended job).
        Person = "person",
        /// It is final and done.
        Nobody = "nobody",
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Decision {
    pub steps: Vec<Step>,
    pub look_again_at: Option<DateTime<Utc>>,
    /// Who moves it on after these steps. `Timer` always comes with `look_again_at`; `Queue` may.
    pub owner: Owner,
}
