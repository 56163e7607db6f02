//! `GET /api/v1/jobs/{job}/clone`: a job's document, to edit and submit as another job.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use trainyard_core::{
    document::{job::JobDocument, to_yaml},
    model::JobId,
};
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState, accept,
    extract::{Asker, PathOf},
};
use crate::db::{DbError, jobs_read};

/// A document to edit.
#[derive(Debug, Serialize, ToSchema)]
pub struct CloneDraft {
    pub document: JobDocument,
    /// Where to send it once it is edited, so that its origin is kept.
    pub submit_to: String,
}

/// The job's document, to edit and submit as another job. As JSON, or as YAML with `Accept: application/yaml`.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/clone",
    tag = "jobs",
    params(("job" = JobId, Path, description = "The job to copy")),
    responses((status = 200, content((CloneDraft = "application/json"), (String = "application/yaml"))))
)]
pub async fn clone_job(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let detail = super::found(job, jobs_read::get(&state.db, &asker.scope(), job).await)?;
    let document: JobDocument = serde_json::from_str(detail.document.get()).map_err(|error| DbError::Inconsistent {
        table: "jobs",
        key: job.to_string(),
        what: format!("document: {error}"),
    })?;
    if accept::prefers(&headers, "application/yaml", "application/json") {
        let mut response = Response::new(Body::from(to_yaml(&document)));
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/yaml"));
        return Ok(response);
    }
    let submit_to = format!("/api/v1/jobs?clone_of={job}");
    Ok(Json(CloneDraft { document, submit_to }).into_response())
}
