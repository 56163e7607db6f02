//! A timeline: lanes of bars and points over one time axis, as SVG. Positions are shares of the width, so it fits any
//! screen without a script, and texts keep their size.

use std::fmt::Write;

use chrono::{DateTime, Duration, Utc};

use super::view::{Svg, Tone};

#[derive(Debug, Clone, Default)]
pub struct TimelineFigure {
    pub svg: Svg,
    /// Class and words of what appears in it.
    pub legend: Vec<(&'static str, String)>,
}

pub struct Lane {
    pub label: String,
    pub bars: Vec<Bar>,
    pub points: Vec<Point>,
}

pub struct Bar {
    pub tone: Tone,
    pub from: DateTime<Utc>,
    /// Open ends reach the right edge.
    pub to: Option<DateTime<Utc>>,
    /// `running`, `not ready`: the legend's word.
    pub word: &'static str,
    /// The whole thing in words.
    pub title: String,
}

pub struct Point {
    pub at: DateTime<Utc>,
    pub kind: PointKind,
    pub title: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PointKind {
    Checkpoint,
    Restart,
    Fault,
    Person,
}

impl PointKind {
    fn look(self) -> (&'static str, &'static str, &'static str) {
        match self {
            PointKind::Checkpoint => ("point", "checkpoint", "info"),
            PointKind::Restart => ("starting", "restart", "starting"),
            PointKind::Fault => ("bad", "fault", "warning"),
            PointKind::Person => ("cancelled", "done by a person", "cancelled"),
        }
    }

    fn path(self) -> &'static str {
        match self {
            PointKind::Checkpoint => "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0",
            PointKind::Restart => "M0 -5L5 0L0 5L-5 0z",
            PointKind::Fault => "M0 -6L6 5H-6z",
            PointKind::Person => "M-4 -4h8v8h-8z",
        }
    }
}

const LANE: usize = 38;
const AXIS: usize = 22;

/// Draws lanes between two moments. `title` names the drawing for those who can't see it.
pub fn draw(title: &str, from: DateTime<Utc>, to: DateTime<Utc>, lanes: &[Lane]) -> TimelineFigure {
    let to = to.max(from + Duration::seconds(1));
    let share = |at: DateTime<Utc>| {
        let whole = (to - from).num_milliseconds() as f64;
        ((at - from).num_milliseconds() as f64 / whole * 100.0).clamp(0.0, 100.0)
    };
    let height = lanes.len() * LANE + AXIS;
    let mut legend: Vec<(&'static str, String)> = Vec::new();
    let mut know = |class: &'static str, word: &str| {
        if !legend.iter().any(|(_, known)| known == word) {
            legend.push((class, word.to_owned()));
        }
    };
    let mut svg = String::with_capacity(2048);
    // Writing to a String cannot fail.
    let _ = write!(
        svg,
        r#"<svg role="img" height="{height}" aria-label="{}">"#,
        escaped(title)
    );
    for (index, (at, label)) in ticks(from, to).into_iter().enumerate() {
        let x = share(at);
        let anchor = if x < 4.0 {
            "start"
        } else if x > 96.0 {
            "end"
        } else {
            "middle"
        };
        // A narrow screen has room for every other label.
        let class = if index % 2 == 1 { " class=\"even\"" } else { "" };
        let _ = write!(
            svg,
            r#"<line x1="{x:.2}%" x2="{x:.2}%" y1="0" y2="{}"/><text{class} x="{x:.2}%" y="{}" text-anchor="{anchor}" data-at="{}">{label}</text>"#,
            height - AXIS + 4,
            height - 4,
            at.timestamp_millis(),
        );
    }
    for (row, lane) in lanes.iter().enumerate() {
        let top = row * LANE;
        let _ = write!(
            svg,
            r#"<text class="lane" x="0" y="{}">{}</text>"#,
            top + 13,
            escaped(&lane.label)
        );
        for bar in &lane.bars {
            let (left, right) = (share(bar.from), share(bar.to.unwrap_or(to)));
            know(bar.tone.class(), bar.word);
            let _ = write!(
                svg,
                r#"<rect class="{}" x="{left:.2}%" y="{}" width="{:.2}%" height="14"><title>{}</title></rect>"#,
                bar.tone.class(),
                top + 18,
                (right - left).max(0.15),
                escaped(&bar.title)
            );
        }
        for point in &lane.points {
            let (key, word, class) = point.kind.look();
            know(key, word);
            let _ = write!(
                svg,
                r#"<svg x="{:.2}%" y="{}" overflow="visible"><path class="{class}" d="{}"><title>{}</title></path></svg>"#,
                share(point.at),
                top + 25,
                point.kind.path(),
                escaped(&point.title)
            );
        }
    }
    svg.push_str("</svg>");
    TimelineFigure { svg: Svg(svg), legend }
}

/// At most seven marks at round times, of which the first says the zone.
fn ticks(from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<(DateTime<Utc>, String)> {
    let step = round_seconds((to - from).num_seconds(), 6);
    let format = match step {
        ..60 => "%H:%M:%S",
        60..43_200 => "%H:%M",
        _ => "%-d %b",
    };
    let first = from.timestamp().div_euclid(step) * step + step;
    (0..7)
        .filter_map(|index| DateTime::from_timestamp(first + index * step, 0))
        .take_while(|at| *at <= to)
        .enumerate()
        .map(|(index, at)| {
            let zone = if index == 0 { " UTC" } else { "" };
            (at, format!("{}{zone}", at.format(format)))
        })
        .collect()
}

/// The smallest distance between marks that people count in, of which fewer than `most` fit into a span.
pub(in crate::web) fn round_seconds(span: i64, most: i64) -> i64 {
    const STEPS: [i64; 20] = [
        1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 21_600, 43_200, 86_400, 172_800, 604_800,
        2_592_000,
    ];
    let whole = span.max(1);
    let fits = STEPS.into_iter().find(|step| whole / step < most);
    fits.unwrap_or(whole / most + 1)
}

/// Text for markup. The only two places that make markup by hand use it: this one and the plots.
pub(in crate::web) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // XML has no place for these, not even escaped.
            '\u{0}'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_796_000_000 + seconds, 0).unwrap()
    }

    #[test]
    fn labels_never_become_markup_and_bars_stay_inside() {
        let lanes = [Lane {
            label: "<script>alert(1)</script>".into(),
            bars: vec![Bar {
                tone: Tone::Running,
                from: at(-500),
                to: Some(at(5_000)),
                word: "running",
                title: "\"><img src=x>".into(),
            }],
            points: vec![Point {
                at: at(50),
                kind: PointKind::Checkpoint,
                title: "step 120".into(),
            }],
        }];
        let figure = draw("of <job>", at(0), at(100), &lanes);
        let svg = figure.svg.as_str();
        assert!(!svg.contains("<script") && !svg.contains("<img") && svg.contains("of &lt;job&gt;"));
        assert!(svg.contains(r#"x="0.00%" y="18" width="100.00%""#), "{svg}");
        assert_eq!(figure.legend.len(), 2);
    }

    #[test]
    fn ticks_are_round_few_and_inside() {
        for seconds in [1, 59, 61, 3_000, 90_000, 5_000_000, 900_000_000] {
            let found = ticks(at(0), at(seconds));
            assert!(found.len() <= 7, "{seconds}: {}", found.len());
            assert!(
                found.iter().take(1).all(|(_, label)| label.ends_with(" UTC")),
                "{found:?}"
            );
            assert!(
                found
                    .iter()
                    .all(|(moment, _)| *moment > at(0) && *moment <= at(seconds))
            );
        }
    }
}
