//! `GET /api/v1/jobs/{job}/checkpoints`: the checkpoints that were reported, the newest first.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use trainyard_core::model::JobId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params, PathOf},
    page::{self, CheckpointList, PageParams},
};
use crate::db::reports;

/// The checkpoints that were reported, the newest first.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/checkpoints",
    tag = "metrics",
    params(("job" = JobId, Path, description = "The job's id"), PageParams),
    responses((status = 200, body = CheckpointList))
)]
pub async fn list_checkpoints(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<PageParams>,
) -> Result<Json<CheckpointList>, Error> {
    let limit = page::limit(params.limit)?;
    let before: Option<(DateTime<Utc>, i64)> = page::decode(&job, params.cursor.as_deref())?;
    let home = super::home(&state, &asker, job).await?;
    let rows = reports::checkpoints(&state.db, &home, before, limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &job, |checkpoint| (checkpoint.at, checkpoint.step));
    Ok(Json(CheckpointList { items, next }))
}
