//! `GET /api/v1/jobs/{job}/logs`: lines, by replica or merged by time.

use axum::{
    Json,
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, header},
    response::{IntoResponse, Response},
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use trainyard_core::model::JobId;
use utoipa::ToSchema;

use super::{
    super::super::{
        Error, WebState, accept,
        extract::{Asker, Params, PathOf},
    },
    log_query::LogParams,
};
use crate::logs::{
    line::{Form, LogLine, format_time},
    merge::Begin,
    page::{self, Query},
    stream::From,
};

/// Lines in order, and where to go on.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogPage {
    pub items: Vec<LogLine>,
    /// Where to go on, now or when more has come.
    pub next: String,
    /// There is more behind `next` already.
    pub more: bool,
    /// There may be more before these lines, too.
    pub older: bool,
    /// Of a tail of the lines of one of `mpirun`'s ranks: there are fewer than asked for, and what was stored before this
    /// time was not looked at. Ask with `until` at this time for what is older.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub looked_since: Option<String>,
}

/// Lines of the chosen streams, merged by time. As JSON; or a JSON object per line with
/// `Accept: application/x-ndjson`, and then `next`, `more` and `looked_since` are the headers `X-Next-Cursor`, `X-More` and
/// `X-Looked-Since`. Of one of `mpirun`'s ranks, a page may end with few lines or none once a bounded amount of text was
/// looked at: `more` says that it goes on.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/logs",
    tag = "logs",
    params(("job" = JobId, Path, description = "The job's id"), LogParams),
    responses((status = 200, content((LogPage = "application/json"), (String = "application/x-ndjson"))))
)]
pub async fn read_logs(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<LogParams>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let lines = params.lines()?;
    let super::Chosen { streams, filter, .. } = super::streams(&state, &asker, job, params.filter()).await?;
    let until = |at: DateTime<Utc>| page::before(&streams, &Begin::From(From::Time(at.timestamp_millis())));
    let query = Query {
        begin: params.begin(streams.len(), None)?,
        until: params.until.map(until),
        lines,
        bytes: page::BYTES,
        mpi_rank: filter.mpi_rank,
        look: page::LOOK,
    };
    let found = page::page(&state.db, &streams, &query).await?;
    let next = found.next.to_string();
    if accept::prefers(&headers, "application/x-ndjson", "application/json") {
        let mut response = Response::new(Body::from(found.encode(&streams, Form::Ndjson, params.raw)));
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        let told = [
            ("x-next-cursor", Some(next)),
            ("x-more", Some(found.more.to_string())),
            ("x-looked-since", found.looked_since.map(format_time)),
        ];
        for (name, value) in told {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                headers.insert(name, value);
            }
        }
        return Ok(response);
    }
    Ok(Json(LogPage {
        items: found.lines(&streams, params.raw),
        next,
        more: found.more,
        older: found.older,
        looked_since: found.looked_since.map(format_time),
    })
    .into_response())
}
