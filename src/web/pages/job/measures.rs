//! A job's numbers as plots: what it prints by step, what its replicas use by time.

use std::collections::BTreeMap;

use trainyard_core::{
    kinds::rendezvous::RANK,
    model::{JobId, ReplicaKey},
    plan::words,
};

use crate::{
    db::{
        attempts_read::Replica,
        metrics::{Point, SeriesKey},
    },
    web::{
        pages::{told, view::Plot},
        plot::{self, Chart, Horizontal, Line, Size},
    },
};

/// Written by the worker for every replica.
pub const CPU: &str = "cpu_cores";
pub const MEMORY: &str = "memory_bytes";
/// A job that prints fifty series gets the first of them; all are in the API.
const SERIES: usize = 8;
const GIB: f64 = 1_073_741_824.0;

type Series = BTreeMap<SeriesKey, Vec<Point>>;

pub fn plots(id: JobId, attempt: i32, series: &Series, replicas: &[Replica]) -> Vec<Plot> {
    let mut names: Vec<&str> = Vec::new();
    for key in series.keys() {
        if key.name != CPU && key.name != MEMORY && !names.contains(&key.name.as_str()) {
            names.push(&key.name);
        }
    }
    // The loss is what everybody looks for first.
    names.sort_by_key(|name| {
        (
            !name.eq_ignore_ascii_case("loss"),
            !name.to_lowercase().contains("loss"),
        )
    });
    names.truncate(SERIES);
    names.extend([CPU, MEMORY]);
    names
        .into_iter()
        .filter_map(|name| plot(id, attempt, name, series, replicas, Size::Small))
        .collect()
}

/// A series as people call it, its unit, and what its values are divided by.
pub fn called(name: &str, most: f64) -> (String, &'static str, f64) {
    match name {
        CPU if most < 1.0 => ("CPU".into(), "% of a core", 0.01),
        CPU => ("CPU".into(), "cores", 1.0),
        MEMORY if most < GIB / 2.0 => ("Memory".into(), "MiB", GIB / 1024.0),
        MEMORY => ("Memory".into(), "GiB", GIB),
        other => (other.to_owned(), "", 1.0),
    }
}

/// The largest value of some series.
pub fn most(series: &Series) -> f64 {
    let values = series.values().flatten().map(|point| point.value);
    values.filter(|value| value.is_finite()).fold(0.0, f64::max)
}

/// One series of all replicas.
pub fn plot(id: JobId, attempt: i32, name: &str, series: &Series, replicas: &[Replica], size: Size) -> Option<Plot> {
    let mine = |key: &SeriesKey| key.name == name && key.attempt == attempt;
    let values = series
        .iter()
        .filter(|(key, _)| mine(key))
        .flat_map(|(_, points)| points)
        .map(|point| point.value);
    let (title, unit, scale) = called(name, values.fold(0.0, f64::max));
    let used = name == CPU || name == MEMORY;
    let ranks: BTreeMap<ReplicaKey, u32> = replicas
        .iter()
        .map(|row| {
            let key = ReplicaKey {
                role: row.role.clone(),
                index: u32::try_from(row.index).unwrap_or(0),
            };
            (key, u32::try_from(row.rank).unwrap_or(0))
        })
        .collect();
    let mut by_step = !used;
    let drawn: Vec<(&SeriesKey, &Vec<Point>)> = series
        .iter()
        .filter(|(key, points)| mine(key) && !points.is_empty())
        .collect();
    by_step &= drawn
        .iter()
        .all(|(_, points)| points.iter().any(|point| point.step.is_some()));
    let mut lines: Vec<(u32, Line)> = drawn
        .iter()
        .map(|(key, points)| {
            let rank = key
                .replica
                .as_ref()
                .and_then(|replica| {
                    ranks
                        .get(replica)
                        .copied()
                        .or((replica.role == RANK).then_some(replica.index))
                })
                .unwrap_or(0);
            let points = points
                .iter()
                .filter_map(|point| {
                    let x = if by_step { point.step? as f64 } else { point.at as f64 };
                    Some((x, point.value / scale))
                })
                .collect();
            let name = key
                .replica
                .as_ref()
                .map_or_else(|| "job".to_owned(), ToString::to_string);
            (
                rank,
                Line {
                    name,
                    color: (rank % 12) as u8,
                    points,
                    stands_out: false,
                },
            )
        })
        .collect();
    lines.sort_by_key(|(rank, _)| *rank);
    let mut lines: Vec<Line> = lines.into_iter().map(|(_, line)| line).collect();
    let odd = stands_out(&lines);
    if let Some(odd) = odd {
        lines[odd].stands_out = true;
    }
    let says = says(&lines, odd, unit, by_step);
    let label = if unit.is_empty() {
        title.clone()
    } else {
        unit.to_owned()
    };
    let chart = Chart {
        title: &title,
        description: &says,
        x: if by_step { Horizontal::Step } else { Horizontal::Time },
        y_label: &label,
        from_zero: used,
        series: lines,
    };
    let svg = plot::draw(&chart, size)?;
    Some(Plot {
        id: format!("plot-{}", told::encoded(name)),
        numbers: format!("/jobs/{id}/numbers/{}?attempt={attempt}", told::encoded(name)),
        title,
        says,
        svg,
    })
}

/// The line whose last value lies furthest from the median, if that is far against how the others lie.
fn stands_out(lines: &[Line]) -> Option<usize> {
    if lines.len() < 3 {
        return None;
    }
    let last: Vec<f64> = lines
        .iter()
        .map(|line| {
            line.points
                .iter()
                .rev()
                .map(|point| point.1)
                .find(|value| value.is_finite())
                .unwrap_or(0.0)
        })
        .collect();
    let median = |values: &[f64]| {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let middle = median(&last);
    let distances: Vec<f64> = last.iter().map(|value| (value - middle).abs()).collect();
    let usual = median(&distances).max(middle.abs() * 0.02);
    let (index, furthest) = distances.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1))?;
    (*furthest > usual * 4.0).then_some(index)
}

fn says(lines: &[Line], odd: Option<usize>, unit: &str, by_step: bool) -> String {
    let unit = if unit.is_empty() {
        String::new()
    } else {
        format!(" {unit}")
    };
    let last = |line: &Line| line.points.iter().rev().find(|point| point.1.is_finite()).copied();
    let broken = lines
        .iter()
        .find(|line| line.points.last().is_some_and(|point| !point.1.is_finite()));
    let Some((x, y)) = lines.first().and_then(last) else {
        return "no finite value".to_owned();
    };
    let mut says = match (lines.len(), by_step) {
        (1, true) => format!("{}{unit} at step {}", plot::number(y), words::count(x as i64)),
        (1, false) => format!("{}{unit} now", plot::number(y)),
        (_, true) => format!(
            "{}{unit} on {} at step {}",
            plot::number(y),
            lines[0].name,
            words::count(x as i64)
        ),
        (_, false) => {
            let values: Vec<f64> = lines.iter().filter_map(last).map(|point| point.1).collect();
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            match plot::number(low) == plot::number(high) {
                true => format!("{}{unit} a replica now", plot::number(low)),
                false => format!("{} to {}{unit} a replica now", plot::number(low), plot::number(high)),
            }
        }
    };
    if let Some(line) = broken {
        says.push_str(&format!("; {} reports no number any more", line.name));
    } else if let Some((_, value)) = odd.and_then(|odd| last(&lines[odd])) {
        let name = odd.map_or("", |odd| lines[odd].name.as_str());
        says.push_str(&format!("; {name} stands out with {}", plot::number(value)));
    }
    says
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, last: f64) -> Line {
        Line {
            name: name.into(),
            color: 0,
            points: vec![(0.0, 1.0), (1.0, last)],
            stands_out: false,
        }
    }

    #[test]
    fn one_rank_stands_out_and_a_crowd_does_not() {
        let crowd: Vec<Line> = [1.0, 1.01, 0.99, 1.02]
            .into_iter()
            .map(|last| line("a", last))
            .collect();
        assert_eq!(stands_out(&crowd), None);
        let mut odd = crowd;
        odd.push(line("odd", 2.0));
        assert_eq!(stands_out(&odd), Some(4));
        assert_eq!(says(&odd, Some(4), "", true), "1 on a at step 1; odd stands out with 2");
    }

    #[test]
    fn a_loss_that_is_no_number_any_more_is_said() {
        assert_eq!(
            says(&[line("worker-0", f64::NAN)], None, "", true),
            "1 at step 0; worker-0 reports no number any more"
        );
    }
}
