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
    /// The same for a narrow screen, where the text of a large one can't be read.
    pub small: Option<Plot>,
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
/// Said where the outlines of long series stand in for them.
const THINNED: &str =
    " So many points are told by the lowest and the highest of each 128; a smaller part shows every one.";
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
    let owner = Owner::Job(key);
    let (whole, _) = metrics::outline(&state.db, owner, &selection).await?;
    let used = series == job::measures::CPU || series == job::measures::MEMORY;
    let by_step = !used && whole.values().flatten().any(|point| point.step.is_some());
    let path = format!("/jobs/{id}/numbers/{}", told::encoded(&series));
    let kept = ("attempt", attempt.to_string());
    let (place, range) = placed(path, kept, &query, &whole, by_step)?;
    let (points, thinned) = metrics::outline(&state.db, owner, &range.of(selection)).await?;
    let replicas = attempts_read::replicas(&state.db, &home, attempt, None, job::load::REPLICAS).await?;
    let draw = |size| job::measures::plot(id, attempt, &series, &points, &replicas, size);
    let (plot, small) = (draw(Size::Large), draw(Size::Small));
    let (title, unit, scale) = job::measures::called(&series, job::measures::most(&points));
    let (columns, rows, cut) = table(&points, by_step, unit, scale);
    let cut = cut + if thinned { THINNED } else { "" };
    let api = format!(
        "/api/v1/jobs/{id}/metrics?attempt={attempt}&series={}",
        told::encoded(&series)
    );
    shown(&NumbersPage {
        shell: Shell {
            title: format!("{title} of {}", home.name),
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
        heading: format!("{title} of {}", home.name),
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
        small,
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
    let owner = Owner::Node(id);
    let (whole, _) = metrics::outline(&state.db, owner, &selection).await?;
    let path = format!("/nodes/{id}/numbers/{}", told::encoded(&series));
    let (place, part) = placed(path, ("range", range.to_owned()), &query, &whole, false)?;
    let (points, thinned) = metrics::outline(&state.db, owner, &part.of(selection)).await?;
    let draw = |size| node::measures::plots(id, range, &points, state.actions.now(), size).pop();
    let (plot, small) = (draw(Size::Large), draw(Size::Small));
    let (title, unit, scale, _) = node::measures::called(&series);
    let told = points
        .iter()
        .map(|(key, points)| (key.clone(), node::measures::shown(&series, points)));
    let (columns, rows, cut) = table(&told.collect(), false, unit, scale);
    let cut = cut + if thinned { THINNED } else { "" };
    let api = format!(
        "/api/v1/nodes/{id}/metrics?series={}&since={}",
        told::encoded(&series),
        since.format("%Y-%m-%dT%H:%M:%SZ")
    );
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
        about: format!("In the last {label}, by time.{cut}"),
        place,
        plot,
        small,
        csv: format!("{api}&format=csv"),
        json: api,
        columns,
        rows,
    })
}

type Series = BTreeMap<SeriesKey, Vec<Point>>;

/// The part that is asked for, and where that lies in all that there is.
fn placed(
    path: String,
    kept: (&'static str, String),
    query: &NumbersQuery,
    whole: &Series,
    by_step: bool,
) -> Result<(Place, Range), Error> {
    let range = Range::parse(query.from.as_deref(), query.to.as_deref(), by_step)?;
    let mut place = Place {
        path,
        kept,
        ..Place::default()
    };
    let places = whole
        .values()
        .flatten()
        .filter_map(|point| range::place(point, by_step));
    range.write(&mut place, places);
    Ok((place, range))
}

/// One row a step or time, one column a replica, the newest first. Says what did not fit.
fn table(points: &Series, by_step: bool, unit: &str, scale: f64) -> (Vec<String>, Vec<Vec<String>>, String) {
    let shown: Vec<(&SeriesKey, BTreeMap<i64, f64>)> = points
        .iter()
        .take(COLUMNS)
        .map(|(key, points)| {
            (
                key,
                points
                    .iter()
                    .filter_map(|point| Some((range::place(point, by_step)?, point.value / scale)))
                    .collect(),
            )
        })
        .collect();
    let places: BTreeSet<i64> = shown.iter().flat_map(|(_, values)| values.keys().copied()).collect();
    let mut columns = vec![if by_step { "Step" } else { "Time, UTC" }.to_owned()];
    columns.extend(shown.iter().map(|(key, _)| {
        let name = (key.replica.as_ref()).map_or_else(|| "Value".to_owned(), ToString::to_string);
        match unit {
            "" => name,
            unit => format!("{name}, {unit}"),
        }
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
                .map(|(_, values)| values.get(&place).map(|value| figure(*value)).unwrap_or_default());
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

/// A value in a table: whole numbers whole, others with six digits that count; the CSV has all of them.
fn figure(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        return "0".to_owned();
    }
    if !value.is_finite() || (value.fract() == 0.0 && size < 1e15) {
        return format!("{value}");
    }
    if !(1e-4..1e15).contains(&size) {
        let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
        return format!("{rounded:e}");
    }
    let digits = (5 - size.log10().floor() as i32).clamp(0, 9) as usize;
    let text = format!("{value:.digits$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
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
        let (columns, rows, cut) = table(&points, true, "", 1.0);
        assert_eq!(columns, ["Step", "worker-0", "worker-1"]);
        assert_eq!(rows, [["2", "0.25", "NaN"], ["1", "0.5", ""]]);
        assert_eq!(cut, "");
        let (columns, rows, _) = table(&points, true, "% of a core", 0.01);
        assert_eq!(
            (columns[1].as_str(), rows[1][1].as_str()),
            ("worker-0, % of a core", "50")
        );
    }

    #[test]
    fn figures_have_the_digits_that_count() {
        let values = [
            0.1859,
            0.00022808197780826864,
            1_234_567.0,
            1_234_567.5,
            3e-5,
            -0.0,
            f64::NAN,
        ];
        let said = values.map(figure);
        assert_eq!(
            said,
            ["0.1859", "0.000228082", "1234567", "1234568", "3e-5", "0", "NaN"]
        );
    }
}
