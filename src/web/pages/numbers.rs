//! The numbers behind a plot, as a table.

use std::collections::{BTreeMap, BTreeSet};

use askama::Template;
use axum::{extract::State, response::Html};
use chrono::DateTime;
use serde::Deserialize;
use trainyard_core::{
    model::{JobId, NodeId},
    plan::words,
};

pub mod range;

use super::{
    found, job, node, shown, told,
    view::{Crumb, Plot, Section, Shell},
    viewer,
};
use crate::{
    db::{
        attempts_read, jobs_read, logs,
        metrics::{self, Owner, Point, Selection, SeriesKey},
        nodes_read,
    },
    web::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
        plot::Size,
    },
};
pub use range::{Place, Range};

#[derive(Debug, Template)]
#[template(path = "numbers.html")]
pub struct NumbersPage {
    pub shell: Shell,
    pub heading: String,
    pub about: String,
    pub place: Place,
    pub plot: Option<Plot>,
    pub csv: String,
    pub json: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

/// What the address asks for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct NumbersQuery {
    attempt: Option<i32>,
    range: Option<String>,
    /// The part to look at: steps, or moments.
    from: Option<String>,
    to: Option<String>,
}

/// A table longer than this says so; the API has all points.
const ROWS: usize = 1_000;
/// So many replicas have a column each.
const COLUMNS: usize = 16;

/// `GET /jobs/{job}/numbers/{series}`.
pub async fn of_job(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((id, series)): PathOf<(JobId, String)>,
    Params(query): Params<NumbersQuery>,
) -> Result<Html<String>, Error> {
    let scope = asker.scope();
    let home = found("job", id, jobs_read::home(&state.db, &scope, id).await)?;
    let key = found("job", id, logs::readable(&state.db, &scope, id).await)?;
    let attempt = query.attempt.unwrap_or(home.attempt);
    let names = [series.clone()];
    let selection = Selection {
        attempt: Some(attempt),
        names: &names,
        ..Selection::default()
    };
    let points = metrics::read(&state.db, Owner::Job(key), &selection).await?;
    let used = series == job::measures::CPU || series == job::measures::MEMORY;
    let by_step = !used && points.values().flatten().any(|point| point.step.is_some());
    let path = format!("/jobs/{id}/numbers/{}", told::encoded(&series));
    let kept = ("attempt", attempt.to_string());
    let (place, points) = narrowed(path, kept, &query, points, by_step)?;
    let replicas = attempts_read::replicas(&state.db, &home, attempt, None, job::load::REPLICAS).await?;
    let plot = job::measures::plot(id, attempt, &series, &points, &replicas, Size::Large);
    let (columns, rows, cut) = table(&points, by_step);
    let api = format!(
        "/api/v1/jobs/{id}/metrics?attempt={attempt}&name={}",
        told::encoded(&series)
    );
    shown(&NumbersPage {
        shell: Shell {
            title: format!("{series} of {}", home.name),
            section: Section::Jobs,
            crumbs: vec![
                Crumb {
                    label: "Jobs".into(),
                    href: "/jobs".into(),
                },
                Crumb {
                    label: home.name.clone(),
                    href: format!("/jobs/{id}"),
                },
            ],
            viewer: viewer(&asker),
            here: format!("/jobs/{id}/numbers/{}?attempt={attempt}", told::encoded(&series)),
            ..Shell::default()
        },
        heading: format!("{series} of {}", home.name),
        about: format!(
            "Attempt {attempt}, {}{}.{cut}",
            if by_step { "by step" } else { "by time" },
            if used {
                ", as the worker measured it"
            } else {
                ", as the job reported it"
            },
        ),
        place,
        plot,
        csv: format!("{api}&format=csv"),
        json: api,
        columns,
        rows,
    })
}

/// `GET /nodes/{node}/numbers/{series}`.
pub async fn of_node(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((id, series)): PathOf<(NodeId, String)>,
    Params(query): Params<NumbersQuery>,
) -> Result<Html<String>, Error> {
    let node = found("node", id, nodes_read::get(&state.db, &asker.scope(), id).await)?;
    let (range, label, span) = node::measures::range(query.range.as_deref());
    let since = state.actions.now() - span;
    let names = [series.clone()];
    let selection = Selection {
        names: &names,
        since: Some(since),
        ..Selection::default()
    };
    let points = metrics::read(&state.db, Owner::Node(id), &selection).await?;
    let path = format!("/nodes/{id}/numbers/{}", told::encoded(&series));
    let (place, points) = narrowed(path, ("range", range.to_owned()), &query, points, false)?;
    let plot = node::measures::plots(id, range, &points, state.actions.now(), Size::Large).pop();
    let (columns, rows, cut) = table(&points, false);
    let (title, unit, ..) = node::measures::called(&series);
    let api = format!(
        "/api/v1/nodes/{id}/metrics?name={}&since={}",
        told::encoded(&series),
        since.format("%Y-%m-%dT%H:%M:%SZ")
    );
    let unit = if unit.is_empty() || series.ends_with("bytes") {
        ""
    } else {
        unit
    };
    shown(&NumbersPage {
        shell: Shell {
            title: format!("{title} of {}", node.name),
            section: Section::Nodes,
            crumbs: vec![
                Crumb {
                    label: "Nodes".into(),
                    href: "/nodes".into(),
                },
                Crumb {
                    label: node.name.clone(),
                    href: format!("/nodes/{id}"),
                },
            ],
            viewer: viewer(&asker),
            here: format!("/nodes/{id}/numbers/{}?range={range}", told::encoded(&series)),
            ..Shell::default()
        },
        heading: format!("{title} of {}", node.name),
        about: format!(
            "In the last {label}, by time{}.{cut}",
            if unit.is_empty() {
                String::new()
            } else {
                format!(", in {unit}")
            }
        ),
        place,
        plot,
        csv: format!("{api}&format=csv"),
        json: api,
        columns,
        rows,
    })
}

type Series = BTreeMap<SeriesKey, Vec<Point>>;

/// The part of the points that is asked for, and where that lies in all of them.
fn narrowed(
    path: String,
    kept: (&'static str, String),
    query: &NumbersQuery,
    mut points: Series,
    by_step: bool,
) -> Result<(Place, Series), Error> {
    let range = Range::parse(query.from.as_deref(), query.to.as_deref(), by_step)?;
    let mut place = Place {
        path,
        kept,
        ..Place::default()
    };
    let places = points
        .values()
        .flatten()
        .filter_map(|point| range::place(point, by_step));
    range.write(&mut place, places, by_step);
    for series in points.values_mut() {
        series.retain(|point| range::place(point, by_step).is_some_and(|at| range.has(at)));
    }
    Ok((place, points))
}

/// One row a step or time, one column a replica, the newest first. Says what did not fit.
fn table(points: &Series, by_step: bool) -> (Vec<String>, Vec<Vec<String>>, String) {
    let shown: Vec<(&SeriesKey, BTreeMap<i64, f64>)> = points
        .iter()
        .take(COLUMNS)
        .map(|(key, points)| {
            (
                key,
                points
                    .iter()
                    .filter_map(|point| Some((range::place(point, by_step)?, point.value)))
                    .collect(),
            )
        })
        .collect();
    let places: BTreeSet<i64> = shown.iter().flat_map(|(_, values)| values.keys().copied()).collect();
    let mut columns = vec![if by_step { "Step" } else { "Time, UTC" }.to_owned()];
    columns.extend(shown.iter().map(|(key, _)| {
        key.replica
            .as_ref()
            .map_or_else(|| "Value".to_owned(), ToString::to_string)
    }));
    let rows = places
        .iter()
        .rev()
        .take(ROWS)
        .map(|&place| {
            let first = match by_step {
                true => words::count(place),
                false => DateTime::from_timestamp_millis(place)
                    .map(|at| at.format("%Y-%m-%d %H:%M:%S").to_string())
                    .unwrap_or_default(),
            };
            let values = shown
                .iter()
                .map(|(_, values)| values.get(&place).map(|value| format!("{value}")).unwrap_or_default());
            std::iter::once(first).chain(values).collect()
        })
        .collect();
    let mut cut = String::new();
    if places.len() > ROWS {
        cut.push_str(&format!(
            " The newest {} of {} rows are shown.",
            words::count(ROWS as i64),
            words::count(places.len() as i64)
        ));
    }
    if points.len() > COLUMNS {
        cut.push_str(&format!(
            " The first {COLUMNS} of {} replicas are shown.",
            words::count(points.len() as i64)
        ));
    }
    (columns, rows, cut)
}

#[cfg(test)]
mod tests {
    use trainyard_core::model::ReplicaKey;

    use super::*;

    #[test]
    fn ranks_stand_side_by_side_and_what_is_missing_stays_blank() {
        let key = |index| SeriesKey {
            attempt: 1,
            replica: Some(ReplicaKey {
                role: "worker".into(),
                index,
            }),
            name: "loss".into(),
        };
        let point = |step, value| Point {
            step: Some(step),
            at: 0,
            value,
        };
        let points = BTreeMap::from([
            (key(0), vec![point(1, 0.5), point(2, 0.25)]),
            (key(1), vec![point(2, f64::NAN)]),
        ]);
        let (columns, rows, cut) = table(&points, true);
        assert_eq!(columns, ["Step", "worker-0", "worker-1"]);
        assert_eq!(rows, [["2", "0.25", "NaN"], ["1", "0.5", ""]]);
        assert_eq!(cut, "");
    }
}
