//! `POST /api/v1/teams`: make a team.

use axum::{Json, extract::State, http::StatusCode};
use serde::Deserialize;
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    error::Problem,
    extract::{Asker, JsonBody},
};
use crate::db::teams::Team;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewTeam {
    /// Goes into documents and addresses.
    #[schema(pattern = "^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$", example = "vision-research")]
    pub name: String,
}

/// Makes a team, without members. It may use no cluster until it is granted one.
#[utoipa::path(
    post,
    path = "/api/v1/teams",
    tag = "people",
    request_body(content = NewTeam),
    responses(
        (status = 201, body = Team),
        (status = 409, description = "The name is taken", body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn create_team(
    State(state): State<WebState>,
    asker: Asker,
    JsonBody(new): JsonBody<NewTeam>,
) -> Result<(StatusCode, Json<Team>), Error> {
    Ok((
        StatusCode::CREATED,
        Json(state.actions.create_team(asker.ask(), &new.name).await?),
    ))
}
