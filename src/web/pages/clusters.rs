//! Where jobs run.

use askama::Template;

use super::view::{Shell, Tone, When};

#[derive(Debug, Template)]
#[template(path = "clusters.html")]
pub struct ClustersPage {
    pub shell: Shell,
    pub summary: String,
    pub rows: Vec<ClusterRow>,
}

#[derive(Debug, Clone)]
pub struct ClusterRow {
    pub id: String,
    pub tone: Tone,
    pub sentence: String,
    pub name: String,
    pub provider: &'static str,
    /// `11 of 12`.
    pub nodes: String,
    pub cpu: String,
    pub gpus: String,
    pub running: String,
    pub waiting: String,
    pub seen: Option<When>,
}
