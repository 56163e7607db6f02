//! All nodes: a cell each, worst first, with a table as the alternative.

use askama::Template;
use axum::{
    extract::State,
    response::{Html, Redirect},
};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use trainyard_core::{model::NodeId, plan::words};

pub mod table;

use super::{
    found, shown,
    sort::{self, Head, Sort},
    told,
    view::{Choice, Grid, GridCell, GridGroup, GridRun, Pages, Section, Shell, Tone},
    viewer,
};
use crate::{
    db::{
        Db, DbError, Scope, clusters_read,
        nodes_read::Node,
        page_reads::{self, Cell},
    },
    web::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
    },
};
pub use table::{NodeRow, NodeRowFragment};

#[derive(Debug, Clone, Template)]
#[template(path = "nodes.html", blocks = ["choices", "nodes"])]
pub struct NodesPage {
    pub shell: Shell,
    /// `2 of 12 nodes are not ready`.
    pub summary: String,
    pub choices: Vec<Choice>,
    /// The grid, or else the rows.
    pub grid: Option<Grid>,
    pub grid_href: String,
    /// Not all nodes are asked for.
    pub filtered: bool,
    pub heads: Vec<Head>,
    pub rows: Vec<NodeRow>,
    pub pages: Pages,
}

/// What the address asks for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct NodesQuery {
    /// `table` or `grid`; left out, many nodes are a grid and few a table.
    view: Option<String>,
    /// `not-ready`, `critical`, `stale`, `warning`, `ready`.
    state: Option<String>,
    /// A cluster's id or name.
    cluster: Option<String>,
    /// A column of the table.
    sort: Option<String>,
    /// The place of the last node on the page before.
    after: Option<String>,
}

const MOST: i64 = 20_000;
/// From here on a grid says more than a table.
const MANY: usize = 50;

/// A node's state as the grid and the filters know it, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Health {
    NotReady,
    Critical,
    Stale,
    Warning,
    Ready,
}

impl Health {
    const ALL: [Health; 5] = [
        Health::NotReady,
        Health::Critical,
        Health::Stale,
        Health::Warning,
        Health::Ready,
    ];

    fn of(phase: &str, stale: bool, troubles: i64, critical: i64) -> Self {
        match (phase, stale, troubles, critical) {
            (_, true, ..) => Health::Stale,
            ("ready", _, 0, _) => Health::Ready,
            ("ready", _, _, 0) => Health::Warning,
            ("ready", ..) => Health::Critical,
            _ => Health::NotReady,
        }
    }

    fn badness(self) -> i64 {
        let place = Health::ALL.iter().position(|known| *known == self);
        (Health::ALL.len() - place.unwrap_or(0)) as i64
    }

    fn tone(self) -> Tone {
        match self {
            Health::NotReady => Tone::Failed,
            Health::Critical => Tone::Critical,
            Health::Stale => Tone::Stale,
            Health::Warning => Tone::Warning,
            Health::Ready => Tone::Succeeded,
        }
    }

    /// In the address, as a choice, and in the legend.
    fn words(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Health::NotReady => ("not-ready", "Not ready", "not ready"),
            Health::Critical => ("critical", "Critical", "ready, but critical"),
            Health::Stale => ("stale", "Not seen lately", "not seen lately"),
            Health::Warning => ("warning", "With a warning", "ready, with a warning"),
            Health::Ready => ("ready", "Ready", "ready"),
        }
    }
}

fn health(cell: &Cell) -> Health {
    Health::of(&cell.phase, cell.stale_since.is_some(), cell.troubles, cell.critical)
}

/// `GET /nodes`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    Params(query): Params<NodesQuery>,
) -> Result<Html<String>, Error> {
    let mut page = load(&state.db, &asker.scope(), &query, state.actions.now()).await?;
    page.shell.viewer = viewer(&asker);
    shown(&page)
}

/// `GET /n/{tail}`: from a cell of the grid to the node.
pub async fn by_tail(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(tail): PathOf<String>,
) -> Result<Redirect, Error> {
    let node = page_reads::node_by_tail(&state.db, &asker.scope(), &tail).await;
    Ok(Redirect::to(&format!("/nodes/{}", found("node", &tail, node)?)))
}

pub async fn load(db: &Db, scope: &Scope, query: &NodesQuery, now: DateTime<Utc>) -> Result<NodesPage, DbError> {
    let wanted = query.cluster.as_deref().filter(|name| !name.is_empty());
    let cluster = match wanted {
        Some(text) => match text.parse() {
            Ok(id) => Some(id),
            Err(_) => clusters_read::by_name(db, scope, text).await?,
        },
        None => None,
    };
    let cells = match (wanted, cluster) {
        (Some(_), None) => Vec::new(),
        _ => page_reads::cells(db, scope, cluster, MOST).await?,
    };
    let count = |health_wanted: Health| cells.iter().filter(|cell| health(cell) == health_wanted).count();
    let state = query
        .state
        .as_deref()
        .and_then(|word| Health::ALL.into_iter().find(|health| health.words().0 == word));
    let shown: Vec<&Cell> = cells
        .iter()
        .filter(|cell| state.is_none_or(|state| health(cell) == state))
        .collect();
    let address = |changes: &[(&str, Option<&str>)]| {
        let mut pairs = vec![
            ("view", query.view.as_deref()),
            ("state", query.state.as_deref()),
            ("cluster", wanted),
            ("sort", query.sort.as_deref()),
        ];
        for (name, value) in changes {
            pairs.retain(|(known, _)| known != name);
            pairs.push((name, *value));
        }
        told::address("/nodes", &pairs)
    };
    let as_grid = match query.view.as_deref() {
        Some("grid") => true,
        Some("table") => false,
        _ => shown.len() > MANY,
    };
    let sort = Sort::of(query.sort.as_deref(), &table::COLUMNS, table::WORST);
    let (rows, next) = if as_grid {
        (Vec::new(), None)
    } else {
        table::page(db, &shown, sort, query.after.as_deref(), now).await?
    };
    let as_table = |name: &str, value: &str| address(&[("view", Some("table")), (name, Some(value))]);
    let (bad, critical) = (count(Health::NotReady), count(Health::Critical));
    let choices = std::iter::once(Choice {
        label: "All".into(),
        href: address(&[("state", None)]),
        current: state.is_none(),
        count: Some(words::count(cells.len() as i64)),
    })
    .chain(Health::ALL.into_iter().map(|health| Choice {
        label: health.words().1.to_owned(),
        href: address(&[("state", Some(health.words().0))]),
        current: state == Some(health),
        count: Some(words::count(count(health) as i64)),
    }))
    .collect();
    Ok(NodesPage {
        shell: Shell {
            title: title(bad, critical),
            section: Section::Nodes,
            live: Some(address(&[("after", query.after.as_deref())]).replacen("/nodes", "/nodes/live", 1)),
            here: address(&[]),
            wide: as_grid,
            ..Shell::default()
        },
        summary: summary(cells.len(), bad, critical, count(Health::Stale), count(Health::Warning)),
        choices,
        grid: (as_grid && !shown.is_empty()).then(|| grid(&shown, address(&[("view", Some("table"))]))),
        grid_href: address(&[("view", Some("grid"))]),
        filtered: state.is_some() || wanted.is_some(),
        rows,
        heads: sort::heads(&table::COLUMNS, sort, |sort| as_table("sort", sort)),
        pages: Pages {
            first: query.after.as_ref().map(|_| address(&[])),
            next: next.map(|after| as_table("after", &after)),
        },
    })
}

fn title(not_ready: usize, critical: usize) -> String {
    let known = [(not_ready, "not ready"), (critical, "critical")];
    let parts: Vec<String> = known
        .into_iter()
        .filter(|(number, _)| *number > 0)
        .map(|(number, word)| format!("{} {word}", words::count(number as i64)))
        .collect();
    match parts.is_empty() {
        true => "Nodes".into(),
        false => format!("{} · Nodes", parts.join(", ")),
    }
}

fn summary(all: usize, not_ready: usize, critical: usize, stale: usize, warning: usize) -> String {
    let count = |number: usize| words::count(number as i64);
    if all == 0 {
        return "No node is known yet.".into();
    }
    if not_ready + critical + stale + warning == 0 {
        return match all {
            1 => "The one node is ready.".into(),
            all => format!("All {} nodes are ready.", count(all)),
        };
    }
    let kinds = [
        (not_ready, "not ready"),
        (critical, "ready, but critical"),
        (stale, "not seen lately"),
        (warning, "ready with a warning"),
    ];
    let parts = kinds.into_iter().filter(|(number, _)| *number > 0).enumerate();
    let parts: Vec<String> = parts
        .map(|(place, (number, what))| match place {
            // The first says of how many.
            0 => format!("{} of {} {what}", count(number), words::counted(all as u64, "node")),
            _ => format!("{} {what}", count(number)),
        })
        .collect();
    format!("{}.", parts.join(", "))
}

/// What needs a look first, over all pools; then what is ready, pool by pool.
fn grid(cells: &[&Cell], table: String) -> Grid {
    let mut grid = Grid {
        table,
        ..Grid::default()
    };
    for ready in [false, true] {
        let mut place: Option<(&str, Option<&str>)> = None;
        for cell in cells.iter().filter(|cell| (health(cell) == Health::Ready) == ready) {
            let here = (cell.cluster.as_str(), cell.pool.as_deref());
            if place != Some(here) {
                place = Some(here);
                let pool = here.1.map(|pool| format!(", pool {pool}")).unwrap_or_default();
                let what = if ready { "" } else { ": needs a look" };
                grid.groups.push(GridGroup {
                    label: format!("{}{pool}{what}", here.0),
                    summary: String::new(),
                    runs: Vec::new(),
                });
            }
            let Some(group) = grid.groups.last_mut() else { continue };
            let health = health(cell);
            let tone = health.tone();
            if !group.runs.iter().any(|run| run.tone == tone) {
                group.runs.push(GridRun {
                    tone,
                    label: String::new(),
                    cells: Vec::new(),
                });
            }
            if let Some(run) = group.runs.iter_mut().find(|run| run.tone == tone) {
                run.cells.push(GridCell {
                    name: short(&cell.name),
                    href: format!("/n/{}", tail(cell.id)),
                });
                run.label = format!("{} {}", words::count(run.cells.len() as i64), health.words().2);
            }
        }
    }
    for group in &mut grid.groups {
        let nodes: usize = group.runs.iter().map(|run| run.cells.len()).sum();
        group.summary = words::counted(nodes as u64, "node");
        group
            .runs
            .sort_by_key(|run| Health::ALL.iter().position(|health| health.tone() == run.tone));
    }
    grid.legend = Health::ALL
        .into_iter()
        .filter(|wanted| cells.iter().any(|cell| health(cell) == *wanted))
        .map(|health| (health.tone(), health.words().2.to_owned()))
        .collect();
    grid
}

/// Clouds give every node of a region the same long ending.
fn short(name: &str) -> String {
    match name.split_once('.') {
        Some((first, rest)) if rest.ends_with(".internal") => first.to_owned(),
        _ => name.to_owned(),
    }
}

fn tail(id: NodeId) -> String {
    let text = id.0.simple().to_string();
    text[text.len() - 10..].to_owned()
}

/// A node's state in words.
pub(super) fn state_of(node: &Node, now: DateTime<Utc>) -> (Tone, String) {
    if let Some(at) = node.gone_at {
        return (Tone::Cancelled, format!("Gone, {}", words::relative(at, now)));
    }
    let health = Health::of(&node.phase, node.stale_since.is_some(), node.troubles, node.critical);
    (health.tone(), told_health(health, node.into(), now))
}

/// What a node's state in words is made from.
struct Told<'a> {
    message: &'a str,
    troubles: i64,
    critical: i64,
    seen: DateTime<Utc>,
}

impl<'a> From<&'a Cell> for Told<'a> {
    fn from(cell: &'a Cell) -> Self {
        Told {
            message: &cell.message,
            troubles: cell.troubles,
            critical: cell.critical,
            seen: cell.stale_since.unwrap_or(cell.observed_at),
        }
    }
}

impl<'a> From<&'a Node> for Told<'a> {
    fn from(node: &'a Node) -> Self {
        Told {
            message: &node.message,
            troubles: node.troubles,
            critical: node.critical,
            seen: node.stale_since.unwrap_or(node.observed_at),
        }
    }
}

fn told_health(health: Health, told: Told<'_>, now: DateTime<Utc>) -> String {
    match health {
        Health::Stale => format!(
            "Not seen for {}: no worker looks at its cluster",
            words::duration(now - told.seen)
        ),
        Health::NotReady => format!("Not ready: {}", told.message),
        Health::Critical => match told.troubles - told.critical {
            0 => format!("Ready, but {} critical", words::count(told.critical)),
            rest => format!(
                "Ready, but {} critical, with {}",
                words::count(told.critical),
                words::counted(rest.unsigned_abs(), "warning")
            ),
        },
        Health::Warning => format!(
            "Ready, with {}",
            words::counted(told.troubles.unsigned_abs(), "warning")
        ),
        Health::Ready => "Ready".to_owned(),
    }
}

#[cfg(test)]
mod tests;
