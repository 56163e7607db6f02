//! The records behind "why does it not run": gathered in few statements, judged by `trainyard_core::plan::why`.

use chrono::{DateTime, Utc};
use trainyard_core::{
    document::job::JobDocument,
    model::{AttemptId, JobId, Phase, ReplicaKey, ReplicaPhase, TeamId, Wanted},
    plan::{admit::NotYet, attempt::StopCause},
};

use super::{Db, DbError, Scope, holdings, jobs, word};

#[derive(Debug, Clone)]
pub struct WhyFacts {
    pub name: String,
    pub team: TeamId,
    pub team_name: String,
    pub document: JobDocument,
    pub wanted: Wanted,
    pub phase: Phase,
    pub message: String,
    pub priority: i32,
    pub queued_at: DateTime<Utc>,
    pub queued_seconds: i64,
    pub not_before: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub stale_since: Option<DateTime<Utc>>,
    /// The records were restored, and nobody has confirmed yet.
    pub restored_at: Option<DateTime<Utc>>,
    pub attempt: i32,
    /// Why the last look of a worker at it failed, if it did.
    pub failed_look: Option<String>,
    /// What admission said last.
    pub not_yet: Option<NotYet>,
    pub cluster_wanted: Option<String>,
    /// The cluster that it was placed on.
    pub cluster: Option<ClusterRecord>,
    pub newest: Option<AttemptRecord>,
    /// Who asked for the suspension that stands.
    pub suspended: Option<(String, DateTime<Utc>)>,
}

#[derive(Debug, Clone)]
pub struct ClusterRecord {
    pub name: String,
    pub exists: bool,
    pub granted: bool,
    pub worker: Option<String>,
    pub worker_seen_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone)]
pub struct AttemptRecord {
    pub number: i32,
    pub message: String,
    pub admitted_at: DateTime<Utc>,
    pub running_at: Option<DateTime<Utc>>,
    pub stopping_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub stop_cause: Option<StopCause>,
    pub replicas: Vec<(ReplicaKey, ReplicaPhase, Option<String>)>,
}

pub async fn load(db: &Db, scope: &Scope, id: JobId, now: DateTime<Utc>) -> Result<WhyFacts, DbError> {
    let teams = scope.teams();
    let row = sqlx::query!(
        r#"/* why_facts::load */
        select j.name, j.team_id, t.name as team_name, j.document, j.wanted, j.phase, j.message, j.priority,
            j.queued_at, j.queued_seconds, j.not_before, j.ended_at, j.stale_since, j.attempt, j.why,
            j.cluster_wanted, c.name as "cluster_name?", c.deleted_at is null as "cluster_exists?",
            c.observed_at as "observed_at?",
            exists (select from cluster_grants g where g.cluster_id = c.id and g.team_id = j.team_id) as "granted!",
            (select restored_at from installation) as restored_at,
            (select last_error from tasks where kind = 'job' and subject_id = j.id and failures > 0) as failed_look,
            (select w.machine_id from holdings h join workers w on w.id = h.worker_id
                where h.kind = $4 and h.subject_id = c.id and h.expires_at > $3 limit 1) as worker
        from jobs j join teams t on t.id = j.team_id left join clusters c on c.id = j.cluster_id
        where j.id = $1 and j.deleted_at is null and ($2::uuid[] is null or j.team_id = any($2))"#,
        id.0,
        teams.as_deref(),
        now,
        holdings::CLUSTER
    )
    .fetch_one(&db.pool)
    .await?;
    let phase: Phase = word("jobs", id, &row.phase)?;
    let mut facts = WhyFacts {
        name: row.name,
        team: row.team_id.into(),
        team_name: row.team_name,
        document: jobs::document(id, &row.document)?,
        wanted: word("jobs", id, &row.wanted)?,
        phase,
        message: row.message,
        priority: row.priority,
        queued_at: row.queued_at,
        queued_seconds: row.queued_seconds,
        not_before: row.not_before,
        ended_at: row.ended_at,
        stale_since: row.stale_since,
        restored_at: row.restored_at,
        attempt: row.attempt,
        failed_look: row.failed_look,
        // An answer that an older program stored may be of another form; the next look writes it anew.
        not_yet: row.why.and_then(|why| serde_json::from_value(why).ok()),
        cluster_wanted: row.cluster_wanted,
        cluster: row.cluster_name.map(|name| ClusterRecord {
            name,
            exists: row.cluster_exists.unwrap_or(false),
            granted: row.granted,
            worker: row.worker,
            worker_seen_at: row.observed_at,
        }),
        newest: None,
        suspended: None,
    };
    if facts.attempt > 0 && !phase.is_final() {
        facts.newest = newest(db, id, phase).await?;
    }
    if phase == Phase::Suspended {
        facts.suspended = suspended(db, id).await?;
    }
    Ok(facts)
}

async fn newest(db: &Db, id: JobId, phase: Phase) -> Result<Option<AttemptRecord>, DbError> {
    let Some(row) = sqlx::query!(
        r#"/* why_facts::newest */
        select id, number, message, admitted_at, running_at, stopping_at, ended_at, stop_cause
        from attempts where job_id = $1 order by number desc limit 1"#,
        id.0
    )
    .fetch_optional(&db.pool)
    .await?
    else {
        return Ok(None);
    };
    let mut attempt = AttemptRecord {
        number: row.number,
        message: row.message,
        admitted_at: row.admitted_at,
        running_at: row.running_at,
        stopping_at: row.stopping_at,
        ended_at: row.ended_at,
        stop_cause: row.stop_cause.and_then(|cause| cause.parse().ok()),
        replicas: Vec::new(),
    };
    if phase.is_active() {
        let rows = sqlx::query!(
            r#"/* why_facts::newest replicas */
            select role, index, phase, message from replicas where attempt_id = $1 order by rank"#,
            AttemptId(row.id).0
        )
        .fetch_all(&db.pool)
        .await?;
        for row in rows {
            let key = ReplicaKey {
                role: row.role,
                index: u32::try_from(row.index).unwrap_or(0),
            };
            let phase = word("replicas", &key, &row.phase)?;
            let words = Some(row.message).filter(|message| !message.is_empty());
            attempt.replicas.push((key, phase, words));
        }
    }
    Ok(Some(attempt))
}

async fn suspended(db: &Db, id: JobId) -> Result<Option<(String, DateTime<Utc>)>, DbError> {
    let row = sqlx::query!(
        r#"/* why_facts::suspended */
        select u.name, e.at from jobs j
            join events e on e.class = j.retention and e.owner_id = j.id
            join users u on u.id = e.actor_id
        where j.id = $1 and e.kind = 'job.wanted' and e.data->>'to' = 'suspend' order by e.seq desc limit 1"#,
        id.0
    )
    .fetch_optional(&db.pool)
    .await?;
    Ok(row.map(|row| (row.name, row.at)))
}
