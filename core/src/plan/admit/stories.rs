//! What admission decides, told as small scenes.

use chrono::{DateTime, Duration, Utc};
use uuid::Uuid;

use super::*;

pub(super) fn start() -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + Duration::days(20_000)
}

fn after(minutes: i64) -> DateTime<Utc> {
    start() + Duration::minutes(minutes)
}

pub(super) fn id(number: u64) -> JobId {
    JobId(Uuid::from_u128(u128::from(number)))
}

pub(super) fn node(number: u64, cpus: u64, gpus: u32) -> Node {
    Node {
        id: NodeId(Uuid::from_u128(u128::from(number))),
        name: format!("node-{number}"),
        capacity: Amount {
            cpu_milli: cpus * 1_000,
            memory_bytes: cpus << 32,
            gpus: u64::from(gpus),
            ..Amount::default()
        },
        gpus: (0..gpus).collect(),
        open: true,
    }
}

/// A job of `replicas`, each with so many cores and GPUs, queued at minute `number`.
pub(super) fn job(number: u64, replicas: u32, cpus: u64, gpus: u64) -> Waiting {
    Waiting {
        job: id(number),
        name: format!("job-{number}"),
        team: TeamId(Uuid::nil()),
        priority: 0,
        queued_at: after(number as i64),
        not_before: None,
        roles: vec![RoleDemand {
            role: "worker".into(),
            replicas,
            each: Amount {
                cpu_milli: cpus * 1_000,
                gpus,
                ..Amount::default()
            },
        }],
        longest_hold: None,
    }
}

/// The job runs since `admitted_at`, as it was placed.
pub(super) fn holder(job: &Waiting, placed: &[Placed], admitted_at: DateTime<Utc>) -> Holder {
    let each = |role: &str| job.roles.iter().find(|known| known.role == role).unwrap().each.clone();
    Holder {
        job: job.job,
        attempt: AttemptId(job.job.0),
        name: job.name.clone(),
        priority: job.priority,
        queued_at: job.queued_at,
        admitted_at,
        ends_by: job.longest_hold.map(|hold| admitted_at + hold),
        parts: placed
            .iter()
            .map(|placed| Held {
                node: placed.node,
                amount: each(&placed.key.role),
                gpus: placed.gpus.clone(),
            })
            .collect(),
    }
}

/// The job runs on this node since minute 0.
fn on(job: &Waiting, node: &Node) -> Holder {
    let placed = Placed {
        key: ReplicaKey {
            role: "worker".into(),
            index: 0,
        },
        rank: 0,
        node: node.id,
        gpus: (0..job.roles[0].each.gpus as u32).collect(),
    };
    holder(job, &[placed], after(0))
}

fn go(queue: &[Waiting], holders: &[Holder], nodes: &[Node]) -> Admissions {
    admit(queue, holders, nodes, after(1_000), LookAhead::default())
}

fn started(admissions: &Admissions) -> Vec<JobId> {
    admissions.admitted.iter().map(|admitted| admitted.job).collect()
}

fn hold_of(admissions: &Admissions, job: u64) -> &Hold {
    &admissions
        .waiting
        .iter()
        .find(|waiting| waiting.job == id(job))
        .unwrap()
        .hold
}

#[test]
fn jobs_start_by_priority_then_age_then_id_while_there_is_room() {
    let mut queue = vec![job(3, 1, 2, 0), job(1, 1, 2, 0), job(2, 1, 2, 0), job(4, 1, 2, 0)];
    queue[3].priority = 5;
    queue[0].queued_at = queue[2].queued_at;
    let admissions = go(&queue, &[], &[node(1, 8, 0)]);
    assert_eq!(started(&admissions), [id(4), id(1), id(2), id(3)]);
}

#[test]
fn a_gang_starts_whole_or_not_at_all() {
    let nodes = [node(1, 4, 0), node(2, 3, 0)];
    let admissions = go(&[job(1, 3, 2, 0)], &[], &nodes);
    let places: Vec<NodeId> = admissions.admitted[0]
        .replicas
        .iter()
        .map(|placed| placed.node)
        .collect();
    assert_eq!(places, [nodes[0].id, nodes[0].id, nodes[1].id]);
    let admissions = go(&[job(1, 4, 2, 0)], &[], &nodes);
    assert_eq!(started(&admissions), []);
    assert!(matches!(hold_of(&admissions, 1), Hold::TooBig { .. }));
}

#[test]
fn gpus_are_given_out_by_index_and_never_twice() {
    let one = node(1, 64, 8);
    let running = on(&job(9, 1, 1, 3), &one);
    let admissions = go(&[job(1, 2, 1, 2)], &[running], &[one]);
    let gpus: Vec<&[u32]> = admissions.admitted[0]
        .replicas
        .iter()
        .map(|placed| &placed.gpus[..])
        .collect();
    assert_eq!(gpus, [[3, 4], [5, 6]]);
}

#[test]
fn a_gang_takes_few_nodes_and_those_that_it_fills_best() {
    let nodes = [node(1, 64, 8), node(2, 64, 8), node(3, 64, 8)];
    let running = [on(&job(9, 1, 1, 6), &nodes[0]), on(&job(8, 1, 1, 3), &nodes[1])];
    let place = |replicas| {
        let admissions = go(&[job(1, replicas, 1, 1)], &running, &nodes);
        admissions.admitted[0]
            .replicas
            .iter()
            .map(|placed| placed.node)
            .collect::<Vec<_>>()
    };
    assert_eq!(place(2), [nodes[0].id; 2]);
    assert_eq!(place(5), [nodes[1].id; 5]);
    assert_eq!(place(8), [nodes[2].id; 8]);
    assert_eq!(place(10)[8..], [nodes[0].id; 2]);
}

#[test]
fn a_job_without_gpus_keeps_off_the_nodes_that_have_them_while_it_can() {
    let nodes = [node(1, 8, 8), node(2, 16, 0)];
    let admissions = go(&[job(1, 1, 2, 0)], &[], &nodes);
    assert_eq!(admissions.admitted[0].replicas[0].node, nodes[1].id);
    let admissions = go(&[job(1, 5, 4, 0)], &[], &nodes);
    assert_eq!(admissions.admitted[0].replicas.len(), 5);
}

#[test]
fn ranks_count_over_the_roles_in_document_order_however_they_are_placed() {
    let mut both = job(1, 2, 8, 1);
    both.roles.insert(
        0,
        RoleDemand {
            role: "master".into(),
            replicas: 1,
            each: Amount {
                cpu_milli: 500,
                ..Amount::default()
            },
        },
    );
    let admissions = go(&[both], &[], &[node(1, 64, 8)]);
    let ranks: Vec<(String, u32)> = admissions.admitted[0]
        .replicas
        .iter()
        .map(|placed| (placed.key.to_string(), placed.rank))
        .collect();
    assert_eq!(
        ranks,
        [("master-0".into(), 0), ("worker-0".into(), 1), ("worker-1".into(), 2)]
    );
}

#[test]
fn a_job_that_could_never_fit_is_told_so_in_numbers_and_holds_up_nobody() {
    let nodes = [node(1, 64, 6), node(2, 64, 4)];
    let admissions = go(&[job(1, 1, 1, 8), job(2, 3, 1, 4), job(3, 1, 1, 1)], &[], &nodes);
    assert_eq!(started(&admissions), [id(3)]);
    let Hold::TooBig { shortage } = hold_of(&admissions, 1) else {
        panic!()
    };
    assert_eq!(
        (shortage.resource.as_str(), shortage.each, shortage.largest_total),
        ("gpus", 8, 6)
    );
    assert!(shortage.one_replica_too_big);
    let Hold::TooBig { shortage } = hold_of(&admissions, 2) else {
        panic!()
    };
    assert!(!shortage.one_replica_too_big);
    assert_eq!((shortage.asked, shortage.total), (12, 10));
    // It is not "ahead" of anybody either.
    assert_eq!(admissions.waiting[1].ahead, 0);
}

#[test]
fn a_named_resource_that_no_node_has_is_named() {
    let mut wants = job(1, 1, 1, 0);
    wants.roles[0].each.other.insert("vpc.amazonaws.com/efa".into(), 4);
    let admissions = go(&[wants.clone()], &[], &[node(1, 64, 8)]);
    let Hold::TooBig { shortage } = hold_of(&admissions, 1) else {
        panic!()
    };
    assert_eq!(
        (shortage.resource.as_str(), shortage.total),
        ("vpc.amazonaws.com/efa", 0)
    );
    let mut has = node(1, 64, 8);
    has.capacity.other.insert("vpc.amazonaws.com/efa".into(), 4);
    assert_eq!(started(&go(&[wants], &[], &[has])), [id(1)]);
}

#[test]
fn the_head_is_told_what_is_missing_and_who_would_have_to_end() {
    let nodes = [node(1, 64, 8), node(2, 64, 8)];
    let mut soon = on(&job(8, 1, 1, 2), &nodes[0]);
    soon.ends_by = Some(after(1_030));
    let holders = [soon, on(&job(9, 1, 1, 3), &nodes[1])];
    let admissions = go(&[job(10, 1, 1, 8)], &holders, &nodes);
    let Hold::NoRoom {
        shortage,
        must_end,
        must_end_count,
        by,
    } = hold_of(&admissions, 10)
    else {
        panic!()
    };
    assert_eq!(
        (shortage.each, shortage.largest_free, shortage.free, shortage.total),
        (8, 6, 11, 16)
    );
    assert_eq!(shortage.largest_free_node.as_deref(), Some("node-1"));
    assert_eq!((must_end[0].job, *must_end_count, *by), (id(8), 1, Some(after(1_030))));
}

#[test]
fn a_small_job_passes_the_head_only_on_what_the_head_does_not_need() {
    // 8 GPUs; 4 run. The head wants 6, so 2 may be given out and the other 2 free ones are kept.
    let nodes = [node(1, 64, 8)];
    let running = on(&job(1, 1, 1, 4), &nodes[0]);
    let queue = [job(10, 1, 1, 6), job(11, 1, 1, 1), job(12, 1, 1, 1), job(13, 1, 1, 1)];
    let admissions = go(&queue, &[running], &nodes);
    assert_eq!(started(&admissions), [id(11), id(12)]);
    let Hold::Behind { head, shortage } = hold_of(&admissions, 13) else {
        panic!()
    };
    assert_eq!((head.job, shortage), (id(10), &None));
}

#[test]
fn a_job_whose_deadlines_end_it_in_time_may_use_the_heads_place_meanwhile() {
    let nodes = [node(1, 64, 8)];
    let mut running = on(&job(1, 1, 1, 4), &nodes[0]);
    running.ends_by = Some(after(1_060));
    let mut brief = job(11, 1, 1, 4);
    brief.longest_hold = Some(Duration::minutes(60));
    let mut long = job(12, 1, 1, 4);
    long.longest_hold = Some(Duration::minutes(61));
    let admissions = go(
        &[job(10, 1, 1, 8), long.clone(), brief.clone()],
        &[running.clone()],
        &nodes,
    );
    assert_eq!(started(&admissions), [id(11)]);
    // Without an end in sight for what runs, there is no time that can be promised.
    running.ends_by = None;
    assert_eq!(started(&go(&[job(10, 1, 1, 8), long, brief], &[running], &nodes)), []);
}

#[test]
fn a_backoff_holds_its_own_job_alone_and_sets_the_next_look() {
    let mut early = job(1, 1, 1, 0);
    early.not_before = Some(after(1_005));
    let admissions = go(&[early, job(2, 1, 1, 0)], &[], &[node(1, 2, 0)]);
    assert_eq!(started(&admissions), [id(2)]);
    assert_eq!(hold_of(&admissions, 1), &Hold::Backoff { until: after(1_005) });
    assert_eq!(admissions.look_again_at, Some(after(1_005)));
}

#[test]
fn a_closed_node_takes_no_job_and_is_not_counted() {
    let mut closed = node(1, 64, 8);
    closed.open = false;
    let running = on(&job(9, 1, 1, 3), &closed);
    let admissions = go(
        &[job(1, 1, 1, 0)],
        std::slice::from_ref(&running),
        std::slice::from_ref(&closed),
    );
    assert_eq!(hold_of(&admissions, 1), &Hold::NoNodes);
    let admissions = go(&[job(1, 1, 4, 0)], &[running], &[closed, node(2, 2, 0)]);
    assert!(matches!(hold_of(&admissions, 1), Hold::TooBig { shortage } if shortage.nodes == 1));
}

#[test]
fn a_node_that_shrank_under_its_jobs_has_nothing_free_and_breaks_nothing() {
    let small = node(1, 2, 0);
    let running = on(&job(9, 1, 8, 0), &small);
    let admissions = go(&[job(1, 1, 1, 0)], &[running], &[small]);
    assert!(matches!(hold_of(&admissions, 1), Hold::NoRoom { shortage, .. } if shortage.free == 0));
}

#[test]
fn the_look_ahead_is_bounded_and_says_so() {
    let full = node(1, 1, 0);
    let running = on(&job(1, 1, 1, 0), &full);
    let queue: Vec<Waiting> = (0..100_000).map(|number| job(number + 10, 1, 1, 0)).collect();
    let admissions = go(&queue, &[running], &[full]);
    assert_eq!((admissions.waiting.len(), admissions.beyond), (2_000, 98_000));
    assert_eq!(admissions.waiting[1_999].ahead, 1_999);
}

#[test]
fn a_crowd_of_jobs_that_can_never_start_does_not_hide_the_one_that_can() {
    let mut queue: Vec<Waiting> = (0..5_000).map(|number| job(number, 1, 100, 0)).collect();
    queue.push(job(9_000, 1, 1, 0));
    assert_eq!(started(&go(&queue, &[], &[node(1, 8, 0)])), [id(9_000)]);
}
