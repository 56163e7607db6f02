//! `GET /api/v1/schemas/job`: the JSON Schema of job documents, for editors and other checkers.

use std::sync::OnceLock;

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::Response,
};
use trainyard_core::document::job_schema as schema;

/// The JSON Schema of job documents.
#[utoipa::path(
    get,
    path = "/api/v1/schemas/job",
    tag = "jobs",
    responses((status = 200, description = "JSON Schema, draft 2020-12", body = Object, content_type = "application/json"))
)]
pub async fn job_schema() -> Response {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    // A value of JSON always becomes text.
    let text = TEXT
        .get_or_init(|| serde_json::to_vec_pretty(&schema()).unwrap_or_default().into())
        .clone();
    let mut response = Response::new(Body::from(text));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=300"));
    response
}
