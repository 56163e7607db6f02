//! `GET /api/v1/users/{user}`: one person.

use axum::{Json, extract::State};
use trainyard_core::model::UserId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::{
    DbError,
    users::{self, User},
};

/// One person.
#[utoipa::path(
    get,
    path = "/api/v1/users/{user}",
    tag = "people",
    params(("user" = UserId, Path, description = "The user's id")),
    responses((status = 200, body = User))
)]
pub async fn get_user(
    State(state): State<WebState>,
    _: Asker,
    PathOf(user): PathOf<UserId>,
) -> Result<Json<User>, Error> {
    match users::get(&state.db, user).await {
        Err(DbError::NotFound) => Err(Error::not_found("user", &user.to_string())),
        other => Ok(Json(other?)),
    }
}
