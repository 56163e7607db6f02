//! `GET /api/v1/users`: everybody.

use axum::{Json, extract::State};
use trainyard_core::model::UserId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params},
    page::{self, PageParams, UserList},
};
use crate::db::users;

/// Everybody, newest first.
#[utoipa::path(
    get,
    path = "/api/v1/users",
    tag = "people",
    params(PageParams),
    responses((status = 200, body = UserList))
)]
pub async fn list_users(
    State(state): State<WebState>,
    _: Asker,
    Params(params): Params<PageParams>,
) -> Result<Json<UserList>, Error> {
    let limit = page::limit(params.limit)?;
    let before: Option<UserId> = page::decode(&"users", params.cursor.as_deref())?;
    let rows = users::list(&state.db, before, limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &"users", |user| user.id);
    Ok(Json(UserList { items, next }))
}
