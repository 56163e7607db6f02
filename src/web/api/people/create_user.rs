//! `POST /api/v1/users`: add a person.

use axum::{Json, extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, JsonBody},
};
use crate::db::users::User;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewUser {
    #[schema(min_length = 1, max_length = 128, example = "Ada Lovelace")]
    pub name: String,
    /// May act on the installation.
    pub admin: Option<bool>,
}

/// Adds a person. They sign in with a link: `POST /api/v1/users/{user}/sign-in-link`.
#[utoipa::path(
    post,
    path = "/api/v1/users",
    tag = "people",
    request_body(content = NewUser),
    responses((status = 201, body = User))
)]
pub async fn create_user(
    State(state): State<WebState>,
    asker: Asker,
    JsonBody(new): JsonBody<NewUser>,
) -> Result<(StatusCode, Json<User>), Error> {
    let admin = new.admin.unwrap_or_default();
    let user = state.actions.create_user(asker.ask(), &new.name, admin).await?;
    Ok((StatusCode::CREATED, Json(user)))
}
