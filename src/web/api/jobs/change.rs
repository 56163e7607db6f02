//! `PATCH /api/v1/jobs/{job}`: change a job's priority.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use serde::Deserialize;
use trainyard_core::model::JobId;
use utoipa::ToSchema;

use super::super::super::{
    Code, Error, WebState,
    error::Problem,
    extract::{Asker, JsonBody, PathOf, if_match},
};
use crate::db::jobs_read::JobDetail;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JobChange {
    /// Higher starts first.
    #[schema(minimum = -1000, maximum = 1000, example = 100)]
    pub priority: i32,
}

/// Moves a job within its queue. `If-Match` has to name the version that was read, since two people may pull in two
/// directions.
#[utoipa::path(
    patch,
    path = "/api/v1/jobs/{job}",
    tag = "jobs",
    params(
        ("job" = JobId, Path, description = "The job's id"),
        ("If-Match" = String, Header, description = "The version that was read, or *")
    ),
    request_body(content = JobChange),
    responses(
        (status = 200, body = JobDetail),
        (status = 409, description = "The job has ended", body = Problem, content_type = "application/problem+json"),
        (status = 412, description = "The job changed since it was read", body = Problem,
            content_type = "application/problem+json"),
        (status = 428, description = "If-Match is missing", body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn change_job(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    headers: HeaderMap,
    JsonBody(change): JsonBody<JobChange>,
) -> Result<Response, Error> {
    let if_match = if_match(&headers).ok_or_else(|| {
        Error::new(
            Code::IfMatchRequired,
            "A change has to name the version that it changes",
        )
        .hint("send the ETag of the job that you read as If-Match, or * to change whatever it is now")
    })?;
    let detail = state
        .actions
        .set_priority(asker.ask(), job, change.priority, if_match)
        .await?;
    Ok(super::with_etag(StatusCode::OK, detail))
}
