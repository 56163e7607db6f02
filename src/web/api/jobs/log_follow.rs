//! `GET /api/v1/jobs/{job}/logs/follow`: output as it comes.

use axum::{extract::State, http::HeaderMap, response::Response};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use trainyard_core::model::{JobId, LogStream, StreamId};
use utoipa::IntoParams;

use super::{
    super::super::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
        sse,
    },
    log_query::LogParams,
};
use crate::hub::logs::Slow;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FollowParams {
    /// Only this attempt. Left out: all.
    #[param(minimum = 1)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<1, _>")]
    pub attempt: Option<i32>,
    /// Only this role.
    pub role: Option<String>,
    /// Only this index within the role.
    #[param(minimum = 0)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<0, _>")]
    pub index: Option<i32>,
    /// Only this rank. Of an MPI job that is one of `mpirun`'s: the launcher's lines in which it speaks, as they were
    /// printed, with its tag; a line in which other ranks speak as well is whole.
    #[param(minimum = 0)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<0, _>")]
    pub rank: Option<i32>,
    /// Only stdout or stderr.
    pub stream: Option<LogStream>,
    /// Only this stream, by id.
    pub stream_id: Option<StreamId>,
    /// Begin with the last so many lines. Left out, and no `Last-Event-ID`: from the beginning.
    #[param(minimum = 0, maximum = 20000)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<0, _>")]
    pub tail: Option<i32>,
    /// Begin with the first line that was stored at this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Miss nothing, however slow the reader: for programs that save lines. Left out: a slow reader is told how much
    /// it missed and goes on with what is new.
    #[serde(default)]
    pub all: bool,
}

/// Output as it comes, as Server-Sent Events: `lines` (one JSON object per data line; `id` goes on from there),
/// `skipped`, `end`, `failed`, and `again`, which asks to come back.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/logs/follow",
    tag = "logs",
    params(
        ("job" = JobId, Path, description = "The job's id"),
        ("Last-Event-ID" = Option<String>, Header, description = "Go on behind this message"),
        FollowParams
    ),
    responses((status = 200, content((String = "text/event-stream"))))
)]
pub async fn follow_logs(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<FollowParams>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let query = LogParams {
        attempt: params.attempt,
        role: params.role,
        index: params.index,
        rank: params.rank,
        stream: params.stream,
        stream_id: params.stream_id,
        tail: params.tail,
        since: params.since,
        ..LogParams::default()
    };
    let super::Chosen { key, streams, filter } = super::streams(&state, &asker, job, query.filter()).await?;
    let begin = query.begin(streams.len(), sse::last_event_id(&headers))?;
    let slow = if params.all { Slow::ReadsAll } else { Slow::Skips };
    let messages = state.hub.follow_logs(key, filter, begin, slow);
    sse::response(&state, &asker, &headers, messages)
}
