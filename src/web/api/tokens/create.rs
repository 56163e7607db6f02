//! `POST /api/v1/tokens`: make a token.

use axum::{Json, extract::State, http::StatusCode};
use chrono::{DateTime, Utc};
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use trainyard_core::model::{TeamId, TokenId};
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, JsonBody},
};
use crate::actions::tokens::TokenWish;

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// What uses it.
    #[schema(min_length = 1, max_length = 128, example = "nightly-evaluation")]
    pub name: String,
    pub role: TokenRole,
    /// The only team that it reaches. Left out: every team of its user.
    pub team: Option<TeamId>,
    /// Left out: as long as the token that asks for it, and otherwise without an end.
    pub expires_at: Option<DateTime<Utc>>,
}

/// At most this much, whatever its user may do.
#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TokenRole {
    Viewer,
    Member,
    Owner,
    Admin,
}

/// The only time that the token itself is shown.
#[derive(Serialize, ToSchema)]
pub struct ShownToken {
    pub id: TokenId,
    /// Keep it: nobody can show it again.
    #[schema(example = "ty_...")]
    pub token: String,
    pub created_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
}

/// Makes a token of the caller's. It is shown in this answer and never again; a token never makes a stronger one, and
/// what it made ends when it is revoked.
#[utoipa::path(
    post,
    path = "/api/v1/tokens",
    tag = "people",
    request_body(content = NewToken),
    responses((status = 201, body = ShownToken))
)]
pub async fn create_token(
    State(state): State<WebState>,
    asker: Asker,
    JsonBody(new): JsonBody<NewToken>,
) -> Result<(StatusCode, Json<ShownToken>), Error> {
    let role = match new.role {
        TokenRole::Viewer => "viewer",
        TokenRole::Member => "member",
        TokenRole::Owner => "owner",
        TokenRole::Admin => "admin",
    };
    let wish = TokenWish {
        name: new.name,
        team: new.team,
        role: role.to_owned(),
        expires_at: new.expires_at,
    };
    let made = state.actions.create_token(asker.ask(), &wish).await?;
    let shown = ShownToken {
        id: made.id,
        token: made.shown.expose_secret().to_owned(),
        created_at: made.created_at,
        expires_at: made.expires_at,
    };
    Ok((StatusCode::CREATED, Json(shown)))
}
