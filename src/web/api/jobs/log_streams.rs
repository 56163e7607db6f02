//! `GET /api/v1/jobs/{job}/logs/streams`: which output there is.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use trainyard_core::model::{JobId, LogStream, StreamId};
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::{
    db::logs,
    logs::page::{self, Filter},
};

#[derive(Debug, Serialize, ToSchema)]
pub struct LogStreamList {
    pub items: Vec<LogStreamView>,
}

/// The output of one process on one of its streams.
#[derive(Debug, Serialize, ToSchema)]
pub struct LogStreamView {
    pub id: StreamId,
    pub attempt: i32,
    pub role: String,
    pub index: i32,
    pub rank: i32,
    pub stream: LogStream,
    pub lines: u64,
    pub bytes: u64,
    /// Given up unread, because more came than could be kept.
    pub dropped_bytes: u64,
    /// Nothing more will come.
    pub ended: bool,
    pub first_at: Option<DateTime<Utc>>,
    pub last_at: Option<DateTime<Utc>>,
}

/// The streams of output of a job, in the order of attempts and ranks.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/logs/streams",
    tag = "logs",
    params(("job" = JobId, Path, description = "The job's id")),
    responses((status = 200, body = LogStreamList))
)]
pub async fn list_log_streams(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
) -> Result<Json<LogStreamList>, Error> {
    let key = super::found(job, logs::readable(&state.db, &asker.scope(), job).await)?;
    let streams = page::streams(&state.db, key, &Filter::default()).await?;
    let items = streams.into_iter().map(|row| LogStreamView {
        id: row.id,
        attempt: row.attempt,
        role: row.role,
        index: row.index,
        rank: row.rank,
        stream: row.stream,
        lines: row.lines,
        bytes: row.bytes,
        dropped_bytes: row.dropped_bytes,
        ended: row.ended_at.is_some(),
        first_at: row.first_at,
        last_at: row.last_at,
    });
    Ok(Json(LogStreamList { items: items.collect() }))
}
