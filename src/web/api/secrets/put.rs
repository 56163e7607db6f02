//! `PUT /api/v1/secrets/{name}`: put a secret.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use secrecy::SecretString;
use serde::Deserialize;
use trainyard_core::model::TeamRole;
use utoipa::ToSchema;

use super::{
    super::{
        super::{
            Error, WebState,
            extract::{Asker, JsonBody, Params, PathOf},
        },
        lookup,
    },
    OfTeam,
};
use crate::db::secrets::Secret;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewSecret {
    /// All keys with their values. What was there before is replaced whole.
    #[schema(value_type = BTreeMap<String, String>, example = json!({ "api-key": "s3cret" }))]
    pub values: BTreeMap<String, SecretString>,
}

/// Puts a secret, or its next version. Documents refer to it by `secretRef`; nobody can read it back.
#[utoipa::path(
    put,
    path = "/api/v1/secrets/{name}",
    tag = "secrets",
    params(("name" = String, Path, description = "The secret's name within its team"), OfTeam),
    request_body(content = NewSecret),
    responses((status = 200, body = Secret))
)]
pub async fn put_secret(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(name): PathOf<String>,
    Params(params): Params<OfTeam>,
    JsonBody(new): JsonBody<NewSecret>,
) -> Result<Json<Secret>, Error> {
    let team = lookup::team_or_only(&state, &asker, params.team.as_deref(), TeamRole::Member).await?;
    Ok(Json(
        state.actions.put_secret(asker.ask(), team, &name, &new.values).await?,
    ))
}
