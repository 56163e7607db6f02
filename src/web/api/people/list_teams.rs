//! `GET /api/v1/teams`: the caller's teams; all of them for admins.

use axum::{Json, extract::State};

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params},
    page::{self, PageParams, TeamList},
};
use crate::db::teams;

/// The caller's teams, by name; all teams for admins.
#[utoipa::path(
    get,
    path = "/api/v1/teams",
    tag = "people",
    params(PageParams),
    responses((status = 200, body = TeamList))
)]
pub async fn list_teams(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<PageParams>,
) -> Result<Json<TeamList>, Error> {
    let limit = page::limit(params.limit)?;
    let after: Option<String> = page::decode(&"teams", params.cursor.as_deref())?;
    let rows = teams::list(&state.db, &asker.scope(), after.as_deref(), limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &"teams", |team| team.name.clone());
    Ok(Json(TeamList { items, next }))
}
