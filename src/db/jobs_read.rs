//! One job, as people see it.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::value::RawValue;
use sqlx::types::Json;
use trainyard_core::{
    document::job::JobDocument,
    model::{ClusterId, JobId, Phase, TeamId, UserId, Wanted},
};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Db, DbError, Scope, word};

/// A job without its document.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Job {
    pub id: JobId,
    pub name: String,
    pub team: TeamRef,
    pub owner: UserRef,
    pub labels: BTreeMap<String, String>,
    /// What is wished of it. Workers make the phase follow.
    pub wanted: Wanted,
    pub phase: Phase,
    /// A stable code for the phase.
    pub reason: String,
    /// The same for a person.
    pub message: String,
    /// Set while no worker sees the cluster: what is known of the job is from then.
    pub stale_since: Option<DateTime<Utc>>,
    pub priority: i32,
    pub queue: Option<String>,
    /// The cluster that the document names. `null`: any that fits.
    pub cluster_wanted: Option<String>,
    /// Where it was placed.
    pub cluster: Option<ClusterRef>,
    /// Summed over all roles.
    pub replicas: i32,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpus: i32,
    /// Counts changes of the wish.
    pub generation: i64,
    /// The newest event's number.
    pub event_seq: i64,
    /// The newest attempt's number. 0: none yet.
    pub attempt: i32,
    pub step: Option<i64>,
    pub step_at: Option<DateTime<Utc>>,
    pub total_steps: Option<i64>,
    pub origin: Option<JobOrigin>,
    pub created_at: DateTime<Utc>,
    /// Start of the present (or last) wait; `queued_seconds` sums the earlier ones.
    pub queued_at: DateTime<Utc>,
    pub queued_seconds: i64,
    /// Between attempts: not admitted before this time.
    pub not_before: Option<DateTime<Utc>>,
    pub started_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    /// Its state and what is wrong with it or holds it up, as the page of all jobs says it. Only in lists where it was
    /// asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentence: Option<String>,
}

/// A job with its document.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct JobDetail {
    #[serde(flatten)]
    pub job: Job,
    /// The clean document: defaults filled in, secrets by reference only.
    #[schema(value_type = JobDocument)]
    pub document: Box<RawValue>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct TeamRef {
    pub id: TeamId,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct UserRef {
    pub id: UserId,
    pub name: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct ClusterRef {
    pub id: ClusterId,
    pub name: String,
}

/// The job that this one was made from.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct JobOrigin {
    pub how: OriginKind,
    pub job: JobId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OriginKind {
    /// The same document again.
    Rerun,
    /// A copy that a person edited.
    Clone,
}

impl Job {
    /// Changes with every wish and every event. What is to be changed may name the version that was seen.
    pub fn etag(&self) -> String {
        format!("\"{}-{}\"", self.generation, self.event_seq)
    }
}

pub async fn get(db: &Db, scope: &Scope, id: JobId) -> Result<JobDetail, DbError> {
    let teams = scope.teams();
    let mut reader = db.reader().await?;
    let row = sqlx::query_as!(
        JobRow,
        r#"/* jobs_read::get */
        select j.id, j.name, j.team_id, j.owner_id,
            j.labels as "labels: Json<BTreeMap<String, String>>", j.wanted, j.phase, j.reason, j.message,
            j.stale_since, j.priority, j.queue, j.cluster_wanted, j.cluster_id, j.replicas,
            j.cpu_milli, j.memory_bytes, j.gpus, j.generation, j.event_seq, j.attempt, j.step, j.step_at,
            j.total_steps, j.origin, j.origin_job_id, j.created_at, j.queued_at, j.queued_seconds, j.not_before,
            j.started_at, j.ended_at, j.document as "document?"
        from jobs j
        where j.id = $1 and j.deleted_at is null and ($2::uuid[] is null or j.team_id = any($2))"#,
        id.0,
        teams.as_deref()
    )
    .fetch_optional(&mut *reader)
    .await;
    let row = reader.done(row)?.ok_or(DbError::NotFound)?;
    let names = db.names.of(db, &row.ids().collect::<Vec<_>>()).await?;
    row.into_detail(&names)
}

/// A job's place among people and partitions: who may see it, and in which class its records lie.
#[derive(Debug, Clone, PartialEq)]
pub struct Home {
    pub id: JobId,
    pub name: String,
    pub team: TeamId,
    /// The retention class, as events, logs and metrics are partitioned by it.
    pub class: String,
    pub phase: Phase,
    pub attempt: i32,
    pub event_seq: i64,
    pub created_at: DateTime<Utc>,
}

/// Finds a job that the scope may see. Every read of what belongs to a job starts here.
pub async fn home(db: &Db, scope: &Scope, id: JobId) -> Result<Home, DbError> {
    let teams = scope.teams();
    let mut reader = db.reader().await?;
    let row = sqlx::query!(
        r#"/* jobs_read::home */
        select name, team_id, retention, phase, attempt, event_seq, created_at from jobs
        where id = $1 and deleted_at is null and ($2::uuid[] is null or team_id = any($2))"#,
        id.0,
        teams.as_deref()
    )
    .fetch_optional(&mut *reader)
    .await;
    let row = reader.done(row)?.ok_or(DbError::NotFound)?;
    Ok(Home {
        id,
        name: row.name,
        team: row.team_id.into(),
        class: row.retention,
        phase: word("jobs", id, &row.phase)?,
        attempt: row.attempt,
        event_seq: row.event_seq,
        created_at: row.created_at,
    })
}

/// The columns of a job as they come from the database.
pub(super) struct JobRow {
    pub id: Uuid,
    pub name: String,
    pub team_id: Uuid,
    pub owner_id: Uuid,
    pub labels: Json<BTreeMap<String, String>>,
    pub wanted: String,
    pub phase: String,
    pub reason: String,
    pub message: String,
    pub stale_since: Option<DateTime<Utc>>,
    pub priority: i32,
    pub queue: Option<String>,
    pub cluster_wanted: Option<String>,
    pub cluster_id: Option<Uuid>,
    pub replicas: i32,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpus: i32,
    pub generation: i64,
    pub event_seq: i64,
    pub attempt: i32,
    pub step: Option<i64>,
    pub step_at: Option<DateTime<Utc>>,
    pub total_steps: Option<i64>,
    pub origin: Option<String>,
    pub origin_job_id: Option<Uuid>,
    pub created_at: DateTime<Utc>,
    pub queued_at: DateTime<Utc>,
    pub queued_seconds: i64,
    pub not_before: Option<DateTime<Utc>>,
    pub started_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    /// Lists leave it out.
    pub document: Option<String>,
}

/// Names by id, see [`super::names`].
pub(super) type Named = std::collections::HashMap<Uuid, std::sync::Arc<str>>;

impl JobRow {
    /// What it refers to by id and shows by name.
    pub(super) fn ids(&self) -> impl Iterator<Item = Uuid> {
        [Some(self.team_id), Some(self.owner_id), self.cluster_id]
            .into_iter()
            .flatten()
    }

    fn into_detail(mut self, names: &Named) -> Result<JobDetail, DbError> {
        let key = JobId(self.id);
        let text = self.document.take().unwrap_or_default();
        let document = RawValue::from_string(text).map_err(|error| DbError::Inconsistent {
            table: "jobs",
            key: key.to_string(),
            what: format!("document: {error}"),
        })?;
        Ok(JobDetail {
            job: self.into_job(names)?,
            document,
        })
    }

    pub(super) fn into_job(self, names: &Named) -> Result<Job, DbError> {
        let id = JobId(self.id);
        let name = |id: Uuid| names.get(&id).map_or_else(String::new, |name| name.to_string());
        let origin = match (self.origin.as_deref(), self.origin_job_id) {
            (Some("rerun"), Some(job)) => Some((OriginKind::Rerun, job)),
            (Some("clone"), Some(job)) => Some((OriginKind::Clone, job)),
            _ => None,
        };
        Ok(Job {
            id,
            name: self.name,
            team: TeamRef {
                id: self.team_id.into(),
                name: name(self.team_id),
            },
            owner: UserRef {
                id: self.owner_id.into(),
                name: name(self.owner_id),
            },
            labels: self.labels.0,
            wanted: word("jobs", id, &self.wanted)?,
            phase: word("jobs", id, &self.phase)?,
            reason: self.reason,
            message: self.message,
            stale_since: self.stale_since,
            priority: self.priority,
            queue: self.queue,
            cluster_wanted: self.cluster_wanted,
            cluster: self.cluster_id.map(|id| ClusterRef {
                id: id.into(),
                name: name(id),
            }),
            replicas: self.replicas,
            cpu_milli: self.cpu_milli,
            memory_bytes: self.memory_bytes,
            gpus: self.gpus,
            generation: self.generation,
            event_seq: self.event_seq,
            attempt: self.attempt,
            step: self.step,
            step_at: self.step_at,
            total_steps: self.total_steps,
            origin: origin.map(|(how, job)| JobOrigin { how, job: job.into() }),
            created_at: self.created_at,
            queued_at: self.queued_at,
            queued_seconds: self.queued_seconds,
            not_before: self.not_before,
            started_at: self.started_at,
            ended_at: self.ended_at,
            sentence: None,
        })
    }
}
