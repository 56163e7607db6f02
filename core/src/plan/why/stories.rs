//! The sentences that people read, one scene each.

use chrono::Duration;

use super::*;
use crate::{
    model::JobId,
    plan::admit::{Hold, JobRef, Shortage},
};

fn now() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + Duration::days(20_000) + Duration::hours(12)
}

fn ago(minutes: i64) -> DateTime<Utc> {
    now() - Duration::minutes(minutes)
}

const HERE: ClusterFacts<'_> = ClusterFacts {
    name: "gpu-1",
    exists: true,
    granted: true,
    worker: Some("w1"),
    worker_seen_at: None,
};

fn waiting<'a>() -> Facts<'a> {
    Facts {
        name: "train",
        wanted: Wanted::Run,
        phase: Phase::Queued,
        since: ago(14),
        priority: 0,
        queue_deadline: None,
        waited_before: Duration::zero(),
        backoff: None,
        suspended: None,
        team: "research",
        team_exists: true,
        missing_secrets: &[],
        cluster: Some(HERE),
        candidates: &[],
        queue: None,
        attempt: None,
        stale_since: None,
        restored_at: None,
    }
}

#[test]
fn after_a_restore_nothing_moves_until_a_person_confirms() {
    let facts = Facts {
        restored_at: Some(ago(20)),
        ..waiting()
    };
    let told = why(&facts, now()).expect("it waits");
    assert_eq!(told.reasons[0].code, WhyCode::Restored);
    assert!(
        told.sentence.contains("only observe until a person confirms"),
        "{}",
        told.sentence
    );
    let runs = Facts {
        phase: Phase::Running,
        ..facts
    };
    assert!(why(&runs, now()).is_none_or(|told| told.reasons[0].code != WhyCode::Restored));
}

fn job(name: &str, ends_by: Option<DateTime<Utc>>) -> JobRef {
    JobRef {
        job: JobId(uuid::Uuid::nil()),
        name: name.into(),
        ends_by,
    }
}

fn gpus(
    replicas: u32,
    each: u64,
    free: u64,
    total: u64,
    largest_free: u64,
    largest_total: u64,
    nodes: u32,
) -> Shortage {
    Shortage {
        resource: "gpus".into(),
        role: "worker".into(),
        replicas,
        each,
        asked: each * u64::from(replicas),
        free,
        total,
        largest_free,
        largest_free_node: Some("node-1".into()),
        largest_total,
        nodes,
        one_replica_too_big: each > largest_total,
    }
}

fn held(ahead: u32, hold: Hold) -> NotYet {
    NotYet {
        job: JobId(uuid::Uuid::nil()),
        ahead,
        hold,
    }
}

fn sentence(facts: &Facts<'_>) -> String {
    why(facts, now()).unwrap().sentence
}

fn codes(facts: &Facts<'_>) -> Vec<WhyCode> {
    why(facts, now())
        .unwrap()
        .reasons
        .iter()
        .map(|reason| reason.code)
        .collect()
}

fn of_queue(hold: Hold) -> String {
    let not_yet = held(3, hold);
    sentence(&Facts {
        queue: Some(&not_yet),
        ..waiting()
    })
}

#[test]
fn no_room_says_what_is_asked_what_is_free_and_who_must_end() {
    let hold = |shortage, by| Hold::NoRoom {
        shortage,
        must_end: vec![job("eval-7", by)],
        must_end_count: 1,
        by,
    };
    let soon = Some(now() + Duration::minutes(20));
    assert_eq!(
        of_queue(hold(gpus(1, 8, 11, 16, 6, 8, 2), soon)),
        "Waiting 14 min: needs 8 GPUs on one node; the emptiest node, node-1, has 6 free of 8. \
         Next: ask for 6 GPUs, or wait for eval-7 to end (in at most 20 min)."
    );
    assert_eq!(
        of_queue(hold(gpus(3, 4, 10, 16, 6, 8, 2), None)),
        "Waiting 14 min: needs 12 GPUs (3 replicas of 4); 10 of 16 are free. Next: wait for eval-7 to end."
    );
    assert_eq!(
        of_queue(hold(gpus(3, 4, 13, 16, 7, 8, 2), None)),
        "Waiting 14 min: needs 12 GPUs (3 replicas of 4) side by side; 13 of 16 are free, spread over the nodes. \
         Next: wait for eval-7 to end."
    );
    let memory = Shortage {
        resource: "memory".into(),
        ..gpus(1, 3 << 30, 1 << 29, 4 << 30, 1 << 29, 4 << 30, 1)
    };
    assert_eq!(
        of_queue(hold(memory, None)),
        "Waiting 14 min: needs 3 GiB of memory on one node; the node has 512 MiB free of 4 GiB. \
         Next: ask for 512 MiB of memory, or wait for eval-7 to end."
    );
}

#[test]
fn too_big_for_the_cluster_says_what_would_fit() {
    let hold = |shortage| Hold::TooBig { shortage };
    assert_eq!(
        of_queue(hold(gpus(1, 8, 6, 6, 6, 6, 1))),
        "Waiting 14 min: needs 8 GPUs on one node; the largest node has 6, so it can't start here. \
         Next: ask for at most 6 GPUs per replica (resources.gpus), or add a larger node."
    );
    assert_eq!(
        of_queue(hold(gpus(4, 4, 10, 10, 6, 6, 2))),
        "Waiting 14 min: needs 16 GPUs (4 replicas of 4); the whole cluster has 10, so it can't start here. \
         Next: ask for fewer replicas or less per replica (resources.gpus), or add nodes."
    );
    let cores = Shortage {
        resource: "cpu".into(),
        ..gpus(1, 64_000, 2_000, 2_000, 2_000, 2_000, 1)
    };
    assert_eq!(
        of_queue(hold(cores)),
        "Waiting 14 min: needs 64 cores on one node; the largest node has 2, so it can't start here. \
         Next: ask for at most 2 cores per replica (resources.cpu), or add a larger node."
    );
    let efa = Shortage {
        resource: "vpc.amazonaws.com/efa".into(),
        ..gpus(1, 4, 0, 0, 0, 0, 2)
    };
    assert!(of_queue(hold(efa)).contains("needs 4 vpc.amazonaws.com/efa on one node; no node has any"));
}

#[test]
fn behind_others_says_who_and_how_many_and_whether_there_is_room() {
    let hold = |shortage| Hold::Behind {
        head: job("big", None),
        shortage,
    };
    assert_eq!(
        of_queue(hold(None)),
        "Waiting 14 min: big and 2 other jobs came first; there is room for it, which is set aside for big. \
         Next: wait until big has started, or raise its priority."
    );
    assert!(of_queue(hold(Some(gpus(1, 8, 11, 16, 6, 8, 2)))).contains("came first; needs 8 GPUs on one node"));
}

#[test]
fn a_worker_that_is_gone_is_told_with_its_last_sign() {
    let cluster = ClusterFacts {
        worker: None,
        worker_seen_at: Some(ago(4)),
        ..HERE
    };
    let facts = Facts {
        cluster: Some(cluster),
        ..waiting()
    };
    assert_eq!(
        sentence(&facts),
        "Waiting 14 min: no worker looks after the cluster gpu-1: its worker was last seen 4 min ago. \
         Next: start a worker for gpu-1 (trainyard up, or trainyard work)."
    );
    assert_eq!(codes(&facts), [WhyCode::WorkerGone]);
}

#[test]
fn a_missing_secret_is_named_with_its_key() {
    let missing = [SecretRef {
        name: "hf".into(),
        key: "token".into(),
    }];
    let facts = Facts {
        missing_secrets: &missing,
        ..waiting()
    };
    assert_eq!(
        sentence(&facts),
        "Waiting 14 min: key token of secret hf is not there in team research. Next: set the secret, or take the \
         secretRef out of the document; the job starts by itself then."
    );
    // The queue still speaks beside it.
    assert_eq!(codes(&facts), [WhyCode::SecretMissing, WhyCode::NotLookedAt]);
}

#[test]
fn policy_speaks_before_capacity() {
    let cluster = |exists, granted| {
        Some(ClusterFacts {
            exists,
            granted,
            ..HERE
        })
    };
    for (facts, code) in [
        (
            Facts {
                team_exists: false,
                ..waiting()
            },
            WhyCode::TeamMissing,
        ),
        (
            Facts {
                cluster: cluster(false, false),
                ..waiting()
            },
            WhyCode::ClusterMissing,
        ),
        (
            Facts {
                cluster: cluster(true, false),
                ..waiting()
            },
            WhyCode::NoGrant,
        ),
        (
            Facts {
                cluster: None,
                ..waiting()
            },
            WhyCode::NoGrant,
        ),
    ] {
        assert_eq!(codes(&facts)[0], code);
    }
}

#[test]
fn a_backoff_says_which_retry_comes_when_and_what_went_wrong() {
    let backoff = Backoff {
        until: now() + Duration::seconds(40),
        retry: 2,
        max: 3,
        last: "Rank 1 (worker-1) failed: exit code 3.",
    };
    let facts = Facts {
        backoff: Some(backoff),
        since: ago(0),
        ..waiting()
    };
    assert_eq!(
        sentence(&facts),
        "Waiting 0 s: retry 2 of 3 comes in 40 s, since the last attempt ended badly: Rank 1 (worker-1) failed: exit \
         code 3. Next: wait, or cancel it and mend the cause first."
    );
}

#[test]
fn a_suspension_says_by_whom() {
    let by = ByWhom {
        who: "alice",
        at: ago(90),
    };
    let facts = Facts {
        phase: Phase::Suspended,
        suspended: Some(by),
        ..waiting()
    };
    assert_eq!(
        sentence(&facts),
        "Suspended by alice at 2024-10-04 10:30:00 UTC. Next: resume it, and it waits in the queue again."
    );
}

#[test]
fn a_queue_deadline_stands_beside_the_cause() {
    let facts = Facts {
        queue_deadline: Some(Duration::minutes(30)),
        waited_before: Duration::minutes(6),
        ..waiting()
    };
    let told = why(&facts, now()).unwrap();
    let deadline = told.reasons.last().unwrap();
    assert_eq!(
        (deadline.code, deadline.until),
        (WhyCode::QueueDeadline, Some(now() + Duration::minutes(10)))
    );
}

#[test]
fn a_start_names_the_ranks_that_are_missing_and_becomes_slow() {
    let key = |index| ReplicaKey {
        role: "worker".into(),
        index,
    };
    let replicas = [
        (key(0), ReplicaPhase::Running, None),
        (key(1), ReplicaPhase::Starting, Some("unpacking code".to_owned())),
    ];
    let view = |minutes| AttemptView {
        number: 1,
        admitted_at: ago(minutes),
        start_deadline: None,
        failed_try: None,
        stop_cause: None,
        stopping_at: None,
        grace: Duration::seconds(30),
        replicas: &replicas,
    };
    let facts = |minutes| Facts {
        phase: Phase::Starting,
        since: ago(minutes),
        attempt: Some(view(minutes)),
        ..waiting()
    };
    assert_eq!(
        sentence(&facts(1)),
        "Starting for 1 min: 1 of 2 ranks are up; worker-1 is starting (unpacking code). Next: wait; starting takes a moment."
    );
    assert_eq!(codes(&facts(5)), [WhyCode::StartSlow]);
    let failing = Facts {
        attempt: Some(AttemptView {
            failed_try: Some("the replica's folder: No space left on device"),
            ..view(1)
        }),
        ..facts(1)
    };
    assert_eq!(codes(&failing), [WhyCode::StartFails]);
    assert_eq!(
        sentence(&failing),
        "Starting for 1 min: 1 of 2 ranks are up; worker-1 is starting (unpacking code); the last try failed: the \
         replica's folder: No space left on device. Next: mend that on the machine; it is tried again by itself."
    );
    let stopping = AttemptView {
        stop_cause: Some(StopCause::Cancel),
        ..view(3)
    };
    let facts = Facts {
        phase: Phase::Stopping,
        attempt: Some(stopping),
        ..waiting()
    };
    assert!(sentence(&facts).starts_with("Stopping for 14 min: a person asked to cancel it; 2 ranks are still up."));
}

#[test]
fn with_no_cluster_named_every_cluster_is_accounted_for() {
    let big = held(
        0,
        Hold::TooBig {
            shortage: gpus(1, 8, 6, 6, 6, 6, 1),
        },
    );
    let room = held(
        0,
        Hold::NoRoom {
            shortage: gpus(1, 8, 6, 8, 6, 8, 1),
            must_end: vec![],
            must_end_count: 0,
            by: None,
        },
    );
    let other = ClusterFacts { name: "gpu-2", ..HERE };
    let both = [
        Candidate {
            cluster: HERE,
            hold: Some(&big),
        },
        Candidate {
            cluster: other,
            hold: Some(&big),
        },
    ];
    let facts = Facts {
        cluster: None,
        candidates: &both,
        ..waiting()
    };
    assert_eq!(codes(&facts), [WhyCode::NoClusterFits]);
    assert!(sentence(&facts).contains("gpu-1: needs 8 GPUs on one node; the largest node has 6"));
    let one = [
        Candidate {
            cluster: HERE,
            hold: Some(&big),
        },
        Candidate {
            cluster: other,
            hold: Some(&room),
        },
    ];
    let facts = Facts {
        cluster: None,
        candidates: &one,
        ..waiting()
    };
    assert!(sentence(&facts).starts_with("Waiting 14 min: on gpu-2, needs 8 GPUs on one node; the node has 6 free"));
}

#[test]
fn a_job_that_runs_or_is_done_has_no_why() {
    for phase in [Phase::Running, Phase::Succeeded, Phase::Failed, Phase::Cancelled] {
        assert_eq!(why(&Facts { phase, ..waiting() }, now()), None, "{phase}");
    }
}

#[test]
fn every_phase_that_is_not_running_has_an_answer() {
    assert_eq!(codes(&waiting()), [WhyCode::NotLookedAt]);
    assert!(
        why(
            &Facts {
                phase: Phase::Suspended,
                ..waiting()
            },
            now()
        )
        .is_some()
    );
}
