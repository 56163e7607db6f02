//! The restart policy's arithmetic: whether another attempt follows, and when.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attempt::Reason;
use crate::{document::job::Restart, model::RestartOwner};

/// What the policy says after an attempt that ended badly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Verdict {
    /// Another attempt, not before `not_before`. `retry` counts from 1 and is at most `max`.
    Again {
        not_before: DateTime<Utc>,
        retry: u32,
        max: u32,
    },
    Final {
        because: Because,
    },
}

/// Why no attempt follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "because", rename_all = "snake_case")]
pub enum Because {
    /// The policy allows no retry at all.
    NoRetries,
    UsedUp {
        max: u32,
    },
    NeverRetryExitCode {
        code: i32,
    },
    /// A run deadline bounds the job; another attempt would only hit it again.
    RunDeadline,
    /// Another owner restarts inside the attempt and has given up.
    OtherOwner {
        owner: RestartOwner,
    },
}

/// Whether another attempt follows one that ended `failed` or `lost` at `ended_at`.
/// `failures_before` counts the earlier ones that ended so.
pub fn after_failure(
    restart: &Restart,
    failures_before: u32,
    reason: Reason,
    code: Option<i32>,
    ended_at: DateTime<Utc>,
) -> Verdict {
    let _ = (restart, failures_before, reason, code, ended_at);
    todo!()
}

/// The pause before retry number `retry` (from 1): the base, doubled each time, at most an hour.
pub fn backoff(restart: &Restart, retry: u32) -> chrono::Duration {
    let _ = (restart, retry);
    todo!()
}

/// How long a wait in the queue has lasted until `until`, the backoff left out.
pub fn waited(queued_at: DateTime<Utc>, not_before: Option<DateTime<Utc>>, until: DateTime<Utc>) -> chrono::Duration {
    let _ = (queued_at, not_before, until);
    todo!()
}
