//! How a cluster runs an attempt. A runtime starts, watches and ends processes or pods; it knows no job records,
//! no SQL and no policy. Everything it does is idempotent, since its names derive from the attempt's id.

use async_trait::async_trait;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use trainyard_core::model::{AttemptId, IncarnationId, JobId, Launch, LogStream, Observed, ReplicaKey};

pub mod local;

/// One stream of one incarnation, as the runtime names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct OutputRef {
    pub attempt: AttemptId,
    pub key: ReplicaKey,
    pub incarnation: IncarnationId,
    pub stream: LogStream,
}

/// What can be read of a stream now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputState {
    pub output: OutputRef,
    /// Bytes that the process has written since its start; reading stops here.
    pub length: u64,
    /// Nothing will be added any more: the process and everything that held the stream open are gone.
    pub ended: bool,
    /// Ranges that were given up unread because the unstored output passed its bound, oldest first.
    pub dropped: Vec<std::ops::Range<u64>>,
}

/// What one replica used so far.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct ReplicaUsage {
    /// Processor time since its start, all its processes together.
    pub cpu_seconds: f64,
    /// Memory now; pages that the kernel can drop at any time are left out where they can be told.
    pub memory_bytes: u64,
    /// The most it ever had. Where a control group counts, file pages are in it.
    pub memory_peak_bytes: u64,
    pub processes: u32,
    /// The kernel's letter for its first process (`R`, `S`, `D`, `T` ...) while it runs. `T`: stopped by a signal.
    #[serde(default)]
    pub state: Option<char>,
}

#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// Trying again may help: a full disk, a missing permission that somebody is mending.
    #[error("{0}")]
    Retry(String),
    /// Trying again will not help; the words are for the person who submitted.
    #[error("{message}")]
    Refused { reason: &'static str, message: String },
}

#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// Starts every replica of the attempt that is not there yet. Starting twice is starting once.
    async fn start(&self, launch: &Launch) -> Result<(), RuntimeError>;

    /// What is there of the attempt now. An attempt that was never started has no replicas. One that nobody is starting
    /// is missing as well, also when a start of it was broken off: [`Runtime::start`] starts it then.
    async fn observe(&self, attempt: AttemptId) -> Result<Observed, RuntimeError>;

    /// Sends a signal to the first process of every replica (a checkpoint request), and to nothing else.
    async fn signal(&self, attempt: AttemptId, signal: i32) -> Result<(), RuntimeError>;

    /// Asks the whole attempt to end: SIGTERM to each replica's group, SIGKILL after the document's grace, no child
    /// left. Returns once asked; `observe` tells when it is over. Asking twice is asking once.
    async fn stop(&self, attempt: AttemptId) -> Result<(), RuntimeError>;

    /// The streams of an attempt, with how far each can be read.
    async fn outputs(&self, attempt: AttemptId) -> Result<Vec<OutputState>, RuntimeError>;

    /// At most `limit` bytes of a stream from `offset`. Empty: nothing there yet, the end, or `offset` lies in a range
    /// that was dropped; [`Runtime::outputs`] tells which. Never returns bytes of a dropped range.
    async fn read(&self, output: &OutputRef, offset: u64, limit: usize) -> Result<Bytes, RuntimeError>;

    /// The bytes before `offset` are stored elsewhere: their space may be reused.
    async fn give_back(&self, output: &OutputRef, offset: u64) -> Result<(), RuntimeError>;

    /// Removes whatever is left of an ended attempt whose output was stored whole. Never ends anything.
    async fn release(&self, attempt: AttemptId) -> Result<(), RuntimeError>;

    /// The attempts that the runtime has anything of, for finding what was left behind.
    async fn attempts(&self) -> Result<Vec<AttemptId>, RuntimeError>;

    /// Removes what attempts of a job shared (its volumes), once the job is deleted.
    async fn release_job(&self, _job: JobId) -> Result<(), RuntimeError> {
        Ok(())
    }

    /// What each replica used so far. Replicas whose use can't be told are missing.
    async fn usage(&self, _attempt: AttemptId) -> Result<Vec<(ReplicaKey, ReplicaUsage)>, RuntimeError> {
        Ok(Vec::new())
    }

    /// What the cluster is like at this moment, for a person who asked.
    async fn look(&self) -> Result<Value, RuntimeError> {
        Ok(Value::Null)
    }

    /// Waits until something happened (a start, an end) and names the attempts; none named: look at all. A
    /// hint that may come late or for nothing, so callers look at everything now and then; dropping the future loses
    /// nothing.
    async fn changed(&self) -> Vec<AttemptId> {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        Vec::new()
    }
}
