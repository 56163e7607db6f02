//! `DELETE /api/v1/jobs/{job}`: archive a job, then hide it.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use trainyard_core::model::JobId;

use super::super::super::{
    Error, WebState,
    error::Problem,
    extract::{Asker, PathOf, if_match},
};
use crate::{actions::wish::Verb, db::jobs_read::JobDetail};

/// Hides a job once its last logs are stored; retention removes it later. A running job is ended first.
#[utoipa::path(
    delete,
    path = "/api/v1/jobs/{job}",
    tag = "jobs",
    params(
        ("job" = JobId, Path, description = "The job's id"),
        ("If-Match" = Option<String>, Header, description = "Only if the job still is this version")
    ),
    responses(
        (status = 202, description = "The wish is written", body = JobDetail),
        (status = 412, description = "The job changed since it was read", body = Problem,
            content_type = "application/problem+json")
    )
)]
pub async fn delete_job(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let detail = state
        .actions
        .wish(asker.ask(), job, Verb::Delete, if_match(&headers))
        .await?;
    Ok(super::with_etag(StatusCode::ACCEPTED, detail))
}
