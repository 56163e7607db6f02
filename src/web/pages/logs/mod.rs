//! A job's output. The server shows a window of it as plain markup; where JavaScript runs, `logs.js` follows, scrolls
//! and searches over the API. Output can never become markup: the template escapes it, the script sets text only.

use std::time::Duration;

use askama::Template;
use axum::{
    extract::State,
    http::HeaderMap,
    response::{Html, Redirect, Response},
};
use serde::Deserialize;
use trainyard_core::{
    document::job::JobDocument,
    model::{JobId, ReplicaKey},
};

pub mod load;
pub mod ranks;
pub mod rows;

use super::{
    found, shown,
    terminal::Segment,
    told,
    view::{SelectOption, Shell, Tone},
    viewer,
};
use crate::{
    db::{
        jobs_read,
        logs::{self, JobKey},
    },
    hub::logs::Slow,
    logs::{
        merge::Begin,
        page::{self, Filter},
        position::Position,
        search::{self, Limits, Needle},
        stream::From,
    },
    web::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
        sse,
    },
};

#[derive(Debug, Template)]
#[template(path = "logs.html")]
pub struct LogsPage {
    pub shell: Shell,
    pub id: String,
    pub name: String,
    pub tone: Tone,
    pub sentence: String,
    pub attempts: Vec<SelectOption>,
    pub replicas: Vec<SelectOption>,
    /// Of an MPI job: the ranks of `mpirun`.
    pub ranks: Vec<SelectOption>,
    pub times: Vec<SelectOption>,
    /// `clock`, `start` or `off`, as a class.
    pub time_mode: &'static str,
    pub search: String,
    pub regex: bool,
    /// Only the lines that the search finds are shown.
    pub only: bool,
    pub follow: bool,
    /// More may be printed.
    pub live: bool,
    /// All lines are of one replica, so none needs to name it.
    pub one: bool,
    pub found: Option<Found>,
    pub first_error: Option<String>,
    pub download: String,
    pub older: Option<String>,
    pub newer: Option<String>,
    pub rows: Vec<LogRow>,
    /// What would be here.
    pub none: String,
    /// What the script needs to go on from here, as JSON.
    pub viewer_config: String,
}

#[derive(Debug, Clone)]
pub struct LogRow {
    /// `worker-1.stdout.1240`, stable for ever.
    pub anchor: String,
    pub number: u64,
    pub replica: String,
    /// The rank's colour, from 0 to 11.
    pub color: u32,
    pub stderr: bool,
    pub error: bool,
    /// It is of the lines that the address names.
    pub chosen: bool,
    /// Where its number leads: to itself, or to it among its neighbours.
    pub href: String,
    pub time: String,
    pub exact: String,
    pub iso: String,
    pub segments: Vec<Segment>,
    /// In place of a line: what is missing here, in words.
    pub gap: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Found {
    /// `"NaN" found 12 times, in 2 of 8 ranks`.
    pub summary: String,
    pub groups: Vec<FoundGroup>,
}

/// What was found in one replica, by time.
#[derive(Debug, Clone)]
pub struct FoundGroup {
    pub replica: String,
    pub color: u32,
    /// `7 lines`, `the first 50 lines`.
    pub count: String,
    pub hits: Vec<FoundHit>,
}

#[derive(Debug, Clone)]
pub struct FoundHit {
    pub href: String,
    pub anchor: String,
    pub line: u64,
    pub stderr: bool,
    pub before: String,
    pub hit: String,
    pub after: String,
}

/// What the address asks for. A form sends every field, so an empty one means nothing.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct LogsQuery {
    pub attempt: Option<String>,
    /// `worker-1`.
    pub replica: Option<String>,
    /// Of an MPI job a rank of `mpirun`, else a replica's.
    pub rank: Option<String>,
    /// `clock`, `start` or `off`.
    pub time: Option<String>,
    pub search: Option<String>,
    #[serde(default)]
    pub regex: bool,
    /// Show only what the search finds.
    #[serde(default)]
    pub only: bool,
    /// A line's anchor: the window lies around it.
    pub at: Option<String>,
    /// The last line of a range that begins at `at`.
    pub to: Option<String>,
    /// Only what was stored before this time or since it; or up to a position and behind it.
    pub before: Option<String>,
    pub since: Option<String>,
    /// `error`: there is no line that looks like one; `unread`: none in what was looked at.
    pub none: Option<String>,
    /// Of the live view: a position to go on from.
    pub from: Option<String>,
}

impl LogsQuery {
    fn text(value: &Option<String>) -> Option<&str> {
        value.as_deref().map(str::trim).filter(|text| !text.is_empty())
    }

    fn attempt(&self, newest: i32) -> i32 {
        Self::text(&self.attempt)
            .and_then(|text| text.parse().ok())
            .unwrap_or(newest)
    }

    fn replica(&self) -> Option<ReplicaKey> {
        let (role, index) = Self::text(&self.replica)?.rsplit_once('-')?;
        Some(ReplicaKey {
            role: role.to_owned(),
            index: index.parse().ok()?,
        })
    }

    /// `mpi`: the document of an MPI job.
    fn filter(&self, attempt: i32, mpi: Option<&JobDocument>) -> Filter {
        let replica = self.replica();
        let filter = Filter {
            attempt: Some(attempt),
            role: replica.as_ref().map(|key| key.role.clone()),
            index: replica.as_ref().and_then(|key| i32::try_from(key.index).ok()),
            rank: self.rank(),
            ..Filter::default()
        };
        match mpi {
            Some(document) => ranks::under_mpirun(filter, document),
            None => filter,
        }
    }
}

/// What is chosen, for addresses of pages.
fn chosen(filter: &Filter) -> String {
    let mut words = format!("attempt={}", filter.attempt.unwrap_or(0));
    if let (Some(role), Some(index)) = (&filter.role, filter.index) {
        words.push_str(&format!("&replica={}", told::encoded(&format!("{role}-{index}"))));
    }
    words + &chosen_rank(filter)
}

fn chosen_rank(filter: &Filter) -> String {
    let rank = filter.mpi_rank.or(filter.rank.map(i32::unsigned_abs));
    rank.map_or(String::new(), |rank| format!("&rank={rank}"))
}

/// `GET /jobs/{job}/logs`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<JobId>,
    Params(query): Params<LogsQuery>,
) -> Result<Html<String>, Error> {
    let mut page = load::load(&state.db, &asker.scope(), id, &query, state.actions.now()).await?;
    page.shell.viewer = viewer(&asker);
    shown(&page)
}

/// `GET /jobs/{job}/logs/live`: the lines behind a position, as they come. A slow reader is told how much it missed.
pub async fn live(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<JobId>,
    Params(query): Params<LogsQuery>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let (key, filter) = what(&state, &asker, id, &query).await?;
    let from = sse::last_event_id(&headers).or(LogsQuery::text(&query.from));
    let begin = match from {
        Some(text) => Begin::Position(text.parse::<Position>()?),
        None => Begin::From(From::Tail(0)),
    };
    let messages = state.hub.follow_logs(key, filter, begin, Slow::Skips);
    sse::response(&state, &asker, &headers, messages)
}

/// The job's output, and what of it an address chooses.
async fn what(state: &WebState, asker: &Asker, id: JobId, query: &LogsQuery) -> Result<(JobKey, Filter), Error> {
    let scope = asker.scope();
    let detail = found("job", id, jobs_read::get(&state.db, &scope, id).await)?;
    let key = found("job", id, logs::readable(&state.db, &scope, id).await)?;
    let mpi = ranks::mpi_job(detail.document.get());
    Ok((key, query.filter(query.attempt(detail.job.attempt), mpi.as_ref())))
}

/// How long the first error is looked for.
const FIRST_ERROR: Duration = Duration::from_secs(5);

/// `GET /jobs/{job}/first-error`: to the earliest line of the attempt that looks like an error.
pub async fn first_error(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<JobId>,
    Params(query): Params<LogsQuery>,
) -> Result<Redirect, Error> {
    let (key, filter) = what(&state, &asker, id, &query).await?;
    let streams = page::streams(&state.db, key, &filter).await?;
    let needle = Needle::new(rows::ERROR, true, false)?.said_by(filter.mpi_rank);
    let limits = Limits {
        lines: usize::MAX,
        lines_per_stream: 1,
        bytes: u64::MAX,
        time: FIRST_ERROR,
        whole: 2 * FIRST_ERROR,
    };
    let found = search::search(&state.db, &streams, &needle, None, limits).await?;
    let unread = found.next.is_some();
    let first = found
        .groups
        .into_iter()
        .flat_map(|group| group.lines)
        .min_by(|a, b| a.at.cmp(&b.at));
    let chosen = chosen(&filter);
    let none = if unread { "&none=unread" } else { "" };
    Ok(Redirect::to(&match first {
        Some(line) => {
            let anchor = rows::anchor(&line);
            format!("/jobs/{id}/logs?{chosen}{none}&at={}#{anchor}", told::encoded(&anchor))
        }
        None if unread => format!("/jobs/{id}/logs?{chosen}{none}"),
        None => format!("/jobs/{id}/logs?{chosen}&none=error"),
    }))
}
