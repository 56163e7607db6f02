//! `POST /sign-in` with a link's secret part, `POST /sign-out`. The page with the button is among the pages.

use axum::{
    extract::{Request, State},
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

use super::{
    super::{Error, WebState, error::Code, extract, extract::Asker, guard, params},
    cookie, csrf,
};
use crate::actions::sign_in::SESSION_LIFE;

/// Uses a link up, and sends the browser on to where it wanted to go.
pub async fn sign_in(State(state): State<WebState>, request: Request) -> Result<Response, Error> {
    let address = guard::address(&request);
    if csrf::cross_site(request.headers()) {
        return Err(Error::new(
            Code::WrongOrigin,
            "The request did not come from a page of ours",
        ));
    }
    let id = request.extensions().get::<extract::RequestId>().map(|id| id.0.clone());
    let body = extract::body(request, &state).await?;
    // Whoever asks, the database is asked no more often than by anybody who is known.
    state.rates.take(address)?;
    let secret = params::field(&body, "link").unwrap_or_default();
    let session = state
        .actions
        .sign_in(&secret, id.as_deref().unwrap_or("unknown"))
        .await?;
    let Some(session) = session else {
        // Only who tries links is slowed down: behind a proxy everybody comes from its address.
        state.sign_in_rates.take(address)?;
        return Err(Error::new(
            Code::Unauthenticated,
            "This sign-in link is not good any more: it was used, is too old, or was cut",
        )
        .hint("`trainyard open` prints a new one"));
    };
    let public_url = &state.settings.public_url;
    let mut response = on_to(&local(params::field(&body, "next").as_deref()));
    if let Some(cookie) = cookie::set(&session.cookie, SESSION_LIFE.num_seconds(), public_url) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

/// Closes the session, here and in the database.
pub async fn sign_out(State(state): State<WebState>, asker: Asker, request: Request) -> Result<Response, Error> {
    let public_url = &state.settings.public_url;
    if let Some(secret) = cookie::read(request.headers(), public_url) {
        state.actions.sign_out(asker.ask(), &secret).await?;
    }
    let mut response = on_to("/sign-in");
    if let Some(cookie) = cookie::clear(public_url) {
        response.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    Ok(response)
}

fn on_to(path: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let location = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(header::LOCATION, location);
    response
}

/// A path of ours, and nothing that a browser could take for another host.
fn local(next: Option<&str>) -> String {
    match next {
        Some(next) if next.starts_with('/') && !next.starts_with("//") && !next.contains(['\\', '\r', '\n']) => {
            next.to_owned()
        }
        _ => "/".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere_after_signing_in() {
        assert_eq!(local(Some("/jobs?team=a")), "/jobs?team=a");
        for wrong in ["//evil.example", "https://evil.example", "/\\evil.example", "", "jobs"] {
            assert_eq!(local(Some(wrong)), "/", "{wrong}");
        }
    }
}
