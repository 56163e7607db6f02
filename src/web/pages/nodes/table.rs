//! Nodes as a table, sorted by any column: all of them are at hand anyway, since they are counted.

use askama::Template;
use chrono::{DateTime, Utc};
use trainyard_core::{model::NodeId, plan::words};

use super::{Health, health, tail, told_health};
use crate::{
    db::{
        Db, DbError,
        page_reads::{self, Cell},
    },
    web::pages::{
        clusters::cores,
        sort::{self, Column, Holds, Key, Placed, Sort},
        told,
        view::{Tone, When},
    },
};

#[derive(Debug, Clone, Template)]
#[template(
    source = "{% import \"parts.html\" as parts %}{% include \"node_row.html\" %}",
    ext = "html"
)]
pub struct NodeRowFragment {
    pub row: NodeRow,
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

/// The columns of [`NodeRow`].
pub const COLUMNS: [Column; 8] = [
    Column::new("State", "state", Holds::State),
    Column::new("Node", "name", Holds::Text),
    Column::new("Cluster, pool", "place", Holds::Text),
    Column::new("CPU, cores", "cpu", Holds::Number),
    Column::new("Memory, GiB", "memory", Holds::Number),
    Column::new("GPUs", "gpus", Holds::Number),
    Column::new("Replicas", "replicas", Holds::Number),
    Column::new("Seen", "seen", Holds::Time),
];
pub const WORST: Sort = Sort {
    word: "state",
    falls: true,
};
const PAGE: usize = 50;

/// A page of rows, and where the next one begins.
pub(super) async fn page(
    db: &Db,
    cells: &[&Cell],
    sort: Sort,
    after: Option<&str>,
    now: DateTime<Utc>,
) -> Result<(Vec<NodeRow>, Option<String>), DbError> {
    let ids = |cells: &[&Cell]| cells.iter().map(|cell| cell.id).collect::<Vec<NodeId>>();
    let mut replicas = match sort.word {
        "replicas" => page_reads::replicas_on(db, &ids(cells)).await?,
        _ => Default::default(),
    };
    let placed = cells.iter().map(|&cell| Placed {
        key: match sort.word {
            "name" => Key::Text(cell.name.clone()),
            "place" => Key::Text(place(cell)),
            "cpu" => Key::Number(cell.cpu_milli),
            "memory" => Key::Number(cell.memory_bytes),
            "gpus" => Key::Number(cell.gpus),
            "replicas" => Key::Number(replicas.get(&cell.id).copied().unwrap_or(0)),
            "seen" => Key::Number(cell.observed_at.timestamp_millis()),
            _ => Key::Number(health(cell).badness()),
        },
        name: cell.name.clone(),
        id: tail(cell.id),
        row: cell,
    });
    let (page, next) = sort::page(placed.collect(), sort, after, PAGE);
    if sort.word != "replicas" {
        replicas = page_reads::replicas_on(db, &ids(&page)).await?;
    }
    let worst = page_reads::worst_on(db, &ids(&page)).await?;
    let row = |cell: &Cell| {
        let worst = worst.get(&cell.id).map(String::as_str);
        row(cell, worst, replicas.get(&cell.id).copied().unwrap_or(0), now)
    };
    Ok((page.into_iter().map(row).collect(), next))
}

fn place(cell: &Cell) -> String {
    let pool = cell.pool.as_ref().map(|pool| format!(", {pool}")).unwrap_or_default();
    format!("{}{pool}", cell.cluster)
}

fn row(cell: &Cell, worst: Option<&str>, replicas: i64, now: DateTime<Utc>) -> NodeRow {
    let health = health(cell);
    NodeRow {
        id: cell.id.to_string(),
        tone: health.tone(),
        sentence: match (told_health(health, cell.into(), now), worst) {
            (sentence, Some(worst)) if matches!(health, Health::Critical | Health::Warning) => {
                format!("{sentence}: {worst}")
            }
            (sentence, _) => sentence,
        },
        name: cell.name.clone(),
        place: place(cell),
        cpu: cores(cell.cpu_milli),
        memory: format!("{:.1}", cell.memory_bytes as f64 / 1_073_741_824.0),
        gpus: words::count(cell.gpus),
        replicas: words::count(replicas),
        seen: told::when(cell.observed_at, now),
    }
}
