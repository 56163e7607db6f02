//! "Why does it not run", for API and pages alike: the records of one job, put before the layers of `plan::why`.

use serde::Serialize;
use trainyard_core::{
    document::job::SecretRef,
    model::{JobId, Phase},
    plan::why::{self, AttemptView, Backoff, ByWhom, Candidate, ClusterFacts, Facts, Why},
};
use utoipa::ToSchema;

use super::{Error, WebState, pages::jobs};
use crate::db::{DbError, Scope, jobs_create, jobs_read, why_facts};

/// The answer, or that there is none because the job runs or has ended.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct WhyAnswer {
    pub phase: Phase,
    /// One sentence: the cause and the next step. For a job that runs or has ended: its state in words.
    pub sentence: String,
    /// The layers that hold it up, the outermost first. `null`: it runs or has ended.
    pub why: Option<Why>,
}

pub async fn answer(state: &WebState, scope: &Scope, job: JobId) -> Result<WhyAnswer, Error> {
    let now = state.actions.now();
    let record = match why_facts::load(&state.db, scope, job, now).await {
        Err(DbError::NotFound) => return Err(Error::not_found("job", &job.to_string())),
        other => other?,
    };
    let document = &record.document;
    let waits = matches!(record.phase, Phase::Queued | Phase::Suspended);
    let secrets = document.secret_refs();
    let names: Vec<String> = secrets.iter().map(|(_, secret)| secret.name.clone()).collect();
    let references = match waits && (!names.is_empty() || record.cluster.is_none()) {
        true => {
            let wanted = record.cluster_wanted.as_deref();
            jobs_create::references(&state.db, record.team, wanted, &names, None).await?
        }
        false => Default::default(),
    };
    let missing: Vec<SecretRef> = (secrets.into_iter())
        .filter(|(_, secret)| {
            waits
                && !references
                    .secrets
                    .get(&secret.name)
                    .is_some_and(|keys| keys.contains(&secret.key))
        })
        .map(|(_, secret)| secret.clone())
        .collect();
    let cluster = match (&record.cluster, &record.cluster_wanted) {
        (Some(cluster), _) => Some(ClusterFacts {
            name: &cluster.name,
            exists: cluster.exists,
            granted: cluster.granted,
            worker: cluster.worker.as_deref(),
            worker_seen_at: cluster.worker_seen_at,
        }),
        (None, Some(name)) => Some(ClusterFacts {
            name,
            exists: references.cluster.is_some(),
            granted: references.granted,
            worker: None,
            worker_seen_at: None,
        }),
        (None, None) => None,
    };
    let candidates: Vec<Candidate<'_>> = (references.usable.iter())
        .map(|name| Candidate {
            // Placement asks no worker, so none is missed here.
            cluster: ClusterFacts {
                name,
                exists: true,
                granted: true,
                worker: Some(name),
                worker_seen_at: None,
            },
            hold: record.not_yet.as_ref(),
        })
        .collect();
    let newest = record.newest.as_ref();
    let since = match record.phase {
        Phase::Queued => Some(record.queued_at),
        Phase::Starting => newest.map(|attempt| attempt.admitted_at),
        Phase::Running => newest.and_then(|attempt| attempt.running_at),
        Phase::Stopping => newest.and_then(|attempt| attempt.stopping_at),
        Phase::Suspended => newest.and_then(|attempt| attempt.ended_at),
        Phase::Succeeded | Phase::Failed | Phase::Cancelled => record.ended_at,
    };
    let facts = Facts {
        name: &record.name,
        wanted: record.wanted,
        phase: record.phase,
        since: since.unwrap_or(record.queued_at),
        priority: record.priority,
        queue_deadline: document.deadlines.queue.map(|limit| limit.as_chrono()),
        waited_before: chrono::Duration::seconds(record.queued_seconds),
        backoff: record.not_before.map(|until| Backoff {
            until,
            retry: u32::try_from(record.attempt).unwrap_or(0),
            max: document.restart.max,
            last: newest.map_or("", |attempt| attempt.message.as_str()),
        }),
        suspended: record.suspended.as_ref().map(|(who, at)| ByWhom { who, at: *at }),
        team: &record.team_name,
        // A team with jobs can't be removed.
        team_exists: true,
        missing_secrets: &missing,
        cluster,
        candidates: if record.cluster_wanted.is_none() {
            &candidates
        } else {
            &[]
        },
        queue: record.not_yet.as_ref(),
        attempt: newest.map(|attempt| AttemptView {
            number: u32::try_from(attempt.number).unwrap_or(0),
            admitted_at: attempt.admitted_at,
            failed_try: record.failed_look.as_deref(),
            start_deadline: document.deadlines.start.map(|limit| limit.as_chrono()),
            stop_cause: attempt.stop_cause,
            stopping_at: attempt.stopping_at,
            grace: document.stop.grace.as_chrono(),
            replicas: &attempt.replicas,
        }),
        stale_since: record.stale_since,
        restored_at: record.restored_at,
    };
    let why = why::why(&facts, now);
    let sentence = match &why {
        Some(why) => why.sentence.clone(),
        None => {
            let job = jobs_read::get(&state.db, scope, job).await?.job;
            jobs::sentences(&state.db, &[job], now).await?.swap_remove(0)
        }
    };
    Ok(WhyAnswer {
        phase: record.phase,
        sentence,
        why,
    })
}
