//! Jobs that named no cluster are given one that fits: the emptiest of those that could ever hold them.
//!
//! Whether it fits *now* is the queue's business. A job that fits nowhere stays without a cluster, and "why" says so.

use std::collections::{HashMap, hash_map::Entry};

use chrono::{DateTime, Duration, Utc};
use trainyard_core::{
    document::job::JobDocument,
    model::{ClusterId, JobId, TeamId},
    plan::admit::{self, Hold, LookAhead, NotYet, RoleDemand, Waiting},
};

use super::{WorkError, Worker};
use crate::db::{
    DbError, notify,
    queue::{self, ClusterChoice},
    tasks::{self, Finish, Lease, TaskKind},
};

const BATCH: i64 = 500;

pub async fn look(worker: &Worker, lease: &Lease) -> Result<(), WorkError> {
    let now = worker.clock.now();
    let (mut placed, mut left) = (0, 0);
    let mut known = Known::default();
    let mut after = None;
    loop {
        let jobs = queue::unplaced(&worker.db, after, BATCH).await?;
        let mut answers = Vec::new();
        for (job, team, document) in &jobs {
            match choose(worker, &mut known, *job, *team, document, now).await? {
                Choice::Cluster(cluster) => {
                    assign(worker, lease, *job, cluster).await?;
                    known.one_more_waits(cluster);
                    placed += 1;
                }
                Choice::Nowhere(why) => {
                    left += 1;
                    answers.extend(why.and_then(|why| Some((*job, serde_json::to_value(why).ok()?))));
                }
            }
        }
        if !answers.is_empty() {
            let mut tx = worker.db.begin().await?;
            tasks::check(&mut tx, lease, worker.clock.now()).await?;
            queue::explain(&mut tx, &answers).await?;
            tx.commit().await.map_err(DbError::from)?;
        }
        after = jobs.last().map(|(job, _, _)| *job);
        if (jobs.len() as i64) < BATCH {
            break;
        }
    }
    if placed > 0 {
        notify::send(worker.db.pool(), notify::TASKS, "").await?;
    }
    // What fits nowhere today may fit when a cluster, a node or a grant is added.
    let how = if left > 0 {
        Finish::At(now + Duration::seconds(15))
    } else {
        Finish::Done
    };
    let mut tx = worker.db.begin().await?;
    tasks::finish(&mut tx, lease, &how, worker.clock.now()).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

enum Choice {
    Cluster(ClusterId),
    /// No cluster of the team could ever hold it; the answer of the one that came first.
    Nowhere(Option<NotYet>),
}

/// What one look has read and found out: thousands of jobs that fit nowhere are mostly alike.
#[derive(Default)]
struct Known {
    clusters: HashMap<TeamId, Vec<ClusterChoice>>,
    nodes: HashMap<ClusterId, Vec<admit::Node>>,
    /// What fits nowhere, with the answer.
    nowhere: HashMap<(TeamId, Vec<RoleDemand>), Option<NotYet>>,
}

impl Known {
    fn one_more_waits(&mut self, cluster: ClusterId) {
        let everywhere = self.clusters.values_mut().flatten();
        everywhere
            .filter(|choice| choice.id == cluster)
            .for_each(|choice| choice.waiting += 1);
    }

    /// The clusters of a team, the emptiest first.
    async fn clusters(&mut self, worker: &Worker, team: TeamId) -> Result<Vec<ClusterChoice>, WorkError> {
        if let Entry::Vacant(place) = self.clusters.entry(team) {
            place.insert(queue::clusters_for(&worker.db, team).await?);
        }
        let mut choices = self.clusters[&team].clone();
        choices.sort_by_key(|choice| (choice.stale, choice.waiting));
        Ok(choices)
    }

    /// A cluster's nodes. One that is away today counts: the question is whether a job could ever run there.
    async fn nodes(&mut self, worker: &Worker, cluster: ClusterId) -> Result<&[admit::Node], WorkError> {
        Ok(match self.nodes.entry(cluster) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let nodes = queue::nodes(&worker.db, cluster).await?.into_iter();
                let nodes = nodes
                    .map(super::queue::node)
                    .map(|node| admit::Node { open: true, ..node });
                place.insert(nodes.collect())
            }
        })
    }
}

async fn choose(
    worker: &Worker,
    known: &mut Known,
    job: JobId,
    team: TeamId,
    document: &JobDocument,
    now: DateTime<Utc>,
) -> Result<Choice, WorkError> {
    let demand = (team, admit::demand(document));
    if let Some(why) = known.nowhere.get(&demand) {
        return Ok(Choice::Nowhere(why.clone().map(|why| NotYet { job, ..why })));
    }
    let alone = Waiting {
        job,
        name: document.name.clone(),
        team,
        priority: 0,
        queued_at: now,
        not_before: None,
        roles: demand.1.clone(),
        longest_hold: None,
    };
    let mut refusal = None;
    for choice in known.clusters(worker, team).await? {
        let nodes = known.nodes(worker, choice.id).await?;
        let mut answer = admit::admit(std::slice::from_ref(&alone), &[], nodes, now, LookAhead::default());
        match answer.waiting.pop() {
            Some(wait) if matches!(wait.hold, Hold::TooBig { .. } | Hold::NoNodes) => refusal = refusal.or(Some(wait)),
            _ => return Ok(Choice::Cluster(choice.id)),
        }
    }
    known.nowhere.insert(demand, refusal.clone());
    Ok(Choice::Nowhere(refusal))
}

async fn assign(worker: &Worker, lease: &Lease, job: JobId, cluster: ClusterId) -> Result<(), WorkError> {
    let now = worker.clock.now();
    let mut tx = worker.db.begin().await?;
    tasks::check(&mut tx, lease, now).await?;
    queue::place(&mut tx, job, cluster).await?;
    tasks::poke(&mut tx, TaskKind::Queue, cluster.0, None, now).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}
