//! `DELETE /api/v1/secrets/{name}`: forget a secret.

use axum::{extract::State, http::StatusCode};
use trainyard_core::model::TeamRole;

use super::{
    super::{
        super::{
            Error, WebState,
            extract::{Asker, Params, PathOf},
        },
        lookup,
    },
    OfTeam,
};

/// Forgets a secret's values for good. Jobs that refer to it do not start any more.
#[utoipa::path(
    delete,
    path = "/api/v1/secrets/{name}",
    tag = "secrets",
    params(("name" = String, Path, description = "The secret's name within its team"), OfTeam),
    responses((status = 204, description = "Forgotten"))
)]
pub async fn delete_secret(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(name): PathOf<String>,
    Params(params): Params<OfTeam>,
) -> Result<StatusCode, Error> {
    let team = lookup::team_or_only(&state, &asker, params.team.as_deref(), TeamRole::Member).await?;
    state.actions.delete_secret(asker.ask(), team, &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
