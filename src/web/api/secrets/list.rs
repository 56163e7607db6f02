//! `GET /api/v1/secrets`: a team's secrets by name, without values.

use axum::{Json, extract::State};
use serde::Deserialize;
use trainyard_core::model::TeamRole;
use utoipa::IntoParams;

use super::super::{
    super::{
        Error, WebState,
        extract::{Asker, Params},
        page::{self, SecretList},
    },
    lookup,
};
use crate::db::secrets;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SecretParams {
    /// The team, by id or name. Left out: the only one that this can be about.
    pub team: Option<String>,
    /// At most this many. Left out: 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

/// A team's secrets by name: which keys they have, never a value.
#[utoipa::path(
    get,
    path = "/api/v1/secrets",
    tag = "secrets",
    params(SecretParams),
    responses((status = 200, body = SecretList))
)]
pub async fn list_secrets(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<SecretParams>,
) -> Result<Json<SecretList>, Error> {
    let limit = page::limit(params.limit)?;
    let team = lookup::team_or_only(&state, &asker, params.team.as_deref(), TeamRole::Viewer).await?;
    let after: Option<String> = page::decode(&team, params.cursor.as_deref())?;
    let rows = secrets::list(&state.db, team, after.as_deref(), limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &team, |secret| secret.name.clone());
    Ok(Json(SecretList { items, next }))
}
