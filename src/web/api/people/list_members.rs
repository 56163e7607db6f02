//! `GET /api/v1/teams/{team}/members`: who is in a team.

use axum::{Json, extract::State};
use serde::Serialize;
use trainyard_core::model::TeamId;
use utoipa::ToSchema;

use super::{
    super::super::{
        Error, WebState,
        extract::{Asker, PathOf},
    },
    get_team::seen,
};
use crate::db::teams::{self, Member};

#[derive(Debug, Serialize, ToSchema)]
pub struct MemberList {
    pub items: Vec<Member>,
}

/// Who is in a team, by name.
#[utoipa::path(
    get,
    path = "/api/v1/teams/{team}/members",
    tag = "people",
    params(("team" = TeamId, Path, description = "The team's id")),
    responses((status = 200, body = MemberList))
)]
pub async fn list_members(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(team): PathOf<TeamId>,
) -> Result<Json<MemberList>, Error> {
    seen(&state, &asker, team).await?;
    let items = teams::members(&state.db, &asker.scope(), team).await?;
    Ok(Json(MemberList { items }))
}
