//! `PATCH /api/v1/users/{user}`: rename, promote or disable a person.

use axum::{Json, extract::State};
use serde::Deserialize;
use trainyard_core::model::UserId;
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    error::Problem,
    extract::{Asker, JsonBody, PathOf},
};
use crate::db::users::{User, UserChange};

/// What is left out stays as it is.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangedUser {
    #[schema(min_length = 1, max_length = 128)]
    pub name: Option<String>,
    pub admin: Option<bool>,
    /// A disabled person can't sign in, and their tokens do not hold.
    pub disabled: Option<bool>,
}

/// Renames, promotes or disables a person. The last admin stays one.
#[utoipa::path(
    patch,
    path = "/api/v1/users/{user}",
    tag = "people",
    params(("user" = UserId, Path, description = "The user's id")),
    request_body(content = ChangedUser),
    responses(
        (status = 200, body = User),
        (status = 409, description = "Nobody would be admin any more", body = Problem,
            content_type = "application/problem+json")
    )
)]
pub async fn change_user(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(user): PathOf<UserId>,
    JsonBody(change): JsonBody<ChangedUser>,
) -> Result<Json<User>, Error> {
    let change = UserChange {
        name: change.name,
        admin: change.admin,
        disabled: change.disabled,
    };
    let user = state.actions.update_user(asker.ask(), user, change).await?;
    Ok(Json(user))
}
