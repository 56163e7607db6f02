//! Where jobs run.

use askama::Template;
use axum::{extract::State, response::Html};
use chrono::{DateTime, Utc};
use trainyard_core::{
    model::{ClusterId, Provider},
    plan::words,
};

use super::{
    shown, told,
    view::{Section, Shell, Tone, When},
    viewer,
};
use crate::{
    db::{
        Db, DbError, Scope,
        clusters_read::{self, Cluster},
        page_reads,
    },
    web::{Error, WebState, extract::Asker},
};

#[derive(Debug, Template)]
#[template(path = "clusters.html")]
pub struct ClustersPage {
    pub shell: Shell,
    pub summary: String,
    pub rows: Vec<ClusterRow>,
}

#[derive(Debug, Clone, Template)]
#[template(
    source = "{% import \"parts.html\" as parts %}{% include \"cluster_row.html\" %}",
    ext = "html"
)]
pub struct ClusterRowFragment {
    pub row: ClusterRow,
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

const SHOWN: i64 = 500;

/// `GET /clusters`.
pub async fn page(State(state): State<WebState>, asker: Asker) -> Result<Html<String>, Error> {
    let mut page = load(&state.db, &asker.scope(), state.actions.now()).await?;
    page.shell.viewer = viewer(&asker);
    shown(&page)
}

pub async fn load(db: &Db, scope: &Scope, now: DateTime<Utc>) -> Result<ClustersPage, DbError> {
    let mut clusters = clusters_read::list(db, scope, None, SHOWN).await?;
    // What nobody looks after first.
    clusters.sort_by_key(|cluster| (cluster.stale_since.is_none(), cluster.phase == "active"));
    let ids: Vec<ClusterId> = clusters.iter().map(|cluster| cluster.id).collect();
    let rooms = page_reads::rooms(db, &ids).await?;
    let stale = clusters.iter().filter(|cluster| cluster.stale_since.is_some()).count() as u64;
    let all = clusters.len() as u64;
    Ok(ClustersPage {
        shell: Shell {
            title: "Clusters".into(),
            section: Section::Clusters,
            live: Some("/clusters/live".into()),
            here: "/clusters".into(),
            ..Shell::default()
        },
        summary: match (all, stale) {
            (0, _) => "There is no cluster that you may use.".into(),
            (1, 0) => "The one cluster is looked after by a worker.".into(),
            (all, 0) => format!("All {all} clusters are looked after by a worker."),
            (all, stale) => format!(
                "{stale} of {} not looked after by any worker.",
                words::counted(all, "cluster")
            ),
        },
        rows: clusters
            .iter()
            .map(|cluster| {
                let room = rooms.get(&cluster.id);
                let (tone, sentence) = state_of(cluster, now);
                ClusterRow {
                    id: cluster.id.to_string(),
                    tone,
                    sentence,
                    name: cluster.name.clone(),
                    provider: provider(cluster.provider),
                    nodes: format!(
                        "{} of {}",
                        words::count(cluster.nodes_ready),
                        words::count(cluster.nodes)
                    ),
                    cpu: room.map(|room| cores(room.cpu_milli_free)).unwrap_or_default(),
                    gpus: room.map(|room| words::count(room.gpus_free)).unwrap_or_default(),
                    running: words::count(cluster.jobs_active),
                    waiting: words::count(cluster.jobs_queued),
                    seen: cluster.observed_at.map(|at| told::when(at, now)),
                }
            })
            .collect(),
    })
}

/// A cluster's state in words.
pub(super) fn state_of(cluster: &Cluster, now: DateTime<Utc>) -> (Tone, String) {
    if let Some(since) = cluster.stale_since {
        return (
            Tone::Stale,
            format!("Not seen for {}: no worker looks at it", words::duration(now - since)),
        );
    }
    match cluster.phase.as_str() {
        "active" => (Tone::Succeeded, "Active".to_owned()),
        "pending" => (Tone::Starting, format!("Being made ready: {}", cluster.message)),
        "failed" => (Tone::Failed, format!("Failed: {}", cluster.message)),
        other => (Tone::Cancelled, words::sentence(other)),
    }
}

pub(super) fn provider(provider: Provider) -> &'static str {
    match provider {
        Provider::Local => "this machine",
        Provider::Kubeconfig => "attached",
        Provider::Eks => "EKS",
        Provider::Gke => "GKE",
    }
}

/// Cores as a bare number, since the head of the column says what it counts.
pub(super) fn cores(milli: i64) -> String {
    let text = words::cores(u64::try_from(milli).unwrap_or(0));
    text.split(' ').next().unwrap_or_default().to_owned()
}
