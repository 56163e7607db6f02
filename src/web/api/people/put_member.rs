//! `PUT /api/v1/teams/{team}/members/{user}`: add a person to a team, or change their role.

use axum::{Json, extract::State};
use serde::Deserialize;
use trainyard_core::model::{TeamId, TeamRole, UserId};
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, JsonBody, PathOf},
};
use crate::db::teams::Member;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMember {
    pub role: TeamRole,
}

/// Adds a person to a team, or changes their role in it.
#[utoipa::path(
    put,
    path = "/api/v1/teams/{team}/members/{user}",
    tag = "people",
    params(
        ("team" = TeamId, Path, description = "The team's id"),
        ("user" = UserId, Path, description = "The user's id")
    ),
    request_body(content = NewMember, example = json!({ "role": "member" })),
    responses((status = 200, body = Member))
)]
pub async fn put_member(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((team, user)): PathOf<(TeamId, UserId)>,
    JsonBody(new): JsonBody<NewMember>,
) -> Result<Json<Member>, Error> {
    let member = state.actions.put_member(asker.ask(), team, user, new.role).await?;
    Ok(Json(member))
}
