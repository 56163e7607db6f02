//! The replicas of an attempt: a row each, or a cell each once they are many.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use trainyard_core::{
    model::{JobId, ReplicaPhase},
    plan::words,
};

use super::{ReplicaRow, Replicas, load::JobQuery};
use crate::{
    db::attempts_read::Replica,
    web::pages::{
        told,
        view::{Grid, GridCell, GridGroup, GridRun, Tone},
    },
};

/// From here on a grid stands in for the table.
const MANY: usize = 64;

/// Worst first: what needs a look stands before what is well.
const ORDER: [ReplicaPhase; 7] = [
    ReplicaPhase::Failed,
    ReplicaPhase::Lost,
    ReplicaPhase::Waiting,
    ReplicaPhase::Starting,
    ReplicaPhase::Running,
    ReplicaPhase::Stopped,
    ReplicaPhase::Succeeded,
];

pub fn told(
    id: JobId,
    attempt: i32,
    rows: &[Replica],
    incarnations: &BTreeMap<(String, i32), i64>,
    query: &JobQuery,
    now: DateTime<Utc>,
) -> Replicas {
    if rows.is_empty() {
        return Replicas::default();
    }
    let parts: Vec<String> = ORDER
        .into_iter()
        .filter_map(|phase| {
            let count = rows.iter().filter(|row| row.phase == phase).count();
            (count > 0).then(|| format!("{} {}", words::count(count as i64), phase_word(phase)))
        })
        .collect();
    let summary = format!("of attempt {attempt}: {}", parts.join(", "));
    let one = query.replica.as_deref();
    let shown = |row: &&Replica| one.is_none_or(|wanted| format!("{}-{}", row.role, row.index) == wanted);
    if rows.len() > MANY && query.view.as_deref() != Some("table") && one.is_none() {
        return Replicas {
            summary,
            rows: Vec::new(),
            grid: Some(grid(id, attempt, rows)),
        };
    }
    let rows = rows
        .iter()
        .filter(shown)
        .map(|row| told_row(row, incarnations, now))
        .collect();
    Replicas {
        summary,
        rows,
        grid: None,
    }
}

pub fn phase_word(phase: ReplicaPhase) -> &'static str {
    match phase {
        ReplicaPhase::Waiting => "waiting",
        ReplicaPhase::Starting => "starting",
        ReplicaPhase::Running => "running",
        ReplicaPhase::Succeeded => "succeeded",
        ReplicaPhase::Failed => "failed",
        ReplicaPhase::Stopped => "ended by Trainyard",
        ReplicaPhase::Lost => "lost",
    }
}

fn told_row(row: &Replica, incarnations: &BTreeMap<(String, i32), i64>, now: DateTime<Utc>) -> ReplicaRow {
    let span = row
        .started_at
        .map(|from| words::duration(row.ended_at.unwrap_or(now) - from));
    let ended = match (row.exit_code, row.exit_signal, row.oom) {
        (_, _, true) => Some("out of memory".to_owned()),
        (_, Some(signal), _) => Some(format!("ended by signal {signal}")),
        (Some(code), _, _) if code != 0 => Some(format!("exit code {code}")),
        _ => None,
    };
    let sentence = match (row.phase, ended, span) {
        (ReplicaPhase::Failed, Some(ended), Some(span)) => format!("{ended} after {span}"),
        (ReplicaPhase::Failed, None, _) => format!("failed: {}", row.message),
        (ReplicaPhase::Running | ReplicaPhase::Succeeded, _, Some(span)) => format!("{} {span}", phase_word(row.phase)),
        (ReplicaPhase::Waiting | ReplicaPhase::Starting | ReplicaPhase::Lost, _, _) if !row.message.is_empty() => {
            format!("{}: {}", phase_word(row.phase), row.message)
        }
        (phase, _, _) => phase_word(phase).to_owned(),
    };
    let restarts = incarnations
        .get(&(row.role.clone(), row.index))
        .map_or(0, |count| (count - 1).max(0));
    ReplicaRow {
        rank: u32::try_from(row.rank).unwrap_or(0),
        key: format!("{}-{}", row.role, row.index),
        tone: told::replica_tone(row.phase),
        sentence,
        node: row
            .node
            .as_ref()
            .map(|node| (node.name.clone(), format!("/nodes/{}", node.id))),
        step: row.step.map(words::count).unwrap_or_default(),
        last_output: row.last_output_at.map(|at| told::when(at, now)),
        restarts: words::count(restarts),
    }
}

fn grid(id: JobId, attempt: i32, rows: &[Replica]) -> Grid {
    let mut roles: Vec<&str> = Vec::new();
    for row in rows {
        if !roles.contains(&row.role.as_str()) {
            roles.push(&row.role);
        }
    }
    let mut legend: Vec<(Tone, String)> = Vec::new();
    let groups = roles
        .into_iter()
        .map(|role| {
            let of_role: Vec<&Replica> = rows.iter().filter(|row| row.role == role).collect();
            let runs = ORDER
                .into_iter()
                .filter_map(|phase| {
                    let cells: Vec<GridCell> = of_role
                        .iter()
                        .filter(|row| row.phase == phase)
                        .map(|row| GridCell {
                            name: format!("{role}-{}", row.index),
                            // A role has letters, digits and dashes alone, so the address needs no quotes.
                            href: format!("?replica={role}-{}#replicas", row.index),
                        })
                        .collect();
                    if cells.is_empty() {
                        return None;
                    }
                    let (tone, word) = (told::replica_tone(phase), phase_word(phase));
                    if !legend.iter().any(|(known, _)| *known == tone) {
                        legend.push((tone, word.to_owned()));
                    }
                    Some(GridRun {
                        tone,
                        label: format!("{} {word}", words::count(cells.len() as i64)),
                        cells,
                    })
                })
                .collect();
            GridGroup {
                label: role.to_owned(),
                summary: words::counted(of_role.len() as u64, "replica"),
                runs,
            }
        })
        .collect();
    Grid {
        groups,
        legend,
        table: format!("/jobs/{id}?attempt={attempt}&view=table#replicas"),
    }
}
