//! Post-mortems as people read them.

use chrono::Duration;

use super::*;
use crate::{
    model::{Exit, ReplicaKey},
    plan::attempt::Certainty,
};

fn at(milliseconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::milliseconds(milliseconds)
}

fn replica(rank: u32, phase: ReplicaPhase, exit: Option<Exit>) -> ReplicaFacts {
    ReplicaFacts {
        key: ReplicaKey {
            role: "worker".into(),
            index: rank,
        },
        rank,
        phase,
        incarnation: None,
        started_at: Some(at(-60_000)),
        ended_at: exit.as_ref().map(|exit| exit.at),
        exit,
        message: None,
        last_output_at: None,
        step: Some(27),
        step_at: None,
        evidence: None,
    }
}

fn exit(milliseconds: i64, code: Option<i32>, signal: Option<i32>) -> Option<Exit> {
    Some(Exit {
        at: at(milliseconds),
        code,
        signal,
        oom: false,
        unknown: false,
        stop_requested: false,
    })
}

fn failed(rank: u32, milliseconds: i64, code: i32) -> ReplicaFacts {
    replica(rank, ReplicaPhase::Failed, exit(milliseconds, Some(code), None))
}

fn stopped(rank: u32) -> ReplicaFacts {
    let exit = exit(3_000, None, Some(15)).map(|exit| Exit {
        stop_requested: true,
        ..exit
    });
    replica(rank, ReplicaPhase::Stopped, exit)
}

fn end(outcome: Outcome, reason: Reason) -> AttemptEnd {
    AttemptEnd {
        outcome,
        reason,
        message: "As recorded.".into(),
        at: at(3_000),
        first_failure: None,
        code: None,
    }
}

static NOTHING: Printed = Printed {
    recognised: None,
    last_lines: Vec::new(),
};

fn printed(lines: &[&str]) -> Printed {
    let lines: Vec<(usize, &str)> = lines.iter().map(|&line| (0, line)).collect();
    Printed::new(&lines, LINES_KEPT)
}

fn with<'a>(facts: &'a ReplicaFacts, printed: &'a Printed) -> EndedReplica<'a> {
    EndedReplica {
        facts,
        node: Some("node-1"),
        printed,
        message: None,
        memory_limit: None,
    }
}

fn made(end: &AttemptEnd, replicas: &[EndedReplica<'_>]) -> PostMortem {
    post_mortem(&Ended {
        job_name: "train",
        number: 2,
        end,
        replicas,
        nodes: &[],
        verdict: None,
        checkpoint_step: None,
        last_step: None,
    })
}

const TRACEBACK: &[&str] = &[
    "step=27 loss=0.4",
    "Traceback (most recent call last):",
    "  File \"/job/train.py\", line 40, in <module>",
    "ValueError: bad shard 17",
];
const RESET: &[&str] = &["ConnectionResetError: [Errno 104] Connection reset by peer"];

#[test]
fn the_rank_with_a_fault_of_its_own_is_first_and_its_peers_are_victims() {
    // Rank 0 died sooner by the clock, and of a lost peer by its words.
    let facts = [failed(0, 0, 1), stopped(1), failed(2, 400, 1), stopped(3)];
    let (reset, traceback) = (printed(RESET), printed(TRACEBACK));
    let replicas = [
        with(&facts[0], &reset),
        with(&facts[1], &NOTHING),
        with(&facts[2], &traceback),
        with(&facts[3], &NOTHING),
    ];
    let end = end(Outcome::Failed, Reason::ExitCode);
    let verdict = Verdict::Again {
        not_before: at(13_000),
        retry: 1,
        max: 2,
    };
    let told = post_mortem(&Ended {
        verdict: Some(&verdict),
        checkpoint_step: Some(20),
        last_step: Some(27),
        ..Ended {
            job_name: "train",
            number: 1,
            end: &end,
            replicas: &replicas,
            nodes: &[],
            verdict: None,
            checkpoint_step: None,
            last_step: None,
        }
    });
    let first = told.first_failure.as_ref().unwrap();
    assert_eq!((first.rank, first.certainty), (2, Certainty::ByEvidence));
    let parts: Vec<Part> = told.replicas.iter().map(|replica| replica.part).collect();
    assert_eq!(parts, [Part::Victim, Part::Victim, Part::FirstFailure, Part::Victim]);
    assert_eq!(
        told.summary,
        "Rank 2 (worker-2) failed first, as its own last lines and those of the others say: exit code 1. It printed \
         \"ValueError: bad shard 17\". The program raised an exception that nothing caught. Ranks 0, 1 and 3 were \
         victims: ended because another rank did. 7 steps since the last checkpoint were lost."
    );
    assert_eq!(told.steps_lost, Some(7));
    assert!(
        told.policy_sentence
            .starts_with("The restart policy tries again: retry 1 of 2")
    );
    assert_eq!(told.replicas[2].last_lines, TRACEBACK);
    assert_eq!(told.replicas[1].exit, "SIGTERM (signal 15), after it was asked to stop");
}

#[test]
fn every_kind_of_end_has_words_and_a_next_step() {
    let oom = replica(
        0,
        ReplicaPhase::Failed,
        exit(0, None, Some(9)).map(|exit| Exit { oom: true, ..exit }),
    );
    let told = made(
        &end(Outcome::Failed, Reason::OutOfMemory),
        &[EndedReplica {
            memory_limit: Some(2 << 30),
            ..with(&oom, &NOTHING)
        }],
    );
    assert_eq!(
        told.summary,
        "Rank 0 (worker-0) failed: out of memory: the kernel killed it at its limit of 2 GiB."
    );
    assert!(told.next.starts_with("Ask for more memory"));

    let segfault = replica(0, ReplicaPhase::Failed, exit(0, None, Some(11)));
    let told = made(&end(Outcome::Failed, Reason::Signal), &[with(&segfault, &NOTHING)]);
    assert!(
        told.summary
            .contains("SIGSEGV (signal 11), it touched memory that is not its own")
    );

    let unknown = replica(
        0,
        ReplicaPhase::Failed,
        exit(0, None, None).map(|exit| Exit { unknown: true, ..exit }),
    );
    let told = made(&end(Outcome::Failed, Reason::ExitUnknown), &[with(&unknown, &NOTHING)]);
    assert!(told.summary.contains("exit unknown"));

    let mut lost = replica(0, ReplicaPhase::Lost, None);
    lost.message = Some("the machine started again at 12:00".into());
    let told = made(&end(Outcome::Lost, Reason::ReplicaLost), &[with(&lost, &NOTHING)]);
    assert_eq!(
        told.summary,
        "Rank 0 (worker-0) was lost: the machine started again at 12:00."
    );

    let mut start = replica(0, ReplicaPhase::Failed, None);
    start.started_at = None;
    start.message = Some("python3: not found".into());
    let told = made(&end(Outcome::Failed, Reason::StartFailed), &[with(&start, &NOTHING)]);
    assert_eq!(told.summary, "Rank 0 (worker-0) could not start: python3: not found.");
    assert_eq!(told.replicas[0].part, Part::FirstFailure);

    let silent = [stopped(0), stopped(1)];
    let told = made(
        &end(Outcome::Failed, Reason::SilenceDeadline),
        &[with(&silent[0], &NOTHING), with(&silent[1], &printed(RESET))],
    );
    assert_eq!(told.summary, "As recorded.");
    assert!(told.first_failure.is_none());
    assert!(told.next.contains("deadlines.silence"));
}

#[test]
fn only_what_was_wrong_with_a_node_is_kept() {
    let node = |condition: &str, status, severity| NodeThen {
        node: "node-1".into(),
        condition: condition.into(),
        status,
        severity,
        message: String::new(),
        since: None,
    };
    let nodes = [
        node("memory_pressure", ConditionStatus::True, Severity::Warning),
        node("disk_pressure", ConditionStatus::False, Severity::Critical),
        node("gpu", ConditionStatus::Unknown, Severity::Critical),
        node("note", ConditionStatus::True, Severity::Info),
    ];
    let facts = failed(0, 0, 1);
    let told = post_mortem(&Ended {
        job_name: "train",
        number: 1,
        end: &end(Outcome::Failed, Reason::ExitCode),
        replicas: &[with(&facts, &NOTHING)],
        nodes: &nodes,
        verdict: None,
        checkpoint_step: None,
        last_step: Some(3),
    });
    let kept: Vec<&str> = told.nodes.iter().map(|node| node.condition.as_str()).collect();
    assert_eq!(kept, ["memory_pressure", "gpu"]);
    assert_eq!(told.steps_lost, None);
}

#[test]
fn a_frozen_document_survives_the_way_out_and_back_and_holds_nothing_that_can_not_be_stored() {
    let long = "x".repeat(5_000);
    let lines = ["nul \0 here", long.as_str(), "Killed\0 ModuleNotFoundError: \0"];
    let facts = failed(0, 0, 1);
    let told = made(
        &end(Outcome::Failed, Reason::ExitCode),
        &[with(&facts, &printed(&lines))],
    );
    let text = serde_json::to_string(&told).unwrap();
    assert!(!text.contains("\\u0000"));
    assert_eq!(told.replicas[0].last_lines[1].len(), LINE_LENGTH);
    assert_eq!(serde_json::from_str::<PostMortem>(&text).unwrap(), told);
}

#[test]
fn ten_thousand_ranks_make_a_document_and_not_a_flood() {
    let line = "y".repeat(2_000);
    let lines: Vec<&str> = std::iter::repeat_n(line.as_str(), 200).collect();
    let facts: Vec<ReplicaFacts> = (0..10_000)
        .map(|rank| {
            if rank == 7_777 {
                failed(rank, 0, 1)
            } else {
                stopped(rank)
            }
        })
        .collect();
    let many = printed(&lines);
    let replicas: Vec<EndedReplica<'_>> = facts.iter().map(|facts| with(facts, &many)).collect();
    // Only the first ranks bring lines here: nobody reads those of ten thousand.
    let replicas: Vec<EndedReplica<'_>> = replicas
        .into_iter()
        .map(|replica| match replica.facts.rank {
            0..40 | 7_777 => replica,
            _ => EndedReplica {
                printed: &NOTHING,
                ..replica
            },
        })
        .collect();
    let told = made(&end(Outcome::Failed, Reason::ExitCode), &replicas);
    assert_eq!(told.replicas[7_777].last_lines.len(), LINES_KEPT);
    let kept: usize = told.replicas.iter().map(|replica| replica.last_lines.len()).sum();
    assert_eq!(kept, LINES_KEPT + VICTIMS_WITH_LINES * LINES_OF_VICTIM);
    assert!(
        told.summary.contains("Ranks 0 to 7776 and 7778 to 9999 were victims"),
        "{}",
        told.summary
    );
}
