//! Freezing what is known of an attempt that ended badly, once its last output is stored.

use std::collections::BTreeMap;

use trainyard_core::{
    model::{JobId, NodeId, ReplicaPhase},
    plan::{
        attempt::{AttemptEnd, ReplicaFacts},
        postmortem::{self, Ended, EndedReplica, LINES_KEPT, LINES_OF_VICTIM, LOOKED_AT, NodeThen, Printed},
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
    merge::{Begin, Merged},
    page::{self, Filter},
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
    let facts: Vec<ReplicaFacts> = attempt.replicas.iter().map(record::replica_facts).collect();
    let mut printed = Vec::with_capacity(facts.len());
    for facts in &facts {
        printed.push(what_it_printed(worker, &record, number, facts).await?);
    }
    let replicas: Vec<EndedReplica<'_>> = attempt
        .replicas
        .iter()
        .zip(facts.iter().zip(&printed))
        .map(|(replica, (facts, printed))| EndedReplica {
            facts,
            printed,
            node: replica.node.and_then(|node| names.get(&node)).map(String::as_str),
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

/// From the end of each stream of a replica. Of those that did not fail only what is kept of a victim.
async fn what_it_printed(
    worker: &Worker,
    job: &jobs::JobRecord,
    attempt: i32,
    replica: &ReplicaFacts,
) -> Result<Printed, WorkError> {
    let (looked_at, kept) = match replica.phase {
        ReplicaPhase::Failed | ReplicaPhase::Lost => (LOOKED_AT, LINES_KEPT),
        _ => (LINES_KEPT, LINES_OF_VICTIM),
    };
    let filter = Filter {
        attempt: Some(attempt),
        role: Some(replica.key.role.clone()),
        index: Some(replica.key.index as i32),
        ..Filter::default()
    };
    let key = JobKey::of_worker(job.id, job.document.retention);
    let streams = page::streams(&worker.db, key, &filter).await?;
    let mut merged = Merged::new(&worker.db, &streams, Begin::From(From::Tail(looked_at as u64)));
    let mut lines: Vec<(usize, String)> = Vec::new();
    while let Some(placed) = merged.next().await? {
        let of_run = page::to_lines(&streams[placed.stream], &placed.run, false);
        lines.extend(of_run.into_iter().map(|line| (placed.stream, line.text)));
    }
    let lines: Vec<(usize, &str)> = lines.iter().map(|(stream, text)| (*stream, text.as_str())).collect();
    Ok(Printed::new(&lines, kept))
}
