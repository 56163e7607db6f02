//! `POST /api/v1/jobs/{job}/checkpoints`: a job says where its checkpoint lies.

use axum::{Json, extract::State, http::StatusCode};
use serde::Deserialize;
use trainyard_core::model::JobId;
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    error::Problem,
    extract::{Asker, JsonBody, PathOf},
};
use crate::db::reports::Checkpoint;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCheckpoint {
    #[schema(minimum = 0, example = 120)]
    pub step: i64,
    /// Where the next attempt finds it.
    #[schema(min_length = 1, max_length = 1024, example = "/checkpoints/120")]
    pub path: String,
}

/// Reports a checkpoint of the newest attempt. The next attempt gets the path of the last one as
/// `TRAINYARD_RESUME_FROM`. For the job's own token, and members of its team.
#[utoipa::path(
    post,
    path = "/api/v1/jobs/{job}/checkpoints",
    tag = "metrics",
    params(("job" = JobId, Path, description = "The job's id")),
    request_body(content = NewCheckpoint),
    responses(
        (status = 201, body = Checkpoint),
        (status = 409, description = "The job has ended or has not started", body = Problem,
            content_type = "application/problem+json")
    )
)]
pub async fn report_checkpoint(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    JsonBody(new): JsonBody<NewCheckpoint>,
) -> Result<(StatusCode, Json<Checkpoint>), Error> {
    let checkpoint = state
        .actions
        .report_checkpoint(asker.ask(), job, new.step, &new.path)
        .await?;
    Ok((StatusCode::CREATED, Json(checkpoint)))
}
