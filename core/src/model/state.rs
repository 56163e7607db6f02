//! The states of jobs, attempts and replicas, and which changes are legal.
//!
//! A job has three fields and no more: what is [`Wanted`], its [`Phase`], and whether what we know of it is fresh.
//! Everything else that may be true of it (hung, degraded, waiting for a secret) is a condition with evidence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A closed set of words that is the same in code, columns, URLs and pages.
///
/// The word is a `tt`: a `literal` reaches the derives wrapped, and utoipa's then takes the variant's name instead.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:tt,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema, JsonSchema)]
        pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+ }

        impl $name {
            pub const ALL: &'static [$name] = &[$($name::$variant),+];

            pub fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = UnknownWord;
            fn from_str(word: &str) -> Result<Self, UnknownWord> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word).ok_or_else(|| UnknownWord {
                    what: stringify!($name),
                    word: word.chars().take(64).collect(),
                    known: &[$($word),+],
                })
            }
        }
    };
}

pub(crate) use words;

/// A word outside a closed set, with the words that are in it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{word}' is not a {what}; known are {}", known.join(", "))]
pub struct UnknownWord {
    pub what: &'static str,
    pub word: String,
    pub known: &'static [&'static str],
}

words! {
    /// What a person wishes of a job. Workers make the phase follow.
    Wanted { Run = "run", Suspend = "suspend", Cancel = "cancel", Delete = "delete", }
}

words! {
    /// Where a job is. Between attempts a job is queued.
    Phase {
        Queued = "queued",
        /// An attempt was admitted; not every replica runs yet.
        Starting = "starting",
        Running = "running",
        /// Asked to end; processes may still run.
        Stopping = "stopping",
        Suspended = "suspended",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
    }
}

impl Phase {
    /// A final job never runs again; a rerun is another job.
    pub fn is_final(self) -> bool {
        matches!(self, Phase::Succeeded | Phase::Failed | Phase::Cancelled)
    }

    /// An attempt of the job holds resources.
    pub fn is_active(self) -> bool {
        matches!(self, Phase::Starting | Phase::Running | Phase::Stopping)
    }

    /// The legal changes. Anything else is a fault of ours and is refused where it is written.
    pub fn may_become(self, next: Phase) -> bool {
        use Phase::*;
        match self {
            Queued => matches!(next, Starting | Suspended | Failed | Cancelled),
            Starting => matches!(
                next,
                Running | Stopping | Queued | Suspended | Succeeded | Failed | Cancelled
            ),
            Running => matches!(next, Stopping | Queued | Suspended | Succeeded | Failed | Cancelled),
            Stopping => matches!(next, Queued | Suspended | Succeeded | Failed | Cancelled),
            Suspended => matches!(next, Queued | Cancelled),
            Succeeded | Failed | Cancelled => false,
        }
    }
}

words! {
    /// Where an attempt is.
    AttemptPhase { Starting = "starting", Running = "running", Stopping = "stopping", Ended = "ended", }
}

words! {
    /// How an attempt ended.
    Outcome {
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
        Suspended = "suspended",
        /// Its node or machine went away under it.
        Lost = "lost",
    }
}

words! {
    /// Where a replica is.
    ReplicaPhase {
        Waiting = "waiting",
        Starting = "starting",
        Running = "running",
        Succeeded = "succeeded",
        Failed = "failed",
        /// Ended by us, because the attempt ended.
        Stopped = "stopped",
        Lost = "lost",
    }
}

impl ReplicaPhase {
    pub fn is_final(self) -> bool {
        matches!(
            self,
            ReplicaPhase::Succeeded | ReplicaPhase::Failed | ReplicaPhase::Stopped | ReplicaPhase::Lost
        )
    }
}

words! {
    /// Who restarts what failed: each attempt has exactly one owner of that decision.
    RestartOwner { Trainyard = "trainyard", Operator = "operator", JobSet = "jobset", Torchelastic = "torchelastic", }
}

words! {
    /// The two streams of a local process; Kubernetes mixes them.
    LogStream { Stdout = "stdout", Stderr = "stderr", Mixed = "mixed", }
}

words! {
    /// Where a cluster comes from.
    Provider { Local = "local", Kubeconfig = "kubeconfig", Eks = "eks", Gke = "gke", }
}

words! {
    /// What a person may do in a team. Each includes the ones before it.
    TeamRole { Viewer = "viewer", Member = "member", Owner = "owner", }
}

words! {
    /// How long records of a job are kept. Partitions are made by class.
    Retention { Short = "short", Standard = "standard", Long = "long", }
}

words! {
    /// Which layer holds a job up, for "why".
    Layer {
        Document = "document",
        Secrets = "secrets",
        Policy = "policy",
        Queue = "queue",
        Capacity = "capacity",
        Cluster = "cluster",
        Runtime = "runtime",
        Program = "program",
    }
}

words! {
    /// How much a condition matters.
    Severity { Info = "info", Warning = "warning", Critical = "critical", }
}

words! {
    /// Three-valued, since "unknown" is an answer.
    ConditionStatus { True = "true", False = "false", Unknown = "unknown", }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_leaves_a_final_phase_and_every_other_phase_can_be_left() {
        for &from in Phase::ALL {
            let ways_out = Phase::ALL.iter().filter(|&&to| from.may_become(to)).count();
            assert_eq!(ways_out == 0, from.is_final(), "{from}");
        }
    }

    #[test]
    fn the_schema_has_the_words_that_are_written() {
        fn check<T: utoipa::PartialSchema + Serialize>(all: &[T]) {
            let schema = serde_json::to_value(T::schema()).unwrap();
            assert_eq!(schema["enum"], serde_json::to_value(all).unwrap());
        }
        check(Wanted::ALL);
        check(Phase::ALL);
        check(LogStream::ALL);
    }

    #[test]
    fn an_unknown_word_names_the_known_ones() {
        let error = "paused".parse::<Wanted>().unwrap_err().to_string();
        assert_eq!(
            error,
            "'paused' is not a Wanted; known are run, suspend, cancel, delete"
        );
    }
}
