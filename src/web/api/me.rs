//! `GET /api/v1/me`: who the caller is and what they may do.

use axum::Json;
use serde::Serialize;
use trainyard_core::model::{TeamId, TeamRole, TokenId, UserId};
use utoipa::ToSchema;

use super::super::extract::Asker;

#[derive(Debug, Serialize, ToSchema)]
pub struct Me {
    pub id: UserId,
    pub name: String,
    /// May act on the installation, with this token.
    pub admin: bool,
    pub teams: Vec<MyTeam>,
    /// The token used. `null`: a browser's session.
    pub token: Option<TokenId>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct MyTeam {
    pub id: TeamId,
    pub name: String,
    /// The token's own limits applied.
    pub role: TeamRole,
}

/// Who the caller is.
#[utoipa::path(get, path = "/api/v1/me", tag = "people", responses((status = 200, body = Me)))]
pub async fn get_me(asker: Asker) -> Json<Me> {
    let caller = &asker.caller;
    let actor = &caller.actor;
    let teams = actor.teams.iter().map(|(id, role)| MyTeam {
        id: *id,
        name: caller.team_names.get(id).cloned().unwrap_or_default(),
        role: *role,
    });
    Json(Me {
        id: actor.user,
        name: actor.name.clone(),
        admin: actor.admin,
        teams: teams.collect(),
        token: actor.token,
    })
}
