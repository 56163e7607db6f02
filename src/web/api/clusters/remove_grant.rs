//! `DELETE /api/v1/clusters/{cluster}/grants/{team}`: take a cluster away from a team.

use axum::{extract::State, http::StatusCode};
use trainyard_core::model::{ClusterId, TeamId};

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};

/// Takes a cluster away from a team. What runs there goes on; what waits does not start there any more.
#[utoipa::path(
    delete,
    path = "/api/v1/clusters/{cluster}/grants/{team}",
    tag = "clusters",
    params(
        ("cluster" = ClusterId, Path, description = "The cluster's id"),
        ("team" = TeamId, Path, description = "The team's id")
    ),
    responses((status = 204, description = "Taken away"))
)]
pub async fn remove_grant(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((cluster, team)): PathOf<(ClusterId, TeamId)>,
) -> Result<StatusCode, Error> {
    state.actions.remove_grant(asker.ask(), cluster, team).await?;
    Ok(StatusCode::NO_CONTENT)
}
