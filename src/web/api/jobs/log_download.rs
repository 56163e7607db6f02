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
        Error, WebState,
        extract::{Asker, Params, PathOf},
    },
    log_query::LogParams,
};
use crate::{
    actions::FieldFault,
    logs::download::{self, Shape},
};

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
    let (_, mut streams) = super::streams(&state, &asker, job, &params.filter()).await?;
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let (body, kind, ending) = if accept.contains("application/octet-stream") && streams.len() == 1 {
        let stream = download::bytes(&state.db, streams.swap_remove(0));
        (
            Body::from_stream(stream.inspect_err(broke_off)),
            "application/octet-stream",
            "log",
        )
    } else {
        let begin = params.begin(streams.len(), None)?;
        let (shape, kind, ending) = match accept.contains("application/x-ndjson") {
            true => (Shape::Ndjson { raw: params.raw }, "application/x-ndjson", "ndjson"),
            false => (Shape::Text, "text/plain; charset=utf-8", "log"),
        };
        let stream = download::lines(&state.db, streams, begin, shape);
        (Body::from_stream(stream.inspect_err(broke_off)), kind, ending)
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
