//! One cluster: what it can do, what it enforces, whom it trusts, and its queue.

use askama::Template;

use super::view::{Condition, EventRow, Fact, Shell, State, Tone, When};

#[derive(Debug, Clone, Template)]
#[template(path = "cluster.html", blocks = ["state", "conditions", "queue", "events"])]
pub struct ClusterPage {
    pub shell: Shell,
    pub id: String,
    pub name: String,
    pub state: State,
    pub facts: Vec<Fact>,
    /// Who is kept apart from whom, in one or two sentences.
    pub trust: String,
    pub limits: Vec<Limit>,
    pub conditions: Vec<Condition>,
    pub queue_summary: String,
    pub queue: Vec<QueueRow>,
    pub grants: Vec<Grant>,
    pub events: Vec<EventRow>,
}

#[derive(Debug, Clone)]
pub struct Limit {
    pub name: &'static str,
    pub tone: Tone,
    /// `yes`, `no`, `not known yet`.
    pub word: &'static str,
    pub how: String,
}

#[derive(Debug, Clone)]
pub struct QueueRow {
    pub place: usize,
    pub job: String,
    pub name: String,
    pub team: String,
    pub priority: i32,
    pub asks: String,
    pub since: When,
    pub why: String,
}

#[derive(Debug, Clone)]
pub struct Grant {
    pub team: String,
    pub level: String,
    pub namespace: String,
    pub queue: String,
}
