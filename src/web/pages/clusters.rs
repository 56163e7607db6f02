//! Where jobs run.

use askama::Template;
use axum::{extract::State, response::Html};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use trainyard_core::{
    model::{ClusterId, Provider},
    plan::words,
};

use super::{
    shown,
    sort::{self, Column, Head, Holds, Key, Placed, Sort},
    told,
    view::{Section, Shell, Tone, When},
    viewer,
};
use crate::{
    db::{
        Db, DbError, Scope,
        clusters_read::{self, Cluster},
        page_reads,
    },
    web::{
        Error, WebState,
        extract::{Asker, Params},
    },
};

#[derive(Debug, Template)]
#[template(path = "clusters.html")]
pub struct ClustersPage {
    pub shell: Shell,
    pub summary: String,
    pub heads: Vec<Head>,
    pub rows: Vec<ClusterRow>,
}

/// What the address asks for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct ClustersQuery {
    sort: Option<String>,
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

/// The columns of [`ClusterRow`].
pub const COLUMNS: [Column; 9] = [
    Column::new("State", "state", Holds::State),
    Column::new("Cluster", "name", Holds::Text),
    Column::new("Comes from", "provider", Holds::Text),
    Column::new("Nodes ready", "nodes", Holds::Number),
    Column::new("CPU free, cores", "cpu", Holds::Number),
    Column::new("GPUs free", "gpus", Holds::Number),
    Column::new("Running", "running", Holds::Number),
    Column::new("Waiting", "waiting", Holds::Number),
    Column::new("Seen", "seen", Holds::Time),
];
/// What nobody looks after first.
pub const WORST: Sort = Sort {
    word: "state",
    falls: true,
};
const SHOWN: i64 = 500;

/// `GET /clusters`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    Params(query): Params<ClustersQuery>,
) -> Result<Html<String>, Error> {
    let mut page = load(&state.db, &asker.scope(), &query, state.actions.now()).await?;
    page.shell.viewer = viewer(&asker);
    shown(&page)
}

pub async fn load(db: &Db, scope: &Scope, query: &ClustersQuery, now: DateTime<Utc>) -> Result<ClustersPage, DbError> {
    let clusters = clusters_read::list(db, scope, None, SHOWN).await?;
    let ids: Vec<ClusterId> = clusters.iter().map(|cluster| cluster.id).collect();
    let rooms = page_reads::rooms(db, &ids).await?;
    let stale = clusters.iter().filter(|cluster| cluster.stale_since.is_some()).count() as u64;
    let all = clusters.len() as u64;
    let sort = Sort::of(query.sort.as_deref(), &COLUMNS, WORST);
    let address = |sort: Option<&str>| told::address("/clusters", &[("sort", sort)]);
    let placed = clusters.iter().map(|cluster| {
        let room = rooms.get(&cluster.id);
        Placed {
            key: match sort.word {
                "name" => Key::Text(cluster.name.clone()),
                "provider" => Key::Text(provider(cluster.provider).to_owned()),
                "nodes" => Key::Number(cluster.nodes_ready),
                "cpu" => Key::Number(room.map_or(0, |room| room.cpu_milli_free)),
                "gpus" => Key::Number(room.map_or(0, |room| room.gpus_free)),
                "running" => Key::Number(cluster.jobs_active),
                "waiting" => Key::Number(cluster.jobs_queued),
                "seen" => Key::Number(cluster.observed_at.map_or(0, |at| at.timestamp_millis())),
                _ => Key::Number(match (cluster.stale_since, cluster.phase.as_str()) {
                    (Some(_), _) => 2,
                    (None, "active") => 0,
                    (None, _) => 1,
                }),
            },
            name: cluster.name.clone(),
            id: cluster.id.to_string(),
            row: cluster,
        }
    });
    let (clusters, _) = sort::page(placed.collect(), sort, None, SHOWN as usize);
    Ok(ClustersPage {
        shell: Shell {
            title: "Clusters".into(),
            section: Section::Clusters,
            live: Some("/clusters/live".into()),
            here: address(query.sort.as_deref()),
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
        heads: sort::heads(&COLUMNS, sort, |sort| address(Some(sort))),
        rows: clusters
            .into_iter()
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
