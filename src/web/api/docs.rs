//! `/docs`: Swagger UI from files in the binary, and the document that it shows.

use std::sync::{Arc, OnceLock};

use axum::{
    body::{Body, Bytes},
    extract::Path,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use utoipa_swagger_ui::Config;

use super::super::{Code, Error};

/// Swagger UI sets styles on its elements and draws its icons from data addresses; scripts stay our own files.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; \
    connect-src 'self'; font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The document as it is committed.
pub async fn openapi_json() -> Response {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    let text = TEXT
        .get_or_init(|| crate::web::openapi().to_json().unwrap_or_default().into())
        .clone();
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=60"));
    response
}

/// Relative addresses in the page want the slash.
pub async fn index() -> Response {
    let mut response = StatusCode::PERMANENT_REDIRECT.into_response();
    response
        .headers_mut()
        .insert(header::LOCATION, HeaderValue::from_static("/docs/index.html"));
    response
}

pub async fn file(Path(file): Path<String>) -> Result<Response, Error> {
    static CONFIG: OnceLock<Arc<Config<'static>>> = OnceLock::new();
    let config = CONFIG
        .get_or_init(|| Arc::new(Config::from("/api/v1/openapi.json").validator_url("none")))
        .clone();
    let found = utoipa_swagger_ui::serve(&file, config).map_err(|error| {
        tracing::error!(%error, "a file of the API's documentation can't be served");
        Error::internal()
    })?;
    let Some(found) = found else {
        return Err(Error::new(Code::NoRoute, "There is no such file in the documentation"));
    };
    let mut response = Response::new(Body::from(found.bytes.into_owned()));
    let headers = response.headers_mut();
    if let Ok(kind) = HeaderValue::from_str(&found.content_type) {
        headers.insert(header::CONTENT_TYPE, kind);
    }
    if found.gzpipped {
        headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=3600"));
    Ok(response)
}
