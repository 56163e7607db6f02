//! `POST /api/v1/jobs`: submit a job.

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use trainyard_core::{document::job::JobDocument, model::JobId};
use utoipa::{IntoParams, ToSchema};

use super::super::super::{
    Error, WebState,
    error::Problem,
    extract::{Asker, Document, Params, idempotency_key},
};
use crate::{
    actions::create::{CheckedJob, Submission, Submitted},
    db::jobs_read::JobDetail,
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CreateParams {
    /// Check everything and store nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// The job that this document was copied from.
    pub clone_of: Option<JobId>,
}

/// A job that was stored.
#[derive(Debug, Serialize, ToSchema)]
pub struct CreatedJob {
    #[serde(flatten)]
    pub job: JobDetail,
    /// What to know about it, in sentences: fields that mean nothing on a cluster where it may run.
    pub warnings: Vec<String>,
}

/// Submits a job. All faults of the document come at once, each with its path, line and column.
///
/// With an `Idempotency-Key` the same request can be sent again within 24 hours and gets the same answer.
#[utoipa::path(
    post,
    path = "/api/v1/jobs",
    tag = "jobs",
    params(
        CreateParams,
        ("Idempotency-Key" = Option<String>, Header, description = "Drawn by the client; 24 hours", max_length = 255)
    ),
    request_body(
        description = "A job document, as JSON or YAML",
        content(
            (JobDocument = "application/json", example = json!({
                "apiVersion": "trainyard.dev/v1",
                "kind": "Job",
                "name": "hello",
                "roles": [{ "name": "worker", "replicas": 2, "command": ["echo", "hello"] }]
            })),
            (String = "application/yaml", example = "apiVersion: trainyard.dev/v1\nkind: Job\nname: hello\nroles:\n  - name: worker\n    command: [echo, hello]\n")
        )
    ),
    responses(
        (status = 201, description = "Stored; workers take it from here", body = CreatedJob,
            headers(("location" = String, description = "The job"), ("etag" = String, description = "Its version"))),
        (status = 200, description = "A dry run: it would be taken", body = CheckedJob),
        (status = 409, description = "An earlier job stands in the way", body = Problem, content_type = "application/problem+json")
    )
)]
pub async fn create_job(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<CreateParams>,
    headers: HeaderMap,
    document: Document,
) -> Result<Response, Error> {
    let submission = Submission {
        text: &document.text,
        format: Some(document.format),
        key: idempotency_key(&headers)?,
        clone_of: params.clone_of,
    };
    if params.dry_run {
        return Ok(Json(state.actions.dry_run_job(asker.ask(), submission).await?).into_response());
    }
    Ok(created(state.actions.create_job(asker.ask(), submission).await?))
}

/// 201 with the job's address; a repeated request gets the same, and a word that it was one.
pub(super) fn created(submitted: Submitted) -> Response {
    let Submitted { job, warnings, again } = submitted;
    let (location, etag) = (format!("/api/v1/jobs/{}", job.job.id), job.job.etag());
    let mut response = super::tagged(StatusCode::CREATED, &etag, Json(CreatedJob { job, warnings }));
    let headers = response.headers_mut();
    if let Ok(location) = HeaderValue::from_str(&location) {
        headers.insert(header::LOCATION, location);
    }
    if again {
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    response
}
