//! Jobs and everything that belongs to one.

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::{
    Json,
    response::{IntoResponse, Response},
};
use serde::Serialize;
use trainyard_core::model::JobId;

use super::super::{Error, WebState, extract::Asker};
use crate::db::{
    DbError,
    jobs_read::{self, Home, JobDetail},
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

/// The attempt that is meant: the one named, or the newest.
fn attempt_or_newest(home: &Home, attempt: Option<i32>) -> i32 {
    attempt.unwrap_or(home.attempt)
}
