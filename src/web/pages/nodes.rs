//! All nodes: a cell each, worst first, with a table as the alternative.

use askama::Template;

use super::view::{Choice, Grid, Pages, Shell, Tone, When};

#[derive(Debug, Clone, Template)]
#[template(path = "nodes.html", blocks = ["nodes"])]
pub struct NodesPage {
    pub shell: Shell,
    /// `2 of 12 nodes are not ready`.
    pub summary: String,
    pub choices: Vec<Choice>,
    /// The grid, or else the rows.
    pub grid: Option<Grid>,
    pub grid_href: String,
    pub rows: Vec<NodeRow>,
    pub pages: Pages,
}

#[derive(Debug, Clone)]
pub struct NodeRow {
    pub id: String,
    pub tone: Tone,
    pub sentence: String,
    pub name: String,
    pub place: String,
    pub cpu: String,
    pub memory: String,
    pub gpus: String,
    pub replicas: String,
    pub seen: When,
}
