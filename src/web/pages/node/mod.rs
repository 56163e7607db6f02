//! One node: can I trust it, what runs there, how it fares.

use askama::Template;
use axum::{extract::State, response::Html};
use serde::Deserialize;
use trainyard_core::model::NodeId;

pub mod load;
pub mod measures;

use super::{
    found, shown,
    timeline::TimelineFigure,
    view::{Choice, Condition, EventRow, Fact, Plot, Shell, State as Told, Tone, When},
    viewer,
};
use crate::web::{
    Error, WebState,
    extract::{Asker, Params, PathOf},
};

#[derive(Debug, Clone, Template)]
#[template(path = "node.html", blocks = ["state", "conditions", "usage", "running", "plots", "events"])]
pub struct NodePage {
    pub shell: Shell,
    pub name: String,
    pub state: Told,
    pub conditions: Vec<Condition>,
    /// How conditions came and went.
    pub timeline: Option<TimelineFigure>,
    pub usage_as_of: String,
    pub meters: Vec<Meter>,
    pub running_summary: String,
    pub running: Vec<RunningRow>,
    pub plots_heading: String,
    pub ranges: Vec<Choice>,
    pub plots: Vec<Plot>,
    pub gpus: Vec<GpuRow>,
    pub facts: Vec<Fact>,
    pub events: Vec<EventRow>,
}

/// A share in use, in words first.
#[derive(Debug, Clone)]
pub struct Meter {
    pub name: String,
    /// `6.1 of 15.5 GiB`.
    pub words: String,
    pub percent: Option<u8>,
}

#[derive(Debug, Clone)]
pub struct RunningRow {
    pub tone: Tone,
    pub word: String,
    pub job: String,
    pub job_name: String,
    pub key: String,
    pub rank: u32,
    pub team: String,
    pub step: String,
    pub gpus: String,
    pub since: Option<When>,
}

#[derive(Debug, Clone)]
pub struct GpuRow {
    pub index: u32,
    pub model: String,
    pub busy: String,
    pub memory_used: String,
    pub memory: String,
    pub temperature: String,
    pub power: String,
    pub faults: String,
}

/// What the address asks for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct NodeQuery {
    /// `1h`, `6h`, `1d` or `7d`.
    pub range: Option<String>,
}

/// `GET /nodes/{node}`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<NodeId>,
    Params(query): Params<NodeQuery>,
) -> Result<Html<String>, Error> {
    let page = load::load(&state.db, &asker.scope(), id, &query, state.actions.now()).await;
    let mut page = found("node", id, page)?;
    page.shell.viewer = viewer(&asker);
    shown(&page)
}
