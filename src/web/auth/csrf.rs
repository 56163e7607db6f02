//! Unsafe requests of a browser carry the session's own token: in the header `X-CSRF-Token`, or in the form's field
//! `csrf`. It is checked here, in front of every handler, so none can forget it.

use axum::{
    body::{Body, Bytes},
    extract::Request,
    http::HeaderMap,
};
use data_encoding::BASE64URL_NOPAD;
use subtle::ConstantTimeEq;

use super::super::{Code, Error, WebState, extract, params};

pub const FORM: &str = "application/x-www-form-urlencoded";

/// The request, if it is from our own pages.
pub async fn check(request: Request, csrf: &[u8; 32], state: &WebState) -> Result<Request, Error> {
    if cross_site(request.headers()) {
        return Err(refused());
    }
    let sent = request
        .headers()
        .get("x-csrf-token")
        .and_then(|value| value.to_str().ok())
        .map(str::to_owned);
    if let Some(sent) = sent {
        return if same(&sent, csrf) { Ok(request) } else { Err(refused()) };
    }
    if extract::media_type(request.headers()).as_deref() != Some(FORM) {
        return Err(refused());
    }
    let (parts, body) = request.into_parts();
    let mut copy = Request::new(body);
    *copy.headers_mut() = parts.headers.clone();
    copy.extensions_mut().extend(parts.extensions.clone());
    let body: Bytes = extract::body(copy, state).await?;
    let sent = params::field(&body, "csrf").unwrap_or_default();
    if same(&sent, csrf) {
        Ok(Request::from_parts(parts, Body::from(body)))
    } else {
        Err(refused())
    }
}

/// What browsers say by themselves about where a request came from.
pub fn cross_site(headers: &HeaderMap) -> bool {
    headers
        .get("sec-fetch-site")
        .is_some_and(|site| site == "cross-site" || site == "same-site")
}

fn same(sent: &str, csrf: &[u8; 32]) -> bool {
    let sent = BASE64URL_NOPAD.decode(sent.as_bytes()).unwrap_or_default();
    bool::from(sent.as_slice().ct_eq(csrf.as_slice()))
}

fn refused() -> Error {
    Error::new(
        Code::WrongOrigin,
        "The request did not come from a page of ours, or its page is from another session",
    )
    .hint("load the page again and repeat it")
}
