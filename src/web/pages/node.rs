//! One node: can I trust it, what runs there, how it fares.

use askama::Template;

use super::{
    timeline::TimelineFigure,
    view::{Choice, Condition, EventRow, Fact, Plot, Shell, State, Tone, When},
};

#[derive(Debug, Clone, Template)]
#[template(path = "node.html", blocks = ["state", "conditions", "usage", "running", "plots", "events"])]
pub struct NodePage {
    pub shell: Shell,
    pub name: String,
    pub state: State,
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
    pub name: &'static str,
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
    pub cpu: String,
    pub memory: String,
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
