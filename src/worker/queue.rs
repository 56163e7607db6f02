//! One look at one cluster's queue: admit what fits, and say to the others why not yet.

use std::collections::BTreeMap;

use chrono::{DateTime, Duration, Utc};
use serde_json::Value;
use trainyard_core::{
    model::{AttemptId, ClusterId, IncarnationId, JobId, NodeId, Phase, TeamId},
    plan::{
        admit::{self, Admitted, Amount, Held, Hold, Holder, LookAhead, Node, NotYet, Waiting},
        attempt::Reason,
    },
};
use uuid::Uuid;

use super::{WorkError, Worker, launch};
use crate::db::{
    DbError,
    attempts::{self, NewAttempt, NewReplica},
    jobs::{self, Move},
    notify,
    queue::{self, HolderRow, NodeRow, WaitingRow},
    secret_values,
    tasks::{self, Finish, Lease, TaskKind},
};

/// Waiting jobs that one look weighs.
const LOOK_AHEAD: usize = 2_000;
/// Where many of them can't start for want of a secret, it reads on for others, so many times as far.
const PAGES: usize = 10;
/// The first of the queue hear at once what changed; those further back every half minute, since each admission
/// changes something for all of them.
const FRONT: usize = 64;
const FURTHER_BACK: Duration = Duration::seconds(30);
/// While something waits for what no poke tells of (a secret, a node), the queue is looked at this often.
const NEXT_LOOK: Duration = Duration::seconds(15);

pub async fn look(worker: &Worker, lease: &Lease) -> Result<(), WorkError> {
    let cluster = ClusterId(lease.subject);
    let now = worker.clock.now();
    let (rows, full) = front(worker, cluster, now).await?;
    if rows.is_empty() {
        let how = next_look(worker, cluster, None, now).await?;
        return finish(worker, lease, how).await;
    }
    let holders: Vec<Holder> = queue::holders(&worker.db, cluster)
        .await?
        .into_iter()
        .map(holder)
        .collect();
    let nodes: Vec<Node> = queue::nodes(&worker.db, cluster).await?.into_iter().map(node).collect();
    let waiting: Vec<Waiting> = rows.iter().map(waiting).collect();
    let answer = admit::admit(&waiting, &holders, &nodes, now, LookAhead { jobs: LOOK_AHEAD });

    let machine = jobs::cluster_machine(&worker.db, cluster).await?;
    for admitted in &answer.admitted {
        let Some(row) = rows.iter().find(|row| row.id == admitted.job) else {
            continue;
        };
        start_attempt(worker, lease, cluster, machine.as_deref(), row, admitted).await?;
    }
    if !answer.admitted.is_empty() {
        notify::send(worker.db.pool(), notify::TASKS, "").await?;
    }

    let answers = changed_answers(&rows, &answer.waiting, now);
    let how = match full && !answer.admitted.is_empty() {
        // Jobs beyond this look's horizon come nearer as soon as others start.
        true => Finish::At(now),
        false => next_look(worker, cluster, answer.look_again_at, now).await?,
    };
    let mut tx = worker.db.begin().await?;
    tasks::check(&mut tx, lease, worker.clock.now()).await?;
    if !answers.is_empty() {
        queue::explain(&mut tx, &answers).await?;
    }
    tasks::finish(&mut tx, lease, &how, worker.clock.now()).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

/// The first jobs of the queue that have their secrets, in its order; and whether more may stand behind them.
async fn front(worker: &Worker, cluster: ClusterId, now: DateTime<Utc>) -> Result<(Vec<WaitingRow>, bool), WorkError> {
    let (mut rows, mut full) = (Vec::new(), true);
    let mut known = BTreeMap::new();
    let mut after = None;
    for _ in 0..PAGES {
        let mut page = queue::front(&worker.db, cluster, after.as_ref(), LOOK_AHEAD as i64, now).await?;
        full = page.len() == LOOK_AHEAD;
        after = page.last().cloned();
        hold_back_without_secrets(worker, &mut known, &mut page).await?;
        rows.append(&mut page);
        if !full || rows.len() >= LOOK_AHEAD {
            break;
        }
    }
    full |= rows.len() > LOOK_AHEAD;
    rows.truncate(LOOK_AHEAD);
    Ok((rows, full))
}

/// When this queue is looked at again. While anything waits, at the end of the next backoff and every [`NEXT_LOOK`]: no
/// poke tells of a secret that was put, a cluster that grew, or output that will never be stored.
async fn next_look(
    worker: &Worker,
    cluster: ClusterId,
    wanted: Option<DateTime<Utc>>,
    now: DateTime<Utc>,
) -> Result<Finish, WorkError> {
    if !queue::any_wait(&worker.db, cluster).await? {
        return Ok(Finish::Done);
    }
    let backoff = queue::next_backoff(&worker.db, cluster, now).await?;
    let soonest = [wanted, backoff].into_iter().flatten().min();
    Ok(Finish::At(
        soonest.unwrap_or(now + NEXT_LOOK).clamp(now, now + NEXT_LOOK),
    ))
}

async fn finish(worker: &Worker, lease: &Lease, how: Finish) -> Result<(), WorkError> {
    let mut tx = worker.db.begin().await?;
    tasks::finish(&mut tx, lease, &how, worker.clock.now()).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

/// Takes out jobs whose secrets are not there: starting them would only fail, and they must not hold up others.
/// "Why" names the secret by itself, from the records.
async fn hold_back_without_secrets(
    worker: &Worker,
    known: &mut BTreeMap<TeamId, Vec<(String, Vec<String>)>>,
    rows: &mut Vec<WaitingRow>,
) -> Result<(), WorkError> {
    for row in rows.iter().filter(|row| !launch::secret_refs(&row.document).is_empty()) {
        if let std::collections::btree_map::Entry::Vacant(place) = known.entry(row.team) {
            place.insert(secret_values::known_keys(&worker.db, row.team).await?);
        }
    }
    rows.retain(|row| {
        launch::secret_refs(&row.document).iter().all(|wanted| {
            known.get(&row.team).is_some_and(|secrets| {
                secrets
                    .iter()
                    .any(|(name, keys)| *name == wanted.name && keys.contains(&wanted.key))
            })
        })
    });
    Ok(())
}

/// One admission, in a transaction of its own that checks the lease and that the job still waits.
async fn start_attempt(
    worker: &Worker,
    lease: &Lease,
    cluster: ClusterId,
    machine: Option<&str>,
    row: &WaitingRow,
    admitted: &Admitted,
) -> Result<(), WorkError> {
    let now = worker.clock.now();
    let mut tx = worker.db.begin().await?;
    tasks::check(&mut tx, lease, now).await?;
    if !queue::still_waits(&mut tx, row.id, cluster).await? {
        return Ok(());
    }
    let attempt = NewAttempt {
        id: AttemptId(Uuid::now_v7()),
        job: row.id,
        cluster,
        restart_owner: row.document.restart.owner,
        replicas: admitted
            .replicas
            .iter()
            .map(|placed| NewReplica {
                key: placed.key.clone(),
                rank: placed.rank,
                node: placed.node,
                gpus: placed.gpus.clone(),
                incarnation: IncarnationId(Uuid::now_v7()),
            })
            .collect(),
    };
    attempts::create(&mut tx, &attempt, now).await?;
    let change = Move {
        to: Phase::Starting,
        reason: Reason::Admitted.as_str(),
        message: "Admitted; its replicas are being started",
        not_before: None,
    };
    jobs::move_to(&mut tx, row.id, &change, now).await?;
    tasks::poke(&mut tx, TaskKind::Job, row.id.0, machine, now).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

fn waiting(row: &WaitingRow) -> Waiting {
    Waiting {
        job: row.id,
        name: row.name.clone(),
        team: row.team,
        priority: row.priority,
        queued_at: row.queued_at,
        not_before: row.not_before,
        roles: admit::demand(&row.document),
        longest_hold: admit::longest_hold(&row.document),
    }
}

fn holder(row: HolderRow) -> Holder {
    let parts = row
        .replicas
        .iter()
        .filter_map(|(role, node, gpus)| {
            let role = row.document.roles.iter().find(|known| known.name == *role)?;
            Some(Held {
                node: *node,
                amount: admit::amount(&role.resources),
                gpus: gpus.clone(),
            })
        })
        .collect();
    Holder {
        job: row.job,
        attempt: row.attempt,
        name: row.name,
        priority: row.priority,
        queued_at: row.queued_at,
        admitted_at: row.admitted_at,
        ends_by: admit::ends_by(&row.document, row.admitted_at, row.running_at),
        parts,
    }
}

pub(super) fn node(row: NodeRow) -> Node {
    let capacity: Amount = serde_json::from_value(row.allocatable).unwrap_or_default();
    let gpus = (0..capacity.gpus as u32).collect();
    Node {
        id: NodeId(row.id.0),
        name: row.name,
        capacity,
        gpus,
        open: row.ready,
    }
}

/// The answers worth writing: `{"at": time, ...NotYet}` where it differs from what is stored.
fn changed_answers(rows: &[WaitingRow], waiting: &[NotYet], now: DateTime<Utc>) -> Vec<(JobId, Value)> {
    let stored: BTreeMap<JobId, Option<&Value>> = rows.iter().map(|row| (row.id, row.why.as_ref())).collect();
    waiting
        .iter()
        .enumerate()
        .filter_map(|(place, answer)| {
            let mut value = serde_json::to_value(answer).ok()?;
            let old = stored.get(&answer.job).copied().flatten();
            if let Some(old) = old {
                let at: Option<DateTime<Utc>> = old.get("at").and_then(|at| serde_json::from_value(at.clone()).ok());
                let same = value
                    .as_object()
                    .is_some_and(|new| new.iter().all(|(key, part)| old.get(key) == Some(part)));
                let young = at.is_some_and(|at| now - at < FURTHER_BACK);
                // What is too big is left out of looks while its answer is young, so that answer is kept young.
                let kept_young = matches!(answer.hold, Hold::TooBig { .. }) && !young;
                if !kept_young && (same || (place >= FRONT && young)) {
                    return None;
                }
            }
            value
                .as_object_mut()?
                .insert("at".into(), serde_json::to_value(now).ok()?);
            Some((answer.job, value))
        })
        .collect()
}
