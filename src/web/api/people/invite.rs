//! `POST /api/v1/users/{user}/sign-in-link`: a one-time link for a person.

use axum::{Json, extract::State, http::StatusCode};
use chrono::{DateTime, Utc};
use secrecy::ExposeSecret;
use serde::Serialize;
use trainyard_core::model::UserId;
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};

/// A link to be handed to the person. It works once, and is shown once.
#[derive(Serialize, ToSchema)]
pub struct SignInLink {
    pub url: String,
    pub expires_at: DateTime<Utc>,
}

/// Makes a one-time link with which a person signs in. It holds for 15 minutes.
#[utoipa::path(
    post,
    path = "/api/v1/users/{user}/sign-in-link",
    tag = "people",
    params(("user" = UserId, Path, description = "The user's id")),
    responses((status = 201, body = SignInLink))
)]
pub async fn invite_user(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(user): PathOf<UserId>,
) -> Result<(StatusCode, Json<SignInLink>), Error> {
    let (secret, expires_at) = state.actions.invite(asker.ask(), user).await?;
    let url = format!(
        "{}/sign-in/{}",
        state.settings.public_url.trim_end_matches('/'),
        secret.expose_secret()
    );
    Ok((StatusCode::CREATED, Json(SignInLink { url, expires_at })))
}
