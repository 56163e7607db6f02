//! `GET /api/v1/teams/{team}`: one team.

use axum::{Json, extract::State};
use trainyard_core::model::TeamId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::{
    DbError,
    teams::{self, Team},
};

/// One team.
#[utoipa::path(
    get,
    path = "/api/v1/teams/{team}",
    tag = "people",
    params(("team" = TeamId, Path, description = "The team's id")),
    responses((status = 200, body = Team))
)]
pub async fn get_team(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(team): PathOf<TeamId>,
) -> Result<Json<Team>, Error> {
    Ok(Json(seen(&state, &asker, team).await?))
}

/// The team, if the caller may see it.
pub(super) async fn seen(state: &WebState, asker: &Asker, team: TeamId) -> Result<Team, Error> {
    teams::get(&state.db, &asker.scope(), team)
        .await
        .map_err(|error| match error {
            DbError::NotFound => Error::not_found("team", &team.to_string()),
            other => other.into(),
        })
}
