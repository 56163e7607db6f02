//! A node's numbers as plots over a range of time.

use chrono::{DateTime, Duration, Utc};
use trainyard_core::model::NodeId;

use crate::{
    db::metrics::{Point, SeriesKey},
    web::{
        pages::{told, view::Plot},
        plot::{self, Chart, Horizontal, Line, Size},
    },
};

/// The ranges that can be chosen: word in the address, label, length.
pub const RANGES: [(&str, &str, i64); 4] = [
    ("1h", "1 hour", 1),
    ("6h", "6 hours", 6),
    ("1d", "1 day", 24),
    ("7d", "7 days", 168),
];

/// The chosen range, the first one without a choice.
pub fn range(asked: Option<&str>) -> (&'static str, &'static str, Duration) {
    let (word, label, hours) = RANGES
        .into_iter()
        .find(|(word, _, _)| Some(*word) == asked)
        .unwrap_or(RANGES[0]);
    (word, label, Duration::hours(hours))
}

const GIB: f64 = 1_073_741_824.0;
const MIB: f64 = 1_048_576.0;

/// Series by name: title, unit, what its values are divided by, whether zero belongs on the axis.
const KNOWN: [(&str, &str, &str, f64, bool); 7] = [
    ("cpu_percent", "CPU", "% of all cores", 1.0, true),
    ("memory_used_bytes", "Memory used", "GiB", GIB, true),
    ("disk_used_bytes", "Disk used", "GiB", GIB, true),
    ("load_1m", "Load over 1 min", "", 1.0, true),
    ("celsius", "Hottest sensor", "°C", 1.0, false),
    ("network_received_bytes", "Received", "MiB/s", MIB, true),
    ("network_sent_bytes", "Sent", "MiB/s", MIB, true),
];

/// A series' title and unit, and its scale.
pub fn called(name: &str) -> (String, &'static str, f64, bool) {
    if let Some((_, title, unit, scale, zero)) = KNOWN.into_iter().find(|(known, ..)| *known == name) {
        return (title.to_owned(), unit, scale, zero);
    }
    let gpu = name.strip_prefix("gpu").and_then(|rest| rest.split_once('_'));
    match gpu {
        Some((index, "percent")) => (format!("GPU {index} busy"), "%", 1.0, true),
        Some((index, "memory_bytes")) => (format!("GPU {index} memory"), "GiB", GIB, true),
        Some((index, "celsius")) => (format!("GPU {index} temperature"), "°C", 1.0, false),
        _ => (told::named(name), "", 1.0, false),
    }
}

/// Points as they are shown. What was counted since the sample before is told by the second.
pub fn shown(name: &str, points: &[Point]) -> Vec<Point> {
    if !name.starts_with("network_") {
        return points.to_vec();
    }
    let pairs = points.windows(2).filter(|pair| pair[1].at > pair[0].at);
    pairs
        .map(|pair| Point {
            value: pair[1].value * 1_000.0 / (pair[1].at - pair[0].at) as f64,
            ..pair[1]
        })
        .collect()
}

pub fn plots(
    id: NodeId,
    range: &str,
    series: &std::collections::BTreeMap<SeriesKey, Vec<Point>>,
    now: DateTime<Utc>,
    size: Size,
) -> Vec<Plot> {
    let mut all: Vec<(&SeriesKey, &Vec<Point>)> = series.iter().collect();
    all.sort_by_key(|(key, _)| {
        KNOWN
            .iter()
            .position(|(name, ..)| *name == key.name)
            .unwrap_or(KNOWN.len())
    });
    all.into_iter()
        .filter_map(|(key, points)| {
            let (title, unit, scale, from_zero) = called(&key.name);
            let points: Vec<(f64, f64)> = shown(&key.name, points)
                .iter()
                .map(|point| (point.at as f64, point.value / scale))
                .collect();
            let &(at, last) = points.last()?;
            let most = points.iter().map(|point| point.1).fold(f64::NEG_INFINITY, f64::max);
            let unit_words = if unit.is_empty() {
                String::new()
            } else {
                format!(" {unit}")
            };
            let old = now.timestamp_millis() as f64 - at > 120_000.0;
            let says = format!(
                "{}{unit_words} {}, at most {}",
                plot::number(last),
                if old { "when last seen" } else { "now" },
                plot::number(most)
            );
            let chart = Chart {
                title: &title,
                description: &says,
                x: Horizontal::Time,
                y_label: if unit.is_empty() { &title } else { unit },
                from_zero,
                series: vec![Line {
                    name: title.clone(),
                    color: 0,
                    points,
                    stands_out: false,
                }],
            };
            let svg = plot::draw(&chart, size)?;
            Some(Plot {
                id: format!("plot-{}", told::encoded(&key.name)),
                numbers: format!("/nodes/{id}/numbers/{}?range={range}", told::encoded(&key.name)),
                title,
                says,
                svg,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_between_samples_is_told_by_the_second() {
        let point = |at, value| Point { step: None, at, value };
        let points = [
            point(0, 9.0),
            point(5_000, 20.0),
            point(5_000, 1.0),
            point(15_000, 30.0),
        ];
        let values = |name: &str| shown(name, &points).iter().map(|point| point.value).collect::<Vec<_>>();
        assert_eq!(values("network_sent_bytes"), [4.0, 3.0]);
        assert_eq!(values("load_1m"), [9.0, 20.0, 1.0, 30.0]);
    }
}
