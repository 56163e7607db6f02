//! Who is it: a token in the `Authorization` header, or a browser's cookie. What was found is kept for some seconds and
//! dropped when access changes anywhere.

use std::sync::Arc;

use axum::http::{HeaderMap, Method, header};
use data_encoding::BASE64URL_NOPAD;

use super::{Access, Error, Load, Routes, WebState};
use crate::{
    actions::tokens,
    db::access::{self, Caller, Via},
    job_token,
};

pub mod cache;
pub mod cookie;
pub mod csrf;
pub mod sign_in;

/// The caller, if the request carries a token or a cookie that holds. A token that does not hold is refused even where
/// a cookie would: who sends one means it.
pub async fn authenticate(state: &WebState, headers: &HeaderMap) -> Result<Option<Arc<Caller>>, Error> {
    if let Some(value) = headers.get(header::AUTHORIZATION) {
        let token = value.to_str().ok().and_then(|value| {
            let (scheme, token) = value.split_once(' ')?;
            scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
        });
        return match token {
            Some(token) => by_token(state, token).await,
            None => Ok(None),
        };
    }
    match cookie::read(headers, &state.settings.public_url) {
        Some(secret) => by_cookie(state, &secret).await,
        None => Ok(None),
    }
}

async fn by_token(state: &WebState, token: &str) -> Result<Option<Arc<Caller>>, Error> {
    let now = state.actions.now();
    let hash = tokens::hash(token);
    let found = match state.access.get(&hash) {
        Some(caller) => Some(caller),
        None => {
            let loading = state.access.begin();
            let caller = match job_token::open(&state.actions.keys.ring(), token) {
                Some(attempt) => access::by_attempt(&state.db, attempt).await?,
                None => access::by_token(&state.db, &hash, now).await?,
            };
            caller.map(|caller| state.access.put(loading, hash, caller))
        }
    };
    let found = found.filter(|caller| !caller.expired(now));
    if let Some(Via::Token { id, .. }) = found.as_ref().map(|caller| &caller.via) {
        state.access.used_token(*id, now);
    }
    Ok(found)
}

async fn by_cookie(state: &WebState, secret: &str) -> Result<Option<Arc<Caller>>, Error> {
    let now = state.actions.now();
    let hash = tokens::hash(secret);
    let found = match state.access.get(&hash) {
        Some(caller) => Some(caller),
        None => {
            let loading = state.access.begin();
            let caller = access::by_session(&state.db, &hash, now).await?;
            caller.map(|caller| state.access.put(loading, hash, caller))
        }
    };
    let found = found.filter(|caller| !caller.expired(now));
    if found.is_some() {
        state.access.used_session(hash, now);
    }
    Ok(found)
}

/// The token that forms and scripts of a signed-in browser send back. `None`: no browser.
pub fn csrf_of(caller: &Caller) -> Option<String> {
    match &caller.via {
        Via::Session { csrf, .. } => Some(BASE64URL_NOPAD.encode(csrf)),
        _ => None,
    }
}

pub(super) fn register(routes: Routes) -> Routes {
    routes
        .page(
            Access::Public,
            Load::Bounded,
            Method::POST,
            "/sign-in",
            sign_in::sign_in,
        )
        .page(
            Access::SignedIn,
            Load::Bounded,
            Method::POST,
            "/sign-out",
            sign_in::sign_out,
        )
}
