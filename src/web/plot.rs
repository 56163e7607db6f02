//! Plots as SVG, drawn by plotters. The colours written here are keys that the stylesheet replaces by the theme's, so a
//! plot follows light and dark without being drawn again.

use plotters::{
    coord::{
        Shift,
        ranged1d::{DefaultFormatting, KeyPointHint, Ranged},
    },
    prelude::*,
    style::text_anchor::{HPos, Pos, VPos},
};

use super::pages::{
    timeline::{self, escaped},
    view::Svg,
};

/// Lines over one horizontal axis.
pub struct Chart<'a> {
    pub title: &'a str,
    /// What it shows, in words, for those who can't see it.
    pub description: &'a str,
    pub x: Horizontal,
    /// The vertical axis with its unit: `loss`, `CPU, cores`.
    pub y_label: &'a str,
    /// Zero belongs on the vertical axis (amounts), or the axis fits the values (a loss).
    pub from_zero: bool,
    pub series: Vec<Line>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizontal {
    Step,
    /// Milliseconds since 1970.
    Time,
}

pub struct Line {
    pub name: String,
    /// From 0 to 11, the rank's colour everywhere.
    pub color: u8,
    /// By rising x. A value that is no number (a loss of NaN) is a break.
    pub points: Vec<(f64, f64)>,
    /// It stands out: drawn last, strong, and labelled in place.
    pub stands_out: bool,
}

/// How large a plot is drawn: one of many, or the one that a page is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    Small,
    Large,
}

impl Size {
    fn pixels(self) -> (u32, u32) {
        match self {
            Size::Small => (420, 210),
            Size::Large => (1_100, 380),
        }
    }

    /// More marks than this would touch each other on the narrowest screen.
    fn marks(self) -> i64 {
        match self {
            Size::Small => 4,
            Size::Large => 8,
        }
    }

    /// More pieces than this can't be told apart at this width.
    fn buckets(self) -> usize {
        match self {
            Size::Small => 180,
            Size::Large => 500,
        }
    }
}

/// Beyond this many lines only those that stand out have a colour.
const COLOURED: usize = 6;

const GRID: RGBColor = RGBColor(1, 0, 0);
const AXIS: RGBColor = RGBColor(2, 0, 0);
const LABEL: RGBColor = RGBColor(3, 0, 0);
const STRONG: RGBColor = RGBColor(4, 0, 0);
const BACK: RGBColor = RGBColor(5, 0, 0);

/// `None` when there is no point to draw.
pub fn draw(chart: &Chart<'_>, size: Size) -> Option<Svg> {
    let (width, height) = size.pixels();
    let lines: Vec<Vec<(f64, f64)>> = (chart.series.iter())
        .map(|line| thinned(&line.points, size.buckets()))
        .collect();
    let range = Range::of(lines.iter().flatten(), chart.from_zero, chart.x)?;
    let mut svg = String::with_capacity(16 * 1024);
    {
        let area = SVGBackend::with_string(&mut svg, (width, height)).into_drawing_area();
        // The only error is of writing, and writing to a String cannot fail; half a plot would still be no harm.
        paint(chart, size, &lines, &range, &area).ok()?;
    }
    let body = svg.split_once('>')?.1;
    let hover = hover(chart, &lines, &range, size);
    Some(Svg(format!(
        r#"<svg role="img" viewBox="0 0 {width} {height}" data-hover="{}"><title>{}</title><desc>{}</desc>{body}"#,
        escaped(&hover),
        escaped(chart.title),
        escaped(chart.description)
    )))
}

struct Range {
    x: (f64, f64),
    y: (f64, f64),
}

impl Range {
    fn of<'a>(points: impl Iterator<Item = &'a (f64, f64)>, from_zero: bool, axis: Horizontal) -> Option<Self> {
        let start = (f64::INFINITY, f64::NEG_INFINITY);
        let (mut x, mut y) = (start, start);
        for &(px, py) in points.filter(|(px, py)| px.is_finite() && py.is_finite()) {
            x = (x.0.min(px), x.1.max(px));
            y = (y.0.min(py), y.1.max(py));
        }
        if x.0 > x.1 {
            return None;
        }
        if from_zero {
            y = (y.0.min(0.0), y.1.max(0.0));
        }
        let room = |(low, high): (f64, f64), share: f64| {
            let space = (high - low) * share;
            // One value alone still needs an axis around it.
            if space > 0.0 { space } else { low.abs().max(1.0) * 0.1 }
        };
        let above = room(y, 0.06);
        let below = if from_zero && y.0 == 0.0 { 0.0 } else { above };
        // A moment alone stands in the middle of a minute.
        let (left, right) = match (x.0 == x.1, axis) {
            (false, _) => (0.0, 0.0),
            (true, Horizontal::Step) => (0.0, 1.0),
            (true, Horizontal::Time) => (30_000.0, 30_000.0),
        };
        Some(Self {
            x: (x.0 - left, x.1 + right),
            y: (y.0 - below, y.1 + above),
        })
    }
}

type Painted<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn paint(
    chart: &Chart<'_>,
    size: Size,
    lines: &[Vec<(f64, f64)>],
    range: &Range,
    area: &Painted<'_>,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut plane = ChartBuilder::on(area)
        .margin_top(18)
        .margin_right(right(chart) as i32)
        .x_label_area_size(BOTTOM)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(
            Axis {
                ends: range.x,
                marks: marks(chart.x, range.x, size.marks()),
            },
            range.y.0..range.y.1,
        )?;
    let label = ("sans-serif", TEXT).into_font().color(&LABEL);
    let span = range.x.1 - range.x.0;
    let horizontal = |x: &f64| match chart.x {
        Horizontal::Step => number(*x),
        Horizontal::Time => clock(*x, span),
    };
    plane
        .configure_mesh()
        .disable_x_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(AXIS)
        .x_labels(size.marks() as usize + 1)
        .y_labels(5)
        .label_style(label.clone())
        .x_label_formatter(&horizontal)
        .y_label_formatter(&|y| mark(*y, range.y.1 - range.y.0))
        .draw()?;
    let many = chart.series.len() > COLOURED;
    let muted = |line: &Line| many && !line.stands_out;
    let color_of = |line: &Line| {
        if muted(line) {
            BACK
        } else {
            RGBColor(0, 1, line.color % 12)
        }
    };
    // The first in this order is named first, and drawn last: where lines lie on each other, the name fits what is seen.
    let mut order: Vec<usize> = (0..lines.len()).collect();
    order.sort_by_key(|&index| !chart.series[index].stands_out);
    for &index in order.iter().rev() {
        let line = &chart.series[index];
        let color = color_of(line);
        let width = if line.stands_out && chart.series.len() > 1 {
            2
        } else {
            1
        };
        for piece in lines[index].split(|(_, y)| !y.is_finite()) {
            match piece {
                [] => {}
                [(x, y)] => drop(plane.draw_series([Circle::new((*x, *y), 2, color.filled())])?),
                _ => drop(plane.draw_series(LineSeries::new(piece.iter().copied(), color.stroke_width(width)))?),
            }
        }
    }
    let mut taken: Vec<i32> = Vec::new();
    for &index in &order {
        let line = &chart.series[index];
        let last = lines[index].iter().rev().find(|(_, y)| y.is_finite());
        let Some(&(x, y)) = last.filter(|_| chart.series.len() > 1 && !muted(line)) else {
            continue;
        };
        let (px, py) = plane.backend_coord(&(x, y));
        // A label that would lie on another's is left out; the pointer and the numbers name it.
        if taken.iter().all(|other| (other - py).abs() >= TEXT) {
            taken.push(py);
            let style = ("sans-serif", TEXT)
                .into_font()
                .color(&color_of(line))
                .pos(Pos::new(HPos::Left, VPos::Center));
            area.draw(&Text::new(shortened(&line.name), (px + 4, py), style))?;
        }
    }
    let name = ("sans-serif", TEXT).into_font().color(&STRONG);
    area.draw(&Text::new(chart.y_label.to_owned(), (2, 0), name))?;
    let foot = match chart.x {
        Horizontal::Step => "step",
        Horizontal::Time => "time, UTC",
    };
    let style = label.pos(Pos::new(HPos::Right, VPos::Bottom));
    let (width, height) = area.dim_in_pixel();
    area.draw(&Text::new(foot.to_owned(), (width as i32 - 2, height as i32), style))?;
    area.present()?;
    Ok(())
}

/// As tall as small print on a page, since plots are shown at about the size that they are drawn in.
const TEXT: i32 = 12;
const LEFT: u32 = 48;
const BOTTOM: u32 = 36;

/// A horizontal axis with marks of our own, since plotters knows no clock.
struct Axis {
    ends: (f64, f64),
    marks: Vec<f64>,
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        let share = (value - self.ends.0) / (self.ends.1 - self.ends.0);
        limit.0 + (share * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.ends.0..self.ends.1
    }
}

/// Where the horizontal axis has its marks: at round steps, or at moments that clocks show.
fn marks(axis: Horizontal, (from, to): (f64, f64), most: i64) -> Vec<f64> {
    let step = match axis {
        Horizontal::Time => timeline::round_seconds(((to - from) / 1_000.0) as i64, most) as f64 * 1_000.0,
        Horizontal::Step => {
            let rough = ((to - from) / most as f64).max(1.0);
            let ten = 10f64.powf(rough.log10().floor());
            let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| ten * times >= rough);
            ten * round.unwrap_or(10.0)
        }
    };
    let first = (from / step).ceil() * step;
    (0..=most)
        .map(|index| first + index as f64 * step)
        .take_while(|mark| *mark <= to)
        .collect()
}

/// Room for names at the ends of lines; a line alone has none.
fn right(chart: &Chart<'_>) -> u32 {
    if chart.series.len() > 1 { 72 } else { 14 }
}

fn shortened(name: &str) -> String {
    if name.chars().count() <= 10 {
        return name.to_owned();
    }
    let mut short: String = name.chars().take(9).collect();
    short.push('…');
    short
}

/// What the browser needs to tell the values under the pointer, and the marks of a clock in the reader's own zone.
fn hover(chart: &Chart<'_>, lines: &[Vec<(f64, f64)>], range: &Range, size: Size) -> String {
    let (width, _) = size.pixels();
    let marks: Vec<_> = match chart.x {
        Horizontal::Step => Vec::new(),
        Horizontal::Time => (marks(chart.x, range.x, size.marks()).into_iter())
            .map(|at| serde_json::json!([at, clock(at, range.x.1 - range.x.0)]))
            .collect(),
    };
    let series: Vec<_> = chart
        .series
        .iter()
        .zip(lines)
        .take(COLOURED * 2)
        .map(|(line, points)| {
            let points: Vec<_> = points
                .iter()
                .filter(|(_, y)| y.is_finite())
                .map(|&(x, y)| [x, y])
                .collect();
            serde_json::json!({ "name": line.name, "points": points })
        })
        .collect();
    serde_json::json!({
        "left": LEFT, "right": width - right(chart), "width": width, "from": range.x.0, "to": range.x.1,
        "time": chart.x == Horizontal::Time, "marks": marks, "series": series,
    })
    .to_string()
}

/// Keeps the first, the last, the lowest and the highest point of each bucket, so that no peak is thinned away.
fn thinned(points: &[(f64, f64)], buckets: usize) -> Vec<(f64, f64)> {
    let points: Vec<(f64, f64)> = points.iter().copied().filter(|(x, _)| x.is_finite()).collect();
    if points.len() <= buckets * 4 {
        return points;
    }
    let size = points.len().div_ceil(buckets);
    let mut kept = Vec::with_capacity(buckets * 4);
    for bucket in points.chunks(size) {
        let finite = || (0..bucket.len()).filter(|&index| bucket[index].1.is_finite());
        let low = finite().min_by(|&a, &b| bucket[a].1.total_cmp(&bucket[b].1));
        let high = finite().max_by(|&a, &b| bucket[a].1.total_cmp(&bucket[b].1));
        let broken = (0..bucket.len()).find(|&index| !bucket[index].1.is_finite());
        let mut chosen: Vec<usize> = [Some(0), low, high, broken, Some(bucket.len() - 1)]
            .into_iter()
            .flatten()
            .collect();
        chosen.sort_unstable();
        chosen.dedup();
        kept.extend(chosen.into_iter().map(|index| bucket[index]));
    }
    kept
}

/// A number for an axis or a table: short, and never `-0`.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 || size < 1e-12 {
        return "0".to_owned();
    }
    let (scaled, unit) = match size {
        1e12.. => (value / 1e12, " T"),
        1e9.. => (value / 1e9, " G"),
        1e6.. => (value / 1e6, " M"),
        1e4.. => (value / 1e3, " k"),
        ..1e-3 => return format!("{value:.1e}"),
        _ => (value, ""),
    };
    let digits = match scaled.abs() {
        100.0.. => 0,
        10.0.. => 1,
        1.0.. => 2,
        _ => 3,
    };
    let mut text = format!("{scaled:.digits$}");
    if text.contains('.') {
        text.truncate(text.trim_end_matches('0').trim_end_matches('.').len());
    }
    // Below ten thousand there is one group, and above it a unit.
    if let (true, Some(place)) = (scaled.abs() >= 1e3, text.len().checked_sub(3)) {
        text.insert(place, ',');
    }
    text + unit
}

/// A number beside a mark of an axis, with as many digits as tell it from the marks next to it.
fn mark(value: f64, span: f64) -> String {
    let digits = (1.0 - (span / 5.0).log10()).ceil();
    if !(1e-3..1e4).contains(&value.abs()) || !(3.0..=9.0).contains(&digits) {
        return number(value);
    }
    let text = format!("{value:.*}", digits as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn clock(milliseconds: f64, span: f64) -> String {
    let Some(at) = chrono::DateTime::from_timestamp_millis(milliseconds as i64) else {
        return String::new();
    };
    let format = match span {
        ..600_000.0 => "%H:%M:%S",
        ..172_800_000.0 => "%H:%M",
        _ => "%-d %b",
    };
    at.format(format).to_string()
}

#[cfg(test)]
mod tests;
