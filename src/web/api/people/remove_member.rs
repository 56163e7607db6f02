//! `DELETE /api/v1/teams/{team}/members/{user}`: take a person out of a team.

use axum::{extract::State, http::StatusCode};
use trainyard_core::model::{TeamId, UserId};

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};

/// Takes a person out of a team. Their jobs stay with the team.
#[utoipa::path(
    delete,
    path = "/api/v1/teams/{team}/members/{user}",
    tag = "people",
    params(
        ("team" = TeamId, Path, description = "The team's id"),
        ("user" = UserId, Path, description = "The user's id")
    ),
    responses((status = 204, description = "Taken out"))
)]
pub async fn remove_member(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((team, user)): PathOf<(TeamId, UserId)>,
) -> Result<StatusCode, Error> {
    state.actions.remove_member(asker.ask(), team, user).await?;
    Ok(StatusCode::NO_CONTENT)
}
