//! One job: is it well, and if not, why and what now.

use askama::Template;
use axum::{extract::State, response::Html};
use trainyard_core::model::JobId;

pub mod faults;
pub mod history;
pub mod load;
pub mod measures;
mod post_mortem;
mod reasons;
pub mod replicas;

use super::{
    shown,
    timeline::TimelineFigure,
    view::{Choice, Condition, EventRow, Fact, Grid, Plot, Shell, State as Told, Tone, When},
    viewer,
};
use crate::web::{
    Error, WebState,
    extract::{Asker, Params, PathOf},
};

#[derive(Debug, Clone, Template)]
#[template(path = "job.html", blocks = ["state", "conditions", "reasons", "post_mortem", "facts", "timeline", "replicas", "plots", "checkpoints", "events", "actions"])]
pub struct JobPage {
    pub shell: Shell,
    pub id: String,
    pub name: String,
    pub state: Told,
    pub actions: Vec<Action>,
    pub conditions: Vec<Condition>,
    pub reasons: Vec<Reason>,
    pub post_mortem: Option<PostMortemView>,
    pub facts: Vec<Fact>,
    pub timeline: TimelineFigure,
    pub replicas: Replicas,
    /// The attempts whose replicas can be shown; empty with one attempt only.
    pub attempts: Vec<Choice>,
    pub plots: Vec<Plot>,
    /// What would be plotted, and the line that makes it so.
    pub no_plots: &'static str,
    pub checkpoints: Vec<CheckpointRow>,
    pub events: Vec<EventRow>,
    pub more_events: Option<String>,
    pub document: String,
}

#[derive(Debug, Clone)]
pub struct Action {
    pub label: &'static str,
    pub href: String,
    pub danger: bool,
}

/// One layer that holds the job up.
#[derive(Debug, Clone)]
pub struct Reason {
    pub layer: String,
    pub message: String,
    pub code: String,
    pub numbers: Vec<(String, String)>,
    pub next: String,
}

#[derive(Debug, Clone)]
pub struct PostMortemView {
    pub attempt: u32,
    pub summary: String,
    pub code: String,
    pub policy: Option<String>,
    pub steps_lost: Option<String>,
    pub next: Option<String>,
    pub ranks: Vec<RankEnd>,
    pub nodes: Vec<Condition>,
}

#[derive(Debug, Clone)]
pub struct RankEnd {
    /// `First to fail`, `Victim`, `Ended by Trainyard`.
    pub part: &'static str,
    pub first: bool,
    /// `rank 3 (worker-2) on gpu-a-11`.
    pub name: String,
    /// `exit code 1`, `signal 9 (SIGKILL)`.
    pub exit: String,
    pub meaning: Option<String>,
    pub lines: Vec<String>,
    pub logs: String,
}

#[derive(Debug, Clone, Default)]
pub struct Replicas {
    /// `of attempt 2: 7 running, 1 failed`.
    pub summary: String,
    pub rows: Vec<ReplicaRow>,
    /// From some dozens on a grid stands in for the table.
    pub grid: Option<Grid>,
}

#[derive(Debug, Clone)]
pub struct ReplicaRow {
    pub rank: u32,
    pub key: String,
    pub tone: Tone,
    pub sentence: String,
    pub node: Option<(String, String)>,
    pub step: String,
    pub last_output: Option<When>,
    pub restarts: String,
}

#[derive(Debug, Clone)]
pub struct CheckpointRow {
    pub step: String,
    pub attempt: u32,
    pub path: String,
    pub at: When,
}

/// `GET /jobs/{job}`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<JobId>,
    Params(query): Params<load::JobQuery>,
) -> Result<Html<String>, Error> {
    let mut page = load::load(&state, &asker, id, &query).await?;
    page.shell.viewer = viewer(&asker);
    page.shell.notice = load::notice(&query);
    shown(&page)
}
