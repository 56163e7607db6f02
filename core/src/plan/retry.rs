//! The restart policy's arithmetic: whether another attempt follows, and when.

use chrono::{DateTime, Duration, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{attempt::Reason, words};
use crate::{document::job::Restart, model::RestartOwner};

/// However often it doubles, a backoff is never longer.
const LONGEST_BACKOFF: Duration = Duration::hours(1);

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
/// `failures_before` counts the earlier ones that ended so; `code` is the first failure's exit code, or 128 + signal,
/// so that `neverRetryExitCodes: [137]` means a SIGKILL here as it does in a container.
pub fn after_failure(
    restart: &Restart,
    failures_before: u32,
    reason: Reason,
    code: Option<i32>,
    ended_at: DateTime<Utc>,
) -> Verdict {
    let never = code.filter(|code| restart.never_retry_exit_codes.contains(code));
    let because = if restart.owner != RestartOwner::Trainyard {
        Because::OtherOwner { owner: restart.owner }
    } else if reason == Reason::RunDeadline {
        Because::RunDeadline
    } else if let Some(code) = never {
        Because::NeverRetryExitCode { code }
    } else if restart.max == 0 {
        Because::NoRetries
    } else if failures_before >= restart.max {
        Because::UsedUp { max: restart.max }
    } else {
        let retry = failures_before + 1;
        return Verdict::Again {
            not_before: ended_at + backoff(restart, retry),
            retry,
            max: restart.max,
        };
    };
    Verdict::Final { because }
}

/// The pause before retry number `retry` (from 1): the base, doubled each time, at most an hour.
pub fn backoff(restart: &Restart, retry: u32) -> Duration {
    let doublings = retry.saturating_sub(1).min(12);
    let seconds = restart.backoff.as_seconds().saturating_mul(1 << doublings);
    // An hour's seconds fit.
    Duration::seconds(seconds.min(LONGEST_BACKOFF.num_seconds() as u64) as i64)
}

/// How long a wait in the queue has lasted until `until`, the backoff left out: a queue deadline bounds the waiting
/// for room, not the pauses that the job's own failures earn it.
pub fn waited(queued_at: DateTime<Utc>, not_before: Option<DateTime<Utc>>, until: DateTime<Utc>) -> Duration {
    let from = not_before.map_or(queued_at, |due| due.max(queued_at));
    (until - from).max(Duration::zero())
}

impl Verdict {
    /// The policy's say in one sentence.
    pub fn in_words(&self) -> String {
        match self {
            Verdict::Again { not_before, retry, max } => {
                format!(
                    "The restart policy tries again: retry {retry} of {max}, not before {}.",
                    words::exact(*not_before)
                )
            }
            Verdict::Final { because } => match because {
                Because::NoRetries => "The restart policy allows no retry (restart.max is 0).".to_owned(),
                Because::UsedUp { max } => {
                    let plural = if *max == 1 { "y is" } else { "ies are" };
                    format!("The restart policy's {} retr{plural} used up.", words::count(*max))
                }
                Because::NeverRetryExitCode { code } => {
                    format!("The restart policy never retries exit code {code} (restart.neverRetryExitCodes).")
                }
                Because::RunDeadline => {
                    "A job that reaches its run deadline is not retried (deadlines.run).".to_owned()
                }
                Because::OtherOwner { owner } => {
                    format!("Restarts belong to {owner} (restart.owner), which had given up.")
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::units;

    fn policy(max: u32) -> Restart {
        Restart {
            max,
            ..Restart::default()
        }
    }

    fn ended() -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + Duration::days(20_000)
    }

    #[test]
    fn the_backoff_doubles_up_to_an_hour_and_never_overflows() {
        let restart = policy(1_000);
        let pauses: Vec<i64> = (1..=11).map(|retry| backoff(&restart, retry).num_seconds()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600]);
        let long = Restart {
            backoff: units::Duration::seconds(u64::MAX),
            ..policy(1)
        };
        assert_eq!(backoff(&long, 1_000), LONGEST_BACKOFF);
        let none = Restart {
            backoff: units::Duration::seconds(0),
            ..policy(1)
        };
        assert_eq!(backoff(&none, 7), Duration::zero());
    }

    #[test]
    fn a_job_with_two_retries_has_three_attempts() {
        let verdict = |failures| after_failure(&policy(2), failures, Reason::ExitCode, Some(1), ended());
        assert!(
            matches!(verdict(0), Verdict::Again { retry: 1, max: 2, not_before } if not_before == ended() + Duration::seconds(10))
        );
        assert!(
            matches!(verdict(1), Verdict::Again { retry: 2, max: 2, not_before } if not_before == ended() + Duration::seconds(20))
        );
        assert_eq!(
            verdict(2),
            Verdict::Final {
                because: Because::UsedUp { max: 2 }
            }
        );
        let none = after_failure(&policy(0), 0, Reason::ExitCode, Some(1), ended());
        assert_eq!(
            none,
            Verdict::Final {
                because: Because::NoRetries
            }
        );
    }

    #[test]
    fn some_ends_are_never_retried_however_many_retries_are_left() {
        let restart = Restart {
            never_retry_exit_codes: vec![2, 137],
            ..policy(9)
        };
        let say = |reason, code| after_failure(&restart, 0, reason, code, ended());
        assert_eq!(
            say(Reason::ExitCode, Some(2)),
            Verdict::Final {
                because: Because::NeverRetryExitCode { code: 2 }
            }
        );
        assert!(matches!(say(Reason::Signal, Some(137)), Verdict::Final { .. }));
        assert_eq!(
            say(Reason::RunDeadline, None),
            Verdict::Final {
                because: Because::RunDeadline
            }
        );
        for reason in [
            Reason::OutOfMemory,
            Reason::ReplicaLost,
            Reason::ExitUnknown,
            Reason::StartFailed,
        ] {
            assert!(matches!(say(reason, None), Verdict::Again { .. }), "{reason}");
        }
        let torchelastic = Restart {
            owner: RestartOwner::Torchelastic,
            ..policy(9)
        };
        assert!(matches!(
            after_failure(&torchelastic, 0, Reason::ExitCode, Some(1), ended()),
            Verdict::Final {
                because: Because::OtherOwner { .. }
            }
        ));
    }

    #[test]
    fn a_wait_is_counted_from_the_end_of_its_backoff() {
        let queued = ended();
        let due = queued + Duration::minutes(10);
        assert_eq!(waited(queued, None, due), Duration::minutes(10));
        assert_eq!(
            waited(queued, Some(due), queued + Duration::minutes(4)),
            Duration::zero()
        );
        assert_eq!(
            waited(queued, Some(due), due + Duration::minutes(3)),
            Duration::minutes(3)
        );
        assert_eq!(
            waited(queued, Some(queued - Duration::hours(1)), due),
            Duration::minutes(10)
        );
    }
}
