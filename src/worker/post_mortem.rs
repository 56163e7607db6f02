//! Freezing what is known of an attempt that ended badly, once its last output is stored.

use std::collections::BTreeMap;

use trainyard_core::{
    model::{JobId, NodeId, ReplicaKey},
    plan::{
        attempt::{AttemptEnd, ReplicaFacts},
        postmortem::{self, Ended, EndedReplica, LINE_LENGTH, LINES_KEPT, NodeThen},
    },
};

use super::{WorkError, Worker, job, record};
use crate::db::{
    DbError,
    attempts::{self, AttemptRecord},
    conditions,
    events::Subject,
    holdings::{self, Holding},
    jobs,
    logs::JobKey,
    notify, queue,
    tasks::{self, Lease},
};
use crate::logs::{
    merge::Begin,
    page::{self, Filter, Query},
    stream::From,
};

/// By what right it is written.
#[derive(Clone, Copy)]
pub enum Right<'a> {
    /// The cluster is held.
    Holding(&'a Holding),
    /// The job is looked at; its cluster has nobody any more.
    Lease(&'a Lease),
}

pub async fn freeze(worker: &Worker, right: Right<'_>, id: JobId, number: i32) -> Result<(), WorkError> {
    let record = jobs::load(&worker.db, id).await?;
    let Some(attempt) = attempts::numbered(&worker.db, id, Some(number)).await? else {
        return Ok(());
    };
    let (Some(outcome), Some(at)) = (attempt.outcome, attempt.ended_at) else {
        return Ok(());
    };
    let Ok(reason) = attempt.reason.parse() else {
        return Ok(());
    };
    let end = AttemptEnd {
        outcome,
        reason,
        message: attempt.message.clone(),
        at,
        first_failure: attempt.first_failure.clone(),
        code: attempt.code,
    };
    let names = node_names(worker, &attempt).await?;
    let nodes = nodes_then(worker, &names).await?;
    let lines = last_lines(worker, &record, &attempt).await?;
    let facts: Vec<ReplicaFacts> = attempt.replicas.iter().map(record::replica_facts).collect();
    let borrowed: BTreeMap<&ReplicaKey, Vec<&str>> = lines
        .iter()
        .map(|(key, lines)| (key, lines.iter().map(String::as_str).collect()))
        .collect();
    let replicas: Vec<EndedReplica<'_>> = attempt
        .replicas
        .iter()
        .zip(&facts)
        .map(|(replica, facts)| EndedReplica {
            facts,
            node: replica.node.and_then(|node| names.get(&node)).map(String::as_str),
            last_lines: borrowed.get(&replica.key).map_or(&[], Vec::as_slice),
            message: facts.message.as_deref(),
            memory_limit: record
                .document
                .roles
                .iter()
                .find(|role| role.name == replica.key.role)
                .and_then(|role| role.resources.memory)
                .map(|memory| memory.as_bytes()),
        })
        .collect();
    let failures_before = attempts::failures_before(&worker.db, id, number).await? as u32;
    let verdict = job::verdict(&record, &attempt, failures_before);
    let document = postmortem::post_mortem(&Ended {
        job_name: &record.name,
        number: number as u32,
        end: &end,
        replicas: &replicas,
        nodes: &nodes,
        verdict: verdict.as_ref(),
        checkpoint_step: attempt.kept_step,
        last_step: attempt.last_step,
    });
    let value = serde_json::to_value(&document).map_err(|error| DbError::Inconsistent {
        table: "attempts",
        key: attempt.id.to_string(),
        what: format!("post-mortem: {error}"),
    })?;
    let first = document
        .first_failure
        .as_ref()
        .and_then(|first| serde_json::to_value(first).ok());
    let now = worker.clock.now();
    let mut tx = worker.db.begin().await?;
    match right {
        Right::Holding(holding) => holdings::check(&mut tx, holding, now).await?,
        Right::Lease(lease) => tasks::check(&mut tx, lease, now).await?,
    }
    attempts::freeze_post_mortem(&mut tx, id, attempt.id, &value, first, &document.summary, now).await?;
    tx.commit().await.map_err(DbError::from)?;
    Ok(notify::send(worker.db.pool(), notify::EVENTS, &id.0.to_string()).await?)
}

async fn node_names(worker: &Worker, attempt: &AttemptRecord) -> Result<BTreeMap<NodeId, String>, DbError> {
    Ok(queue::nodes(&worker.db, attempt.cluster)
        .await?
        .into_iter()
        .map(|node| (node.id, node.name))
        .collect())
}

async fn nodes_then(worker: &Worker, names: &BTreeMap<NodeId, String>) -> Result<Vec<NodeThen>, DbError> {
    let mut then = Vec::new();
    for (id, name) in names {
        for condition in conditions::of(&worker.db, Subject::Node(*id)).await? {
            then.push(NodeThen {
                node: name.clone(),
                condition: condition.kind,
                status: condition.status,
                severity: condition.severity,
                message: condition.message,
                since: Some(condition.since),
            });
        }
    }
    Ok(then)
}

/// The last lines of every replica, both streams together, oldest first.
async fn last_lines(
    worker: &Worker,
    job: &jobs::JobRecord,
    attempt: &AttemptRecord,
) -> Result<BTreeMap<ReplicaKey, Vec<String>>, WorkError> {
    let key = JobKey::of_worker(job.id, job.document.retention);
    let mut lines = BTreeMap::new();
    for replica in &attempt.replicas {
        let filter = Filter {
            attempt: Some(attempt.number),
            role: Some(replica.key.role.clone()),
            index: Some(replica.key.index as i32),
            ..Filter::default()
        };
        let streams = page::streams(&worker.db, key, &filter).await?;
        let query = Query {
            begin: Begin::From(From::Tail(LINES_KEPT as u64)),
            until: None,
            lines: LINES_KEPT,
            bytes: LINES_KEPT * LINE_LENGTH,
        };
        let tail = page::page(&worker.db, &streams, &query).await?;
        let tail = tail.lines(&streams, false).into_iter().map(|line| line.text).collect();
        lines.insert(replica.key.clone(), tail);
    }
    Ok(lines)
}
