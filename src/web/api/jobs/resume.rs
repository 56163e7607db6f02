//! `POST /api/v1/jobs/{job}/resume`: let a suspended job go on.

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

/// Lets a suspended job wait for its turn again; it goes on from its last checkpoint.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/resume",
    tag = "jobs",
    params(
        ("job" = JobId, Path, description = "The job's id"),
        ("If-Match" = Option<String>, Header, description = "Only if the job still is this version")
    ),
    responses(
        (status = 202, description = "The wish is written", body = JobDetail),
        (status = 409, description = "The job has ended, or an earlier wish stands in the way", body = Problem,
            content_type = "application/problem+json"),
        (status = 412, description = "The job changed since it was read", body = Problem,
            content_type = "application/problem+json")
    )
)]
pub async fn resume_job(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let detail = state
        .actions
        .wish(asker.ask(), job, Verb::Resume, if_match(&headers))
        .await?;
    Ok(super::with_etag(StatusCode::ACCEPTED, detail))
}
