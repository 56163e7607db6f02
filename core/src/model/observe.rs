//! What a runtime is told to start, and what it sees of it. Runtimes speak in these; plans decide over them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::{AttemptId, IncarnationId, JobId};
use crate::document::job::JobDocument;

/// A replica's place in its attempt. `rank` counts over all roles in document order, from 0.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ReplicaKey {
    pub role: String,
    pub index: u32,
}

impl std::fmt::Display for ReplicaKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.role, self.index)
    }
}

/// Everything that a runtime needs to start an attempt. Its names derive from `attempt`, so starting twice is
/// starting once.
#[derive(Debug, Clone)]
pub struct Launch {
    pub job: JobId,
    pub job_name: String,
    pub team_name: String,
    pub attempt: AttemptId,
    /// The attempt's number within its job, from 1.
    pub number: u32,
    pub document: JobDocument,
    pub replicas: Vec<LaunchReplica>,
    /// Where the last checkpoint of an earlier attempt lies, if one was reported.
    pub resume_from: Option<String>,
    pub resume_step: Option<i64>,
    /// The values behind every `secretRef` of the document, by (secret name, key). Never logged, never stored.
    pub secrets: BTreeMap<(String, String), SecretValue>,
    /// The unpacked code's archive (a tar), if the document names uploaded code.
    pub code: Option<Vec<u8>>,
    /// Where and with what the attempt's processes may report. `None`: nobody knows an address that they could use.
    pub report: Option<ReportTo>,
}

/// The API as an attempt's own processes reach it.
#[derive(Debug, Clone)]
pub struct ReportTo {
    pub url: String,
    /// Good for reports about this job while this attempt lives.
    pub token: SecretValue,
}

#[derive(Debug, Clone)]
pub struct LaunchReplica {
    pub key: ReplicaKey,
    pub rank: u32,
    /// The record that this start belongs to.
    pub incarnation: IncarnationId,
    /// GPUs of this machine that were assigned to it, by index.
    pub gpus: Vec<u32>,
}

/// A secret's plain value. It prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(pub String);

impl std::fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("***")
    }
}

/// What a runtime sees of one attempt. Replicas that it does not know are missing from the list.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    pub at: DateTime<Utc>,
    pub replicas: Vec<ObservedReplica>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ObservedReplica {
    pub key: ReplicaKey,
    pub incarnation: IncarnationId,
    /// A pod's UID, or boot id, pid and start time of a process.
    pub identity: Option<String>,
    pub state: ReplicaState,
    pub started_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum ReplicaState {
    /// Asked for, and the runtime has nothing yet.
    Starting,
    Running,
    /// It never ran: the words of the runtime say why (a program that is not there, a folder that can't be made).
    StartFailed {
        reason: String,
        message: String,
        at: DateTime<Utc>,
    },
    Ended(Exit),
    /// Known once and not found any more, with no exit recorded (a reboot, a node that is gone).
    Lost {
        message: String,
    },
}

/// How a process ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exit {
    pub at: DateTime<Utc>,
    /// `None` when a signal ended it, or when nobody saw the end.
    pub code: Option<i32>,
    pub signal: Option<i32>,
    /// The kernel's out-of-memory killer took it.
    pub oom: bool,
    /// The shim was gone before the process, so nobody saw the status.
    pub unknown: bool,
    /// We had asked it to end before it did.
    pub stop_requested: bool,
}

impl Exit {
    pub fn succeeded(&self) -> bool {
        self.code == Some(0)
    }
}
