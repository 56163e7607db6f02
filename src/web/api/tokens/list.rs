//! `GET /api/v1/tokens`: the caller's tokens.

use axum::{Json, extract::State};
use serde::Deserialize;
use trainyard_core::model::TokenId;
use utoipa::IntoParams;

use super::super::super::{
    Code, Error, WebState,
    extract::{Asker, Params},
    page::{self, TokenList},
};
use crate::db::tokens;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct TokenParams {
    /// Everybody's, for admins.
    #[serde(default)]
    pub all: bool,
    /// At most this many. Left out: 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

/// The caller's tokens, newest first, without what makes them work.
#[utoipa::path(
    get,
    path = "/api/v1/tokens",
    tag = "people",
    params(TokenParams),
    responses((status = 200, body = TokenList))
)]
pub async fn list_tokens(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<TokenParams>,
) -> Result<Json<TokenList>, Error> {
    let limit = page::limit(params.limit)?;
    let actor = &asker.caller.actor;
    if params.all && !actor.admin {
        return Err(Error::new(
            Code::Forbidden,
            "Everybody's tokens are listed for admins only",
        ));
    }
    let user = (!params.all).then_some(actor.user);
    let before: Option<TokenId> = page::decode(&user, params.cursor.as_deref())?;
    let rows = tokens::list(&state.db, user, before, limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &user, |token| token.id);
    Ok(Json(TokenList { items, next }))
}
