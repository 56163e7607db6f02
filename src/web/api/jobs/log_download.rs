//! `GET /api/v1/jobs/{job}/logs/download`: output as a file.

use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use futures::TryStreamExt;
use trainyard_core::model::JobId;

use super::{
    super::super::{
        Error, WebState, accept,
        extract::{Asker, Params, PathOf},
    },
    log_query::LogParams,
};
use crate::{
    actions::FieldFault,
    logs::download::{self, Shape},
};

const TEXT: &str = "text/plain";
const NDJSON: &str = "application/x-ndjson";
const BYTES: &str = "application/octet-stream";

/// Output as a file, never all in memory: lines of the chosen streams merged by time as text; a JSON object per line
/// with `Accept: application/x-ndjson`; or with `Accept: application/octet-stream` and exactly one stream chosen, its
/// bytes as the process wrote them, secrets masked. It goes on to the end, so `limit`, `until` and `cursor` are refused.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/logs/download",
    tag = "logs",
    params(("job" = JobId, Path, description = "The job's id"), LogParams),
    responses((status = 200, content(
        (String = "text/plain"), (String = "application/x-ndjson"), (String = "application/octet-stream")
    )))
)]
pub async fn download_logs(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<LogParams>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let of_pages = [
        ("limit", params.limit.is_some()),
        ("until", params.until.is_some()),
        ("cursor", params.cursor.is_some()),
    ];
    if let Some((name, _)) = of_pages.into_iter().find(|(_, given)| *given) {
        let fault = FieldFault::new(name, "conflict", "a download goes on to the end of the output");
        return Err(Error::parameter(
            fault.hint("leave it out, or read pages from /api/v1/jobs/{job}/logs"),
        ));
    }
    let home = super::home(&state, &asker, job).await?;
    let chosen = super::streams(&state, &asker, job, params.filter()).await?;
    let (mut streams, mpi_rank) = (chosen.streams, chosen.filter.mpi_rank);
    // Only one stream can be had as the bytes that it is, and only whole.
    let offered: &[&str] = if streams.len() == 1 && mpi_rank.is_none() {
        &[TEXT, NDJSON, BYTES]
    } else {
        &[TEXT, NDJSON]
    };
    let kind = accept::best(&headers, offered.iter().copied()).unwrap_or(TEXT);
    let body = if kind == BYTES {
        let stream = download::bytes(&state.db, streams.swap_remove(0));
        Body::from_stream(stream.inspect_err(broke_off))
    } else {
        let begin = params.begin(streams.len(), None)?;
        let shape = match kind {
            NDJSON => Shape::Ndjson { raw: params.raw },
            _ => Shape::Text,
        };
        let stream = download::lines(&state.db, streams, begin, shape, mpi_rank);
        Body::from_stream(stream.inspect_err(broke_off))
    };
    let (kind, ending) = match kind {
        TEXT => ("text/plain; charset=utf-8", "log"),
        NDJSON => (NDJSON, "ndjson"),
        kind => (kind, "log"),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    // A job's name has letters, digits and dashes only.
    if let Ok(value) = HeaderValue::from_str(&format!("attachment; filename=\"{}-{job}.{ending}\"", home.name)) {
        headers.insert(header::CONTENT_DISPOSITION, value);
    }
    Ok(response)
}

/// The head of the answer is sent by then; the client sees a body that breaks off.
fn broke_off(error: &crate::logs::LogsError) {
    tracing::warn!(%error, "a download broke off");
}
