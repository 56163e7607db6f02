//! `DELETE /api/v1/tokens/{token}`: end a token.

use axum::{extract::State, http::StatusCode};
use trainyard_core::model::TokenId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};

/// Ends a token for good, and all that it made, everywhere within seconds: one's own, or anybody's for admins.
#[utoipa::path(
    delete,
    path = "/api/v1/tokens/{token}",
    tag = "people",
    params(("token" = TokenId, Path, description = "The token's id")),
    responses((status = 204, description = "Ended"))
)]
pub async fn revoke_token(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(token): PathOf<TokenId>,
) -> Result<StatusCode, Error> {
    state.actions.revoke_token(asker.ask(), token).await?;
    Ok(StatusCode::NO_CONTENT)
}
