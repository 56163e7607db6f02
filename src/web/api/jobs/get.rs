//! `GET /api/v1/jobs/{job}`: one job with its document.

use axum::{
    extract::State,
    http::{HeaderMap, StatusCode},
    response::Response,
};
use trainyard_core::model::{JobId, Phase};

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::jobs_read::{self, JobDetail};

/// One job with its document. Its version is the `ETag`; `If-None-Match` saves reading it again, except while it runs:
/// then its steps go on without a new version.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}",
    tag = "jobs",
    params(("job" = JobId, Path, description = "The job's id")),
    responses(
        (status = 200, body = JobDetail, headers(("etag" = String, description = "Its version"))),
        (status = 304, description = "The version in If-None-Match is the newest")
    )
)]
pub async fn get_job(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let detail = super::found(job, jobs_read::get(&state.db, &asker.scope(), job).await)?;
    let etag = detail.job.etag();
    // Steps make no new version, so that they stand in nobody's way who wants to change the job; but they are news.
    let moves = matches!(detail.job.phase, Phase::Starting | Phase::Running | Phase::Stopping);
    if super::has_already(&headers, &etag) && !moves {
        return Ok(super::not_modified(&etag));
    }
    Ok(super::with_etag(StatusCode::OK, detail))
}
