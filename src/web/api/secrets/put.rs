//! `PUT /api/v1/secrets/{name}`: put a secret.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use trainyard_core::model::{SHORTEST_MASKED, TeamRole};
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
    #[schema(write_only, value_type = BTreeMap<String, String>, example = json!({ "api-key": "s3cret" }))]
    pub values: BTreeMap<String, SecretString>,
}

/// A secret that was put.
#[derive(Debug, Serialize, ToSchema)]
pub struct PutSecret {
    #[serde(flatten)]
    pub secret: Secret,
    /// What to know about it, in sentences: values that are too short to be masked in output.
    pub warnings: Vec<String>,
}

/// Puts a secret, or its next version. Documents refer to it by `secretRef`; nobody can read it back.
#[utoipa::path(
    put,
    path = "/api/v1/secrets/{name}",
    tag = "secrets",
    params(("name" = String, Path, description = "The secret's name within its team"), OfTeam),
    request_body(content = NewSecret),
    responses((status = 200, body = PutSecret))
)]
pub async fn put_secret(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(name): PathOf<String>,
    Params(params): Params<OfTeam>,
    JsonBody(new): JsonBody<NewSecret>,
) -> Result<Json<PutSecret>, Error> {
    let team = lookup::team_or_only(&state, &asker, params.team.as_deref(), TeamRole::Member).await?;
    let secret = state.actions.put_secret(asker.ask(), team, &name, &new.values).await?;
    let short = (new.values.iter()).filter(|(_, value)| value.expose_secret().len() < SHORTEST_MASKED);
    let warnings = short.map(|(key, _)| {
        format!(
            "The value of '{key}' has fewer than {SHORTEST_MASKED} bytes, so it is not masked where a job prints it; \
             use a longer one"
        )
    });
    Ok(Json(PutSecret {
        secret,
        warnings: warnings.collect(),
    }))
}
