//! `GET /api/v1/jobs/{job}/logs/search`: find text over all ranks.

use axum::{Json, extract::State};
use serde::{Deserialize, Serialize};
use trainyard_core::model::{JobId, LogStream, StreamId};
use utoipa::{IntoParams, ToSchema};

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params, PathOf},
};
use crate::{
    actions::FieldFault,
    logs::{
        line::LogLine,
        page::Filter,
        search::{self, Cursor, Limits, Needle},
    },
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct SearchParams {
    /// What to find.
    #[param(min_length = 1, max_length = 1000)]
    pub pattern: String,
    /// The pattern is a regular expression.
    #[serde(default)]
    pub regex: bool,
    /// Upper and lower case are the same.
    #[serde(default)]
    pub ignore_case: bool,
    /// Only this attempt.
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
    /// At most this many lines. Left out: 1000.
    #[param(minimum = 1, maximum = 5000)]
    pub limit: Option<usize>,
    /// At most this many lines of one stream, so that one noisy rank does not hide the others. With as many as `limit`,
    /// no line is left out. Left out: 200.
    #[param(minimum = 1, maximum = 5000)]
    pub per_stream: Option<usize>,
    /// `next` of the answer before.
    pub cursor: Option<String>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct SearchResult {
    /// Streams with something found, in the order of attempts and ranks.
    pub groups: Vec<FoundIn>,
    /// Where to go on. `null`: everything was looked at, but for the rest of streams that are `cut`.
    pub next: Option<String>,
    /// Bytes of text that were looked at.
    pub searched: u64,
}

/// What was found in one stream.
#[derive(Debug, Serialize, ToSchema)]
pub struct FoundIn {
    pub stream_id: StreamId,
    pub attempt: i32,
    pub role: String,
    pub index: i32,
    pub rank: i32,
    pub stream: LogStream,
    pub lines: Vec<LogLine>,
    /// There is more in this stream, which no `next` leads to: ask again with a larger `per_stream`.
    pub cut: bool,
}

/// Finds text in the output of all ranks, grouped by stream.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/logs/search",
    tag = "logs",
    params(("job" = JobId, Path, description = "The job's id"), SearchParams),
    responses((status = 200, body = SearchResult))
)]
pub async fn search_logs(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<SearchParams>,
) -> Result<Json<SearchResult>, Error> {
    if params.pattern.is_empty() || params.pattern.len() > 1000 {
        return Err(Error::parameter(FieldFault::new(
            "pattern",
            "out_of_range",
            "a pattern has 1 to 1000 bytes",
        )));
    }
    let limits = Limits::default();
    let limits = Limits {
        lines: lines("limit", params.limit, limits.lines)?,
        lines_per_stream: lines("per_stream", params.per_stream, limits.lines_per_stream)?,
        ..limits
    };
    let needle = Needle::new(&params.pattern, params.regex, params.ignore_case)?;
    let cursor = params.cursor.as_deref().map(str::parse::<Cursor>).transpose()?;
    let filter = Filter {
        attempt: params.attempt,
        role: params.role,
        index: params.index,
        rank: params.rank,
        stream: params.stream,
        ..Filter::default()
    };
    let super::Chosen { streams, filter, .. } = super::streams(&state, &asker, job, filter).await?;
    let needle = needle.said_by(filter.mpi_rank);
    let found = search::search(&state.db, &streams, &needle, cursor, limits).await?;
    let groups = found.groups.into_iter().filter_map(|group| {
        let row = streams.get(group.stream)?;
        Some(FoundIn {
            stream_id: row.id,
            attempt: row.attempt,
            role: row.role.clone(),
            index: row.index,
            rank: row.rank,
            stream: row.stream,
            lines: group.lines,
            cut: group.cut,
        })
    });
    Ok(Json(SearchResult {
        groups: groups.collect(),
        next: found.next.map(|next| next.to_string()),
        searched: found.searched,
    }))
}

fn lines(name: &str, asked: Option<usize>, usual: usize) -> Result<usize, Error> {
    let lines = asked.unwrap_or(usual);
    if (1..=5000).contains(&lines) {
        return Ok(lines);
    }
    let fault = FieldFault::new(name, "out_of_range", "1 to 5000 lines can be asked for");
    Err(Error::parameter(fault.value(lines.to_string())))
}
