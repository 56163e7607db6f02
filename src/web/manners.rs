//! What every request and every answer has in common: an id, figures, headers that browsers honour, gzip, limits, and
//! problems in the form that the client reads.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::{DefaultBodyLimit, MatchedPath, Request, State},
    http::{HeaderValue, Method, Uri, header},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use tower_http::{
    catch_panic::CatchPanicLayer,
    compression::{
        CompressionLayer, Predicate,
        predicate::{DefaultPredicate, SizeAbove},
    },
    timeout::{DeadlineBody, RequestBodyTimeoutLayer},
};
use uuid::Uuid;

use super::{
    Code, Error, Table, WebState,
    api::code::upload,
    extract::RequestId,
    face,
    guard::{self, Guard},
};

/// Between two pieces of a request's body.
const PIECE: Duration = Duration::from_secs(60);
/// For the whole of an archive of code, which may be 32 times as large as any other body.
const ARCHIVE: Duration = Duration::from_secs(900);

/// No script, style or connection but our own, nothing inline, in nobody's frame.
pub const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Puts the routes behind the guard and the guard behind these manners.
pub fn wrap(router: Router<WebState>, table: Arc<Table>, state: WebState) -> Router {
    let limit = state.settings.body_limit;
    let guarded = Guard {
        state: state.clone(),
        table: table.clone(),
    };
    router
        .route_layer(middleware::from_fn_with_state(guarded, guard::guard))
        .layer(DefaultBodyLimit::max(limit))
        .fallback(no_route)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(RequestBodyTimeoutLayer::new(PIECE))
        .layer(middleware::from_fn_with_state(state.clone(), manners))
        // Short answers only grow, and a live stream must not wait for a full block.
        .layer(
            CompressionLayer::new()
                .gzip(true)
                .compress_when(DefaultPredicate::new().and(SizeAbove::new(1024))),
        )
        .with_state(state)
}

async fn manners(State(state): State<WebState>, mut request: Request, next: Next) -> Response {
    let begun = Instant::now();
    let id = request_id(request.headers().get("x-request-id"));
    request.extensions_mut().insert(RequestId(id.clone()));
    let face = face::of(&request);
    let method = request.method().clone();
    let patience = match request.uri().path() == upload::PATH {
        true => ARCHIVE,
        false => state.settings.body_time,
    };
    let (request, typed) = face::typed(within(patience, request), face, state.settings.body_limit).await;
    let response = next.run(request).await;
    let mut response = face::show(response, face, typed, &id);

    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&id) {
        headers.insert("x-request-id", value);
    }
    let fixed = HeaderValue::from_static;
    headers.entry(header::CONTENT_SECURITY_POLICY).or_insert(fixed(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.insert(header::X_FRAME_OPTIONS, fixed("DENY"));
    headers.insert(header::REFERRER_POLICY, fixed("same-origin"));
    headers.insert("cross-origin-opener-policy", fixed("same-origin"));
    headers.entry(header::CACHE_CONTROL).or_insert(fixed("no-store"));
    if state.settings.public_url.starts_with("https:") {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, fixed("max-age=31536000"));
    }

    let route = response
        .extensions()
        .get::<MatchedPath>()
        .map_or("none", MatchedPath::as_str)
        .to_owned();
    let status = response.status().as_u16();
    metrics::histogram!(
        "trainyard_http_request_seconds",
        "route" => route, "method" => label(&method), "status" => status.to_string()
    )
    .record(begun.elapsed().as_secs_f64());
    response
}

/// The method as figures have it. Anything may be one, and a figure once made stays, so others are counted as one.
fn label(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    KNOWN
        .into_iter()
        .find(|known| *known == method.as_str())
        .unwrap_or("other")
}

/// The request, whose body breaks off when it is not there in time.
fn within(patience: Duration, request: Request) -> Request {
    match request.body().is_end_stream() {
        true => request,
        false => request.map(|body| Body::new(DeadlineBody::new(patience, body))),
    }
}

/// The client's id, if it is harmless in a log, else one of ours.
fn request_id(sent: Option<&HeaderValue>) -> Arc<str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let sent = sent.and_then(|value| value.to_str().ok());
    match sent.filter(|id| (1..=64).contains(&id.len()) && id.bytes().all(plain)) {
        Some(id) => id.into(),
        None => Uuid::now_v7().simple().to_string().into(),
    }
}

async fn no_route(uri: Uri) -> Error {
    let path: String = uri.path().chars().take(120).collect();
    Error::new(Code::NoRoute, format!("There is nothing at {path}")).hint("the API is described at /docs")
}

async fn method_not_allowed() -> Error {
    Error::new(Code::MethodNotAllowed, "This address does not take that method").hint("see the Allow header")
}

fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let words = (panic.downcast_ref::<String>().map(String::as_str)).or(panic.downcast_ref::<&str>().copied());
    tracing::error!(panic = words.unwrap_or("without words"), "a handler panicked");
    Error::internal().into_response()
}
