//! In front of every route: is it registered, is there a common language, is there room, who is it, may they come in,
//! and did the request come from our own pages. Everything that is not allowed here is refused.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, HttpBody},
    extract::{ConnectInfo, MatchedPath, Request, State},
    http::{HeaderMap, Method, header},
    middleware::Next,
    response::{IntoResponse, Response},
};
use tokio::sync::OwnedSemaphorePermit;
use trainyard_core::model::TeamRole;

use super::{
    Access, Code, Error, Load, Route, Table, WebState, accept,
    api::code::upload,
    auth,
    extract::{self, media_type},
    rate::Who,
};
use crate::db::access::{Caller, Via};

/// So long a page is waited for. A database that stands still, and is not gone, answers nothing at all.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Clone)]
pub struct Guard {
    pub state: WebState,
    pub table: Arc<Table>,
}

pub async fn guard(State(guard): State<Guard>, request: Request, next: Next) -> Response {
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let mut response = match in_time(&guard, request, matched.as_ref(), next).await {
        Ok(response) => response,
        Err(error) => error.into_response(),
    };
    // For the figures, which are kept by route and not by address.
    if let Some(matched) = matched {
        response.extensions_mut().insert(matched);
    }
    response
}

/// [`admit`], but reading a page ends after a while. What changes something is left to its end, since nobody could tell
/// whether it was done.
async fn in_time(
    guard: &Guard,
    request: Request,
    matched: Option<&MatchedPath>,
    next: Next,
) -> Result<Response, Error> {
    let is_page = request.method().is_safe() && !request.uri().path().starts_with("/api/");
    let answer = admit(guard, request, matched, next);
    if !is_page {
        return answer.await;
    }
    (tokio::time::timeout(PATIENCE, answer).await).unwrap_or_else(|_| Err(Error::silent()))
}

async fn admit(
    guard: &Guard,
    mut request: Request,
    matched: Option<&MatchedPath>,
    next: Next,
) -> Result<Response, Error> {
    let state = &guard.state;
    // Only what says who may use it is there at all.
    let path = matched.map_or("", MatchedPath::as_str);
    let Some(route) = guard.table.find(path, request.method()) else {
        // A known path answers 405 by itself; one that nobody declared is as good as absent.
        return match guard.table.knows(path) {
            true => Ok(next.run(request).await),
            false => Err(Error::new(Code::NoRoute, "There is nothing at this address")),
        };
    };
    speak(route, request.headers())?;
    let place = enter(state, route).await?;
    let mut caller = None;
    if route.access != Access::Public {
        let Some(known) = auth::authenticate(state, request.headers()).await? else {
            state.rates.take(address(&request))?;
            return Err(Error::unauthenticated());
        };
        state.rates.take(Who::User(known.actor.user.0))?;
        may_enter(route, &known)?;
        caller = Some(known);
    }
    // A body may be long in coming, and nobody else has to wait for it. An archive of code is too large to be read before
    // its handler wants it, and that takes few at once.
    let _place = match !request.body().is_end_stream() && !request.method().is_safe() && path != upload::PATH {
        true => {
            drop(place);
            request = extract::whole(request, state).await?;
            enter(state, route).await?
        }
        false => place,
    };
    if let Some(caller) = caller {
        if let Via::Session { csrf, .. } = &caller.via
            && !request.method().is_safe()
        {
            request = auth::csrf::check(request, csrf, state).await?;
        }
        request.extensions_mut().insert(caller);
    }
    Ok(next.run(request).await)
}

/// A place in front of the database, for routes that need it.
async fn enter(state: &WebState, route: &Route) -> Result<Option<OwnedSemaphorePermit>, Error> {
    match route.load {
        Load::Bounded => Ok(Some(state.admission.enter().await?)),
        Load::None => Ok(None),
    }
}

/// Whether the caller may use the route at all; the subject's own team is asked where it is known.
fn may_enter(route: &Route, caller: &Caller) -> Result<(), Error> {
    if matches!(caller.via, Via::Job { .. }) && route.access != Access::Reporter {
        return Err(Error::new(
            Code::Forbidden,
            "A job's own token may report about its job and do nothing else",
        )
        .hint("use a person's token"));
    }
    match route.access {
        Access::Admin if !caller.actor.admin => {
            Err(Error::new(Code::Forbidden, "This needs the role admin").hint("ask an admin"))
        }
        Access::Team(role) if role > TeamRole::Viewer && !reaches(caller, role) => Err(Error::new(
            Code::Forbidden,
            format!("This needs the role {role} in some team"),
        )
        .hint("an owner of the team, or an admin, can give you that role")),
        _ => Ok(()),
    }
}

fn reaches(caller: &Caller, role: TeamRole) -> bool {
    caller.actor.admin || caller.actor.teams.values().any(|have| *have >= role)
}

/// Whether the route takes what is sent and offers what is accepted.
fn speak(route: &Route, headers: &HeaderMap) -> Result<(), Error> {
    if !route.consumes.is_empty() && has_body(headers) {
        let sent = media_type(headers);
        let taken = (sent.as_deref()).is_some_and(|sent| route.consumes.iter().any(|known| known == sent));
        if !taken {
            return Err(
                Error::new(Code::UnsupportedMediaType, "The body's Content-Type is not taken here")
                    .hint(format!("one of: {}", route.consumes.join(", "))),
            );
        }
    }
    let offered = route.produces.iter().map(String::as_str);
    if route.produces.is_empty() || accept::best(headers, offered).is_some() {
        return Ok(());
    }
    Err(
        Error::new(Code::NotAcceptable, "None of what Accept names is offered here")
            .hint(format!("offered: {}", route.produces.join(", "))),
    )
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok());
    match length {
        Some(length) => length != "0",
        None => headers.contains_key(header::TRANSFER_ENCODING) || headers.contains_key(header::CONTENT_TYPE),
    }
}

/// Where the request came from, if the transport tells.
pub fn address(request: &axum::http::Request<Body>) -> Who {
    let info = request.extensions().get::<ConnectInfo<std::net::SocketAddr>>();
    info.map_or(Who::Unknown, |info| Who::Address(info.0.ip()))
}

/// Methods that a path takes, for 405.
pub fn allowed(table: &Table, path: &str) -> String {
    let methods = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::PATCH,
        Method::DELETE,
    ];
    let known: Vec<&str> = methods
        .iter()
        .filter(|method| table.find(path, method).is_some())
        .map(Method::as_str)
        .collect();
    known.join(", ")
}
