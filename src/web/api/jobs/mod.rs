//! Jobs and everything that belongs to one.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use trainyard_core::{
    document::job::{Framework, JobDocument},
    kinds::rendezvous::{self, LAUNCHER},
    model::JobId,
};

use super::super::{Code, Error, WebState, extract::Asker};
use crate::{
    actions::FieldFault,
    db::{
        DbError,
        jobs_read::{self, Home, JobDetail},
        logs as output,
    },
    logs::page::{self, Filter},
};

pub mod attempt;
pub mod attempts;
pub mod cancel;
pub mod change;
pub mod checkpoints;
pub mod clone;
pub mod conditions;
pub mod create;
pub mod delete;
pub mod events;
pub mod get;
pub mod incarnations;
pub mod list;
pub mod log_download;
pub mod log_follow;
pub mod log_query;
pub mod log_search;
pub mod log_streams;
pub mod logs;
pub mod metrics;
pub mod post_mortem;
pub mod replicas;
pub mod report_checkpoint;
pub mod report_metrics;
pub mod rerun;
pub mod resume;
pub mod suspend;
pub mod usage;
pub mod why;

/// The job, if the caller may see it: where every read of what belongs to a job begins.
async fn home(state: &WebState, asker: &Asker, job: JobId) -> Result<Home, Error> {
    found(job, jobs_read::home(&state.db, &asker.scope(), job).await)
}

fn found<T>(job: JobId, result: Result<T, DbError>) -> Result<T, Error> {
    result.map_err(|error| match error {
        DbError::NotFound => Error::not_found("job", &job.to_string()),
        other => other.into(),
    })
}

/// A job with its version, so that a change can name what it changes.
fn with_etag(status: StatusCode, detail: JobDetail) -> Response {
    let etag = detail.job.etag();
    tagged(status, &etag, Json(detail))
}

fn tagged<T: Serialize>(status: StatusCode, etag: &str, body: Json<T>) -> Response {
    let mut response = (status, body).into_response();
    if let Ok(etag) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// 304 has the version and no body.
fn not_modified(etag: &str) -> Response {
    let mut response = StatusCode::NOT_MODIFIED.into_response();
    if let Ok(etag) = HeaderValue::from_str(etag) {
        response.headers_mut().insert(header::ETAG, etag);
    }
    response
}

/// The client has this version already.
fn has_already(headers: &HeaderMap, etag: &str) -> bool {
    let sent = headers
        .get(header::IF_NONE_MATCH)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    sent.split(',')
        .map(str::trim)
        .any(|known| known == "*" || known.trim_start_matches("W/") == etag)
}

/// The attempt that is meant: the one named, or the newest. A number that none has is refused.
fn attempt_or_newest(home: &Home, attempt: Option<i32>) -> Result<i32, Error> {
    match attempt.and_then(|attempt| no_attempt(attempt, home.attempt)) {
        Some(fault) => Err(Error::faults(Code::NotFound, vec![fault])),
        None => Ok(attempt.unwrap_or(home.attempt)),
    }
}

/// Output that a filter takes.
struct Chosen {
    key: output::JobKey,
    streams: Vec<output::StreamRow>,
    /// What it means for this job: see [`Filter::under_mpirun`].
    filter: Filter,
}

/// The streams of output that a filter takes. None is an answer where some may still come; an attempt, a replica or a rank
/// that the job does not have is a slip, and refused.
async fn streams(state: &WebState, asker: &Asker, job: JobId, mut filter: Filter) -> Result<Chosen, Error> {
    let key = found(job, output::readable(&state.db, &asker.scope(), job).await)?;
    let mut document = None;
    if filter.rank.is_some() {
        let known = somebody(state, asker, job, &filter).await?;
        if known.framework == Framework::Mpi {
            filter = filter.under_mpirun();
        }
        document = Some(known);
    }
    let streams = page::streams(&state.db, key, &filter).await?;
    if streams.is_empty() {
        let document = match document {
            Some(document) => document,
            None => somebody(state, asker, job, &filter).await?,
        };
        if let Some(fault) = of_a_slot(&filter, &document) {
            return Err(Error::faults(Code::NotFound, vec![fault]));
        }
    }
    Ok(Chosen { key, streams, filter })
}

/// The job's document. Refuses a filter that names what the job does not have.
async fn somebody(state: &WebState, asker: &Asker, job: JobId, filter: &Filter) -> Result<JobDocument, Error> {
    let detail = found(job, jobs_read::get(&state.db, &asker.scope(), job).await)?;
    let document = serde_json::from_str(detail.document.get()).map_err(|error| {
        tracing::error!(%job, %error, "a stored document can't be read");
        Error::internal()
    })?;
    let faults = nobody(filter, detail.job.attempt, &document);
    match faults.is_empty() {
        true => Ok(document),
        false => Err(Error::faults(Code::NotFound, faults)),
    }
}

/// What a filter names that a job of this document, with so many attempts, does not have.
fn nobody(filter: &Filter, attempts: i32, document: &JobDocument) -> Vec<FieldFault> {
    let mut faults: Vec<FieldFault> = filter
        .attempt
        .and_then(|attempt| no_attempt(attempt, attempts))
        .into_iter()
        .collect();
    let roles = || document.roles.iter().map(|role| (role.name.as_str(), role.replicas));
    let named = |name: &str| filter.role.as_ref().is_none_or(|role| role == name);
    let there = roles().map(|(name, replicas)| match replicas {
        1 => format!("{name}-0"),
        many => format!("{name}-0 to {name}-{}", many - 1),
    });
    let hint = || format!("the job has {}", there.clone().collect::<Vec<_>>().join(", "));
    if let Some(role) = filter.role.as_ref().filter(|_| !roles().any(|(name, _)| named(name))) {
        let fault = FieldFault::new("role", "not_found", format!("the job has no role {role}"));
        faults.push(fault.value(role).hint(hint()));
    } else if let Some(index) = filter.index
        && !roles().any(|(name, replicas)| named(name) && index.unsigned_abs() < replicas)
    {
        let role = filter.role.as_deref().unwrap_or("any role");
        let fault = FieldFault::new("index", "not_found", format!("{role} has no replica {index}"));
        faults.push(fault.value(index.to_string()).hint(hint()));
    }
    let ranks = match document.framework {
        Framework::Mpi => rendezvous::mpi_ranks(document),
        _ => document.total_replicas(),
    };
    if let Some(rank) = filter.rank.filter(|rank| rank.unsigned_abs() >= ranks.max(1)) {
        let fault = FieldFault::new("rank", "not_found", format!("the job has no rank {rank}"));
        faults.push(fault.value(rank.to_string()).hint(the_ranks(ranks)));
    }
    faults
}

fn the_ranks(ranks: u32) -> String {
    match ranks {
        0 | 1 => "it has rank 0 alone".to_owned(),
        ranks => format!("it has the ranks 0 to {}", ranks - 1),
    }
}

/// A slot of an MPI job is no process, so no output is its own: the launcher prints what `mpirun`'s ranks say.
fn of_a_slot(filter: &Filter, document: &JobDocument) -> Option<FieldFault> {
    let role = filter.role.as_deref().filter(|role| *role != LAUNCHER)?;
    if document.framework != Framework::Mpi {
        return None;
    }
    let slot = filter
        .index
        .and_then(|index| rendezvous::rank_of_slot(document, role, index.unsigned_abs()));
    let hint = match filter.mpi_rank.or(slot) {
        Some(rank) => format!("ask for rank={rank}, without a role"),
        None => format!("ask for a rank: {}", the_ranks(rendezvous::mpi_ranks(document))),
    };
    let words = format!("what mpirun's ranks print is output of the role {LAUNCHER}");
    Some(FieldFault::new("role", "not_found", words).value(role).hint(hint))
}

fn no_attempt(attempt: i32, attempts: i32) -> Option<FieldFault> {
    if (1..=attempts).contains(&attempt) {
        return None;
    }
    let hint = match attempts {
        0 => "it has none yet".to_owned(),
        1 => "it has attempt 1 alone".to_owned(),
        many => format!("it has the attempts 1 to {many}"),
    };
    let fault = FieldFault::new("attempt", "not_found", format!("the job has no attempt {attempt}"));
    Some(fault.value(attempt.to_string()).hint(hint))
}
