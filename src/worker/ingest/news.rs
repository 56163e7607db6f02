//! What a flush's lines mean for records: steps, series, checkpoints.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde_json::json;
use trainyard_core::model::{AttemptId, JobId, ReplicaKey};

use super::{Ingest, IngestError, cut::Done};
use crate::db::{
    events::{self, NewEvent, Subject},
    logs::{
        JobKey,
        write::{self, JobNews, ReplicaNews},
    },
    metrics::{Point, SeriesKey},
};

/// What follows from a flush's lines.
#[derive(Debug, Default)]
pub(super) struct News {
    pub replicas: Vec<ReplicaNews>,
    pub jobs: Vec<JobNews>,
    pub series: BTreeMap<JobKey, BTreeMap<SeriesKey, Vec<Point>>>,
    pub checkpoints: Vec<Checkpoint>,
}

#[derive(Debug)]
pub(super) struct Checkpoint {
    pub key: JobKey,
    attempt: i32,
    replica: ReplicaKey,
    step: i64,
    path: String,
}

impl Checkpoint {
    /// `false`: another rank reported it before.
    pub async fn record(&self, tx: &mut crate::db::Tx<'_>, at: i64, now: DateTime<Utc>) -> Result<bool, IngestError> {
        if !write::add_checkpoint(tx, self.key.job(), self.attempt, self.step, &self.path, at).await? {
            return Ok(false);
        }
        let event = NewEvent {
            kind: "job.checkpoint",
            actor: None,
            message: &format!("Checkpoint at step {} in {}", self.step, self.path),
            data: json!({
                "attempt": self.attempt, "step": self.step, "path": self.path, "replica": self.replica.to_string(),
            }),
        };
        events::append(tx, Subject::Job(self.key.job()), event, now).await?;
        Ok(true)
    }
}

impl Ingest {
    pub(super) fn news(&self, done: &[(AttemptId, u64, Done)], at: i64) -> News {
        let mut news = News::default();
        let mut replicas: BTreeMap<(AttemptId, ReplicaKey), Option<i64>> = BTreeMap::new();
        let mut jobs: BTreeMap<JobId, JobNews> = BTreeMap::new();
        for (id, _, done) in done {
            let attempt = &self.attempts[id];
            let replica = attempt.streams[&done.state.id].replica.clone();
            if done.chunks.iter().any(|chunk| chunk.bytes > 0) || done.haul.step.is_some() {
                let step = replicas.entry((*id, replica.clone())).or_default();
                *step = done.haul.step.max(*step);
            }
            let places = attempt.about.as_ref().map(|about| &about.ranks);
            let mut of_ranks = Vec::new();
            for (rank, of_rank) in &done.haul.ranks {
                let Some(place) = places.and_then(|places| places(*rank)) else {
                    continue;
                };
                let step = replicas.entry((*id, place.clone())).or_default();
                *step = of_rank.step.max(*step);
                of_ranks.extend(of_rank.series.iter().map(|series| (place.clone(), series)));
            }
            if done.haul.is_empty() {
                continue;
            }
            if done.haul.step.is_some() || done.haul.total.is_some() {
                let job = jobs.entry(attempt.open.key.job()).or_insert(JobNews {
                    job: attempt.open.key.job(),
                    attempt: attempt.open.number,
                    step: None,
                    total: None,
                    at,
                });
                job.step = job.step.max(done.haul.step);
                job.total = done.haul.total.or(job.total);
            }
            let series = news.series.entry(attempt.open.key).or_default();
            let own = done.haul.series.iter().map(|series| (replica.clone(), series));
            for (place, (name, points)) in own.chain(of_ranks) {
                let key = SeriesKey {
                    attempt: attempt.open.number,
                    replica: Some(place),
                    name: name.clone(),
                };
                series.entry(key).or_default().extend(points.iter().copied());
            }
            news.checkpoints
                .extend(done.haul.checkpoints.iter().map(|caught| Checkpoint {
                    key: attempt.open.key,
                    attempt: attempt.open.number,
                    replica: replica.clone(),
                    step: caught.step,
                    path: caught.path.clone(),
                }));
        }
        news.replicas = replicas
            .into_iter()
            .map(|((attempt, replica), step)| ReplicaNews {
                attempt,
                replica,
                at,
                step,
            })
            .collect();
        news.jobs = jobs.into_values().collect();
        news
    }
}
