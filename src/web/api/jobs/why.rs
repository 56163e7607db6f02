//! `GET /api/v1/jobs/{job}/why`: why a job does not run.

use axum::{Json, extract::State};
use trainyard_core::model::JobId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
    why::{self, WhyAnswer},
};

/// Why the job does not run: one sentence with the next step, and the layers behind it with their numbers.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/why",
    tag = "jobs",
    params(("job" = JobId, Path, description = "The job's id")),
    responses((status = 200, body = WhyAnswer))
)]
pub async fn get_why(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
) -> Result<Json<WhyAnswer>, Error> {
    Ok(Json(why::answer(&state, &asker.scope(), job).await?))
}
