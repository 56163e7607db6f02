//! `GET /api/v1/jobs/{job}/conditions`: what holds of a job now.

use axum::{Json, extract::State};
use trainyard_core::model::JobId;

use super::super::{
    super::{
        Error, WebState,
        extract::{Asker, PathOf},
    },
    nodes::conditions::{ConditionList, view},
};
use crate::db::{conditions, events::Subject};

/// What holds of a job now, besides its phase: hung, degraded, waiting. Every change is also an event.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/conditions",
    tag = "jobs",
    params(("job" = JobId, Path, description = "The job's id")),
    responses((status = 200, body = ConditionList))
)]
pub async fn list_job_conditions(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
) -> Result<Json<ConditionList>, Error> {
    super::home(&state, &asker, job).await?;
    Ok(Json(view(conditions::of(&state.db, Subject::Job(job)).await?)))
}
