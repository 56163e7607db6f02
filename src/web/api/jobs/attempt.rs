//! `GET /api/v1/jobs/{job}/attempts/{number}`: one attempt.

use axum::{Json, extract::State};
use trainyard_core::model::JobId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::{
    DbError,
    attempts_read::{self, Attempt},
};

/// One attempt by its number.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/attempts/{number}",
    tag = "attempts",
    params(
        ("job" = JobId, Path, description = "The job's id"),
        ("number" = i32, Path, description = "From 1", minimum = 1)
    ),
    responses((status = 200, body = Attempt))
)]
pub async fn get_attempt(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((job, number)): PathOf<(JobId, i32)>,
) -> Result<Json<Attempt>, Error> {
    let home = super::home(&state, &asker, job).await?;
    match attempts_read::attempt(&state.db, &home, number).await {
        Err(DbError::NotFound) => Err(Error::not_found("attempt", &number.to_string())),
        other => Ok(Json(other?)),
    }
}
