//! `POST /api/v1/jobs/{job}/rerun`: the same document again, as a new job.

use axum::{extract::State, http::HeaderMap, response::Response};
use trainyard_core::model::JobId;

use super::{
    super::super::{
        Error, WebState,
        error::Problem,
        extract::{Asker, PathOf, idempotency_key},
    },
    create::{CreatedJob, created},
};

/// Submits the same document as a new job. It is checked anew: a secret or cluster may be gone by now.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/rerun",
    tag = "jobs",
    params(
        ("job" = JobId, Path, description = "The job to run again"),
        ("Idempotency-Key" = Option<String>, Header, description = "Drawn by the client; 24 hours", max_length = 255)
    ),
    responses(
        (status = 201, description = "The new job", body = CreatedJob,
            headers(("location" = String, description = "The job"))),
        (status = 422, description = "The document can't be taken any more; see errors", body = Problem,
            content_type = "application/problem+json")
    )
)]
pub async fn rerun_job(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let submitted = state
        .actions
        .rerun_job(asker.ask(), job, idempotency_key(&headers)?)
        .await?;
    Ok(created(submitted))
}
