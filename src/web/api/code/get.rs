//! `GET /api/v1/code/{digest}`: whether an archive is there.

use axum::{Json, extract::State};
use trainyard_core::model::TeamRole;

use super::super::{
    super::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
    },
    lookup,
    secrets::OfTeam,
};
use crate::db::{
    DbError,
    code_uploads::{self, CodeArchive},
};

/// Whether a team has an archive, so that a client need not send it again.
#[utoipa::path(
    get,
    path = "/api/v1/code/{digest}",
    tag = "jobs",
    params(("digest" = String, Path, description = "sha256: and 64 hexadecimal digits"), OfTeam),
    responses((status = 200, body = CodeArchive))
)]
pub async fn get_code(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(digest): PathOf<String>,
    Params(params): Params<OfTeam>,
) -> Result<Json<CodeArchive>, Error> {
    let team = lookup::team_or_only(&state, &asker, params.team.as_deref(), TeamRole::Viewer).await?;
    match code_uploads::about(&state.db, team, &digest).await {
        Err(DbError::NotFound) => Err(Error::not_found("code archive", &digest)),
        other => Ok(Json(other?)),
    }
}
