//! What a flush's lines mean for records: steps, series, checkpoints.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::Connection;
use trainyard_core::model::{AttemptId, JobId, ReplicaKey};
use uuid::Uuid;

use super::{Ingest, IngestError, cut::Done};
use crate::db::{
    DbError, Tx,
    events::{self, NewEvent, Subject},
    logs::{
        JobKey,
        write::{self, JobNews, ReplicaNews},
    },
    metrics::{self, Owner, Point, SeriesKey},
};

/// What follows from a flush's lines.
#[derive(Debug, Default)]
pub(super) struct News {
    pub replicas: Vec<ReplicaNews>,
    pub jobs: Vec<JobNews>,
    pub series: BTreeMap<JobKey, BTreeMap<SeriesKey, Vec<Point>>>,
    pub checkpoints: Vec<Checkpoint>,
}

impl News {
    /// Every job that something is noted of.
    pub fn subjects(&self) -> BTreeSet<JobId> {
        let jobs = self.jobs.iter().map(|news| news.job);
        let series = self.series.keys().map(|key| key.job());
        let checkpoints = self.checkpoints.iter().map(|checkpoint| checkpoint.key.job());
        jobs.chain(series).chain(checkpoints).collect()
    }

    /// The same in parts, of which each is about one job: what its replicas did first, then all else.
    pub fn by_job(mut self) -> Vec<News> {
        let mut parts = vec![News {
            replicas: std::mem::take(&mut self.replicas),
            ..News::default()
        }];
        for job in self.subjects() {
            parts.push(News {
                replicas: Vec::new(),
                jobs: self.jobs.extract_if(.., |news| news.job == job).collect(),
                series: self.series.extract_if(.., |key, _| key.job() == job).collect(),
                checkpoints: self.checkpoints.extract_if(.., |one| one.key.job() == job).collect(),
            });
        }
        parts
    }

    /// Writes it down. Answers the jobs that have events by that.
    pub async fn note(&self, tx: &mut Tx<'_>, at: i64, now: DateTime<Utc>) -> Result<BTreeSet<Uuid>, IngestError> {
        write::note_replicas(tx, &self.replicas).await?;
        write::note_jobs(tx, &self.jobs).await?;
        for (key, series) in &self.series {
            metrics::append(tx, Owner::Job(*key), series).await?;
        }
        let mut told = BTreeSet::new();
        for checkpoint in &self.checkpoints {
            if checkpoint.record(tx, at, now).await? {
                told.insert(checkpoint.key.job().0);
            }
        }
        Ok(told)
    }

    /// Writes each part down by itself. One that the database takes for impossible is left out, with a word in our log.
    pub async fn note_what_can_be(
        parts: &[News],
        tx: &mut Tx<'_>,
        at: i64,
        now: DateTime<Utc>,
    ) -> Result<BTreeSet<Uuid>, IngestError> {
        let mut told = BTreeSet::new();
        for part in parts {
            let mut point = tx.begin().await.map_err(DbError::from)?;
            match part.note(&mut point, at, now).await {
                Ok(some) => {
                    told.extend(some);
                    point.commit().await.map_err(DbError::from)?;
                }
                Err(IngestError::Db(error)) if error.is_of_the_data() => {
                    point.rollback().await.map_err(DbError::from)?;
                    let jobs: Vec<String> = part.subjects().iter().map(JobId::to_string).collect();
                    let error = &error as &dyn std::error::Error;
                    tracing::error!(
                        error,
                        ?jobs,
                        "metrics and checkpoints can't be stored, and are left out"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(told)
    }
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
    pub async fn record(&self, tx: &mut Tx<'_>, at: i64, now: DateTime<Utc>) -> Result<bool, IngestError> {
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
