//! `GET /api/v1/checks/{check}`: a question and its answer.

use axum::{Json, extract::State};
use trainyard_core::model::CheckId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::{
    DbError,
    checks::{self, Check},
};

/// A question and, once a worker gave one, its answer. For whoever asked it, and admins.
#[utoipa::path(
    get,
    path = "/api/v1/checks/{check}",
    tag = "clusters",
    params(("check" = CheckId, Path, description = "The check's id")),
    responses((status = 200, body = Check))
)]
pub async fn get_check(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(check): PathOf<CheckId>,
) -> Result<Json<Check>, Error> {
    let actor = &asker.caller.actor;
    let asked_by = (!actor.admin).then_some(actor.user);
    match checks::get(&state.db, asked_by, check).await {
        Err(DbError::NotFound) => Err(Error::not_found("check", &check.to_string())),
        other => Ok(Json(other?)),
    }
}
