//! `GET /api/v1/jobs/{job}/attempts`: a job's attempts, the newest first.

use axum::{Json, extract::State};
use trainyard_core::model::JobId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params, PathOf},
    page::{self, AttemptList, PageParams},
};
use crate::db::attempts_read;

/// A job's attempts, the newest first.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/attempts",
    tag = "attempts",
    params(("job" = JobId, Path, description = "The job's id"), PageParams),
    responses((status = 200, body = AttemptList))
)]
pub async fn list_attempts(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<PageParams>,
) -> Result<Json<AttemptList>, Error> {
    let limit = page::limit(params.limit)?;
    let before: Option<i32> = page::decode(&job, params.cursor.as_deref())?;
    let home = super::home(&state, &asker, job).await?;
    let rows = attempts_read::attempts(&state.db, &home, before, limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &job, |attempt| attempt.number);
    Ok(Json(AttemptList { items, next }))
}
