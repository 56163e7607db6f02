//! The words of a post-mortem.

use super::{Ended, EndedReplica, Part, ReplicaEnd};
use crate::{
    model::ReplicaPhase,
    plan::{
        attempt::{FirstFailure, Reason, ReplicaFacts},
        exits,
        recognise::Recognised,
        words,
    },
};

type OfFirst<'a> = Option<&'a EndedReplica<'a>>;

/// What happened, in a few sentences: who was first and how, what it printed, who went with it, what it cost.
pub(super) fn summary(
    ended: &Ended<'_>,
    first: Option<&FirstFailure>,
    of_first: OfFirst<'_>,
    replicas: &[ReplicaEnd],
    steps_lost: Option<i64>,
) -> String {
    let mut told = vec![match (first, of_first) {
        // A deadline or a person ended it: that is the account, whatever a rank did while it was stopped.
        _ if !by_failure(ended.end.reason) => ended.end.message.clone(),
        (Some(first), Some(replica)) => {
            let exit = exit(replica, replica.facts);
            match replica.facts.phase {
                ReplicaPhase::Lost => format!("Rank {} ({}) was lost: {exit}.", first.rank, first.key),
                _ if replica.facts.exit.is_none() => {
                    format!("Rank {} ({}) could not start: {exit}.", first.rank, first.key)
                }
                _ => format!("{}: {exit}.", words::sentence(&first.in_words())),
            }
        }
        _ => ended.end.message.clone(),
    }];
    if let Some(found) = recognised(ended, of_first) {
        told.push(format!("It printed \"{}\". {}", found.line.trim(), found.meaning));
    }
    let ranks = |part: Part| -> Vec<u32> {
        replicas
            .iter()
            .filter(|replica| replica.part == part)
            .map(|replica| replica.rank)
            .collect()
    };
    let (also, victims) = (ranks(Part::AlsoFailed), ranks(Part::Victim));
    if !also.is_empty() {
        told.push(format!("{} failed too.", words::sentence(&words::ranks(&also))));
    }
    if !victims.is_empty() && first.is_some() {
        let verb = if victims.len() == 1 {
            "was a victim"
        } else {
            "were victims"
        };
        told.push(format!(
            "{} {verb}: ended because another rank did.",
            words::sentence(&words::ranks(&victims))
        ));
    }
    if let Some(steps) = steps_lost.filter(|&steps| steps > 0) {
        let steps = words::counted(steps.unsigned_abs(), "step");
        told.push(format!("{steps} since the last checkpoint were lost."));
    }
    told.join(" ")
}

fn recognised<'a>(ended: &Ended<'_>, of_first: OfFirst<'a>) -> Option<&'a Recognised> {
    let first = of_first.filter(|_| by_failure(ended.end.reason))?;
    first.printed.recognised.as_ref()
}

/// What to do now: by what was printed, else by how it ended.
pub(super) fn next(ended: &Ended<'_>, of_first: OfFirst<'_>) -> String {
    if let Some(found) = recognised(ended, of_first) {
        return found.next.clone();
    }
    let next = match ended.end.reason {
        Reason::OutOfMemory => {
            "Ask for more memory (resources.memory), or use less: a smaller batch, fewer data loader workers."
        }
        Reason::Signal => "Read the last lines of that rank; PYTHONFAULTHANDLER=1 shows where native code crashed.",
        Reason::ExitUnknown => "Nothing is known of the exit; the output is whole, so read its last lines.",
        Reason::ReplicaLost => "Look at the node: it went away or started again. The job itself may be well; rerun it.",
        Reason::StartFailed => "Correct the command, the working folder or the code in the document.",
        Reason::StartDeadline => "Look at the ranks that did not start, or allow more time (deadlines.start).",
        Reason::RunDeadline => "Allow more time (deadlines.run), or rerun it from its last checkpoint.",
        Reason::SilenceDeadline => "Look for the rank that stopped first, or allow more silence (deadlines.silence).",
        _ => "Read the last lines of the rank that failed first.",
    };
    next.to_owned()
}

/// A replica's end in words.
pub(super) fn exit(replica: &EndedReplica<'_>, facts: &ReplicaFacts) -> String {
    let words_of_runtime = replica.message.or(facts.message.as_deref());
    match &facts.exit {
        Some(exit) if exit.oom => match replica.memory_limit {
            Some(limit) => format!(
                "out of memory: the kernel killed it at its limit of {}",
                words::bytes(limit)
            ),
            None => exits::in_words(exit),
        },
        Some(exit) => exits::in_words(exit),
        None => match (facts.phase, words_of_runtime) {
            (_, Some(words)) => words.to_owned(),
            (ReplicaPhase::Lost, None) => "lost, and nothing more is known".to_owned(),
            (ReplicaPhase::Failed, None) => "it could not start, and nothing more is known".to_owned(),
            _ if facts.started_at.is_none() => "never started".to_owned(),
            _ => "stopped".to_owned(),
        },
    }
}

fn by_failure(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::ExitCode
            | Reason::Signal
            | Reason::OutOfMemory
            | Reason::ExitUnknown
            | Reason::StartFailed
            | Reason::ReplicaLost
    )
}
