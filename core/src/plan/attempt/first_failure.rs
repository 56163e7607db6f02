//! Which rank failed first. A rank that dies takes its peers with it within moments, and they print louder than it
//! does; so time decides where it can, and the last lines where it can't.

use chrono::{DateTime, Duration, Utc};

use super::{Certainty, Evidence, FirstFailure, ReplicaFacts};
use crate::model::ReplicaPhase;

/// Failures this close together are one event, whose order says little.
const CASCADE: Duration = Duration::seconds(1);

/// Names the rank that failed first, if any failed by itself: by time, and within a second by evidence. A rank that
/// spoke of a lost peer is never preferred to one with a fault of its own, however slowly that one died (writing a
/// core dump takes a while).
pub fn first_failure(replicas: &[ReplicaFacts]) -> Option<FirstFailure> {
    let mut failed: Vec<Failed<'_>> = replicas.iter().filter_map(Failed::of).collect();
    failed.sort_by_key(|failed| (failed.at, failed.facts.rank));
    let earliest = failed.first()?;
    let together = |failed: &&Failed<'_>| failed.at - earliest.at <= CASCADE;
    let best = failed.iter().filter(together).map(|failed| failed.evidence).min()?;
    let late_cause = failed.iter().find(|failed| failed.evidence == Evidence::Cause);
    let (first, certainty, also) = match late_cause {
        Some(cause) if best == Evidence::Consequence => (cause, Certainty::ByEvidence, Vec::new()),
        _ => {
            let group = failed.iter().filter(together).count();
            let equals: Vec<&Failed<'_>> = failed
                .iter()
                .filter(together)
                .filter(|one| one.evidence == best)
                .collect();
            let certainty = match (failed.len(), group, equals.len()) {
                (1, ..) => Certainty::Only,
                (_, 1, _) => Certainty::Earliest,
                (.., 1) => Certainty::ByEvidence,
                _ => Certainty::Tied,
            };
            // `equals` is not empty: `best` is the evidence of one of them.
            let first = *equals.first()?;
            (first, certainty, equals[1..].iter().map(|one| one.facts.rank).collect())
        }
    };
    Some(FirstFailure {
        key: first.facts.key.clone(),
        rank: first.facts.rank,
        certainty,
        also,
    })
}

struct Failed<'a> {
    facts: &'a ReplicaFacts,
    at: DateTime<Utc>,
    evidence: Evidence,
}

impl<'a> Failed<'a> {
    fn of(facts: &'a ReplicaFacts) -> Option<Self> {
        let evidence = match facts.phase {
            // Its node went away or its program could not start: nothing that a peer did to it.
            ReplicaPhase::Lost => Evidence::Cause,
            ReplicaPhase::Failed if facts.exit.is_none() => Evidence::Cause,
            ReplicaPhase::Failed if facts.exit.as_ref().is_some_and(|exit| exit.oom) => Evidence::Cause,
            ReplicaPhase::Failed => facts.evidence.unwrap_or(Evidence::Silent),
            _ => return None,
        };
        Some(Self {
            facts,
            at: facts.ended_at.unwrap_or(DateTime::<Utc>::MAX_UTC),
            evidence,
        })
    }
}

/// The phrase that tells how sure the naming is, for sentences.
impl FirstFailure {
    pub fn in_words(&self) -> String {
        let who = format!("rank {} ({})", self.rank, self.key);
        match self.certainty {
            Certainty::Only => format!("{who} failed"),
            Certainty::Earliest => format!("{who} failed first"),
            Certainty::ByEvidence => {
                format!("{who} failed first, as its own last lines and those of the others say")
            }
            Certainty::Tied => {
                let others = crate::plan::words::ranks(&self.also);
                format!("{who} failed first by the clock, within a second of {others}, so it may have been another")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Exit, ReplicaKey};

    fn at(milliseconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::milliseconds(milliseconds)
    }

    fn rank(rank: u32, ended: i64, evidence: Option<Evidence>) -> ReplicaFacts {
        let exit = Exit {
            at: at(ended),
            code: Some(1),
            signal: None,
            oom: false,
            unknown: false,
            stop_requested: false,
        };
        ReplicaFacts {
            key: ReplicaKey {
                role: "worker".into(),
                index: rank,
            },
            rank,
            phase: ReplicaPhase::Failed,
            incarnation: None,
            started_at: Some(at(-10_000)),
            ended_at: Some(at(ended)),
            exit: Some(exit),
            message: None,
            last_output_at: None,
            step: None,
            step_at: None,
            evidence,
        }
    }

    fn named(replicas: &[ReplicaFacts]) -> (u32, Certainty, Vec<u32>) {
        let first = first_failure(replicas).unwrap();
        (first.rank, first.certainty, first.also)
    }

    const CAUSE: Option<Evidence> = Some(Evidence::Cause);
    const PEER: Option<Evidence> = Some(Evidence::Consequence);

    #[test]
    fn the_only_one_is_named_without_doubt() {
        assert_eq!(named(&[rank(3, 0, None)]), (3, Certainty::Only, vec![]));
    }

    #[test]
    fn more_than_a_second_ahead_time_decides() {
        assert_eq!(
            named(&[rank(0, 5_000, None), rank(3, 0, None)]),
            (3, Certainty::Earliest, vec![])
        );
    }

    #[test]
    fn a_connection_reset_within_a_second_is_a_victim_even_if_it_died_sooner() {
        let cascade = [rank(0, 0, PEER), rank(1, 100, PEER), rank(2, 700, CAUSE)];
        assert_eq!(named(&cascade), (2, Certainty::ByEvidence, vec![]));
        let silent_culprit = [rank(0, 0, PEER), rank(1, 100, None), rank(2, 200, PEER)];
        assert_eq!(named(&silent_culprit), (1, Certainty::ByEvidence, vec![]));
    }

    #[test]
    fn a_slow_death_with_a_fault_of_its_own_is_preferred_to_quick_victims() {
        assert_eq!(
            named(&[rank(0, 0, PEER), rank(2, 9_000, CAUSE)]),
            (2, Certainty::ByEvidence, vec![])
        );
        assert_eq!(named(&[rank(0, 0, None), rank(2, 9_000, CAUSE)]).0, 0);
    }

    #[test]
    fn a_tie_is_told_as_a_tie() {
        let tie = [rank(2, 30, None), rank(1, 10, None), rank(0, 20, PEER)];
        assert_eq!(named(&tie), (1, Certainty::Tied, vec![2]));
        assert!(
            first_failure(&tie)
                .unwrap()
                .in_words()
                .contains("may have been another")
        );
    }

    #[test]
    fn those_that_we_stopped_and_those_that_succeeded_are_never_named() {
        let mut stopped = rank(0, 0, None);
        stopped.phase = ReplicaPhase::Stopped;
        let mut done = rank(1, 0, None);
        done.phase = ReplicaPhase::Succeeded;
        assert_eq!(first_failure(&[stopped, done]), None);
    }
}
