//! What was wrong with the nodes that a job ran on, as lanes of its timeline: a lane for each node and fault, from the
//! events of their changes.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use trainyard_core::plan::words;

use crate::{
    db::page_reads::{Event, NodePast},
    web::pages::{
        timeline::{Bar, Lane},
        told,
        view::Tone,
    },
};

/// Lanes of faults; the last one counts those that are not drawn.
const LANES: usize = 6;

/// Faults that held at some time between two moments, the worst first.
pub fn lanes(nodes: &[NodePast], from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = nodes.iter().flat_map(|node| of_node(node, from, to)).collect();
    let is_warning = |lane: &Lane| lane.bars.iter().all(|bar| bar.tone == Tone::Warning);
    lanes.sort_by_key(is_warning);
    let more = lanes.len().saturating_sub(LANES);
    lanes.truncate(LANES);
    if let (Some(last), 1..) = (lanes.last_mut(), more) {
        last.label.push_str(&format!(
            "; {} are not drawn",
            words::counted(more as u64, "more fault")
        ));
    }
    lanes
}

fn of_node(node: &NodePast, from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<Lane> {
    // By what changed: the phase, or a condition by its name.
    let mut changes: BTreeMap<&str, Vec<&Event>> = BTreeMap::new();
    for event in &node.changes {
        let what = match event.kind.as_str() {
            "node.phase" => "",
            _ => event.data["type"].as_str().unwrap_or_default(),
        };
        changes.entry(what).or_default().push(event);
    }
    let lane = |name: String, bars: Vec<Bar>| Lane {
        label: format!("Node {}, {name}: {}", node.name, spans(&bars, to)),
        bars,
        points: Vec::new(),
    };
    let mut lanes: Vec<Lane> = changes
        .into_iter()
        .filter_map(|(what, events)| {
            let bars = bars(&events, from, to);
            let name = match what {
                "" => "not ready".to_owned(),
                condition => told::named(condition).to_lowercase(),
            };
            (!bars.is_empty()).then(|| lane(name, bars))
        })
        .collect();
    if let Some(since) = node.stale_since.filter(|since| *since < to) {
        let bar = Bar {
            tone: Tone::Stale,
            from: since.max(from),
            to: None,
            word: "node not seen",
            title: format!("No worker looks at it, from {}", words::exact(since)),
        };
        lanes.push(lane("not seen by any worker".to_owned(), vec![bar]));
    }
    lanes
}

/// Each change, the newest first, tells what holds until the one after it; only what is wrong is drawn.
fn bars(events: &[&Event], from: DateTime<Utc>, to: DateTime<Utc>) -> Vec<Bar> {
    let mut bars = Vec::new();
    let mut until = None;
    for event in events {
        let word = |name: &str| event.data[name].as_str().unwrap_or_default();
        let wrong = match (event.kind.as_str(), word("status"), word("severity")) {
            ("node.phase", ..) if word("to") != "ready" => Some((Tone::Critical, "node not ready")),
            (_, "true", "critical") => Some((Tone::Critical, "node fault, critical")),
            (_, "true", "warning") => Some((Tone::Warning, "node fault, warning")),
            _ => None,
        };
        let inside = event.at < to && until.is_none_or(|until| until > from);
        if let (Some((tone, word)), true) = (wrong, inside) {
            bars.push(Bar {
                tone,
                from: event.at.max(from),
                to: until,
                word,
                title: format!(
                    "{}, from {}",
                    event.message.trim_end_matches('.'),
                    words::exact(event.at)
                ),
            });
        }
        until = Some(event.at);
    }
    bars
}

/// How long it held, and how often.
fn spans(bars: &[Bar], to: DateTime<Utc>) -> String {
    let whole = bars.iter().map(|bar| bar.to.unwrap_or(to) - bar.from).sum();
    let times = match bars.len() {
        1 => String::new(),
        many => format!(", {many} times"),
    };
    let lasting = match bars.iter().any(|bar| bar.to.is_none()) {
        true => ", to the end of this timeline",
        false => "",
    };
    format!("{}{times}{lasting}", words::duration(whole))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(minute: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_796_000_000 + 60 * minute, 0).unwrap()
    }

    fn change(minute: i64, kind: &str, data: serde_json::Value) -> Event {
        Event {
            seq: minute,
            at: at(minute),
            kind: kind.into(),
            actor: None,
            message: "It is so.".into(),
            data,
        }
    }

    fn condition(minute: i64, status: &str, severity: &str) -> Event {
        let data = json!({ "type": "MemoryPressure", "status": status, "severity": severity });
        change(minute, "condition.changed", data)
    }

    fn node(changes: Vec<Event>) -> NodePast {
        NodePast {
            name: "gpu-a-11".into(),
            stale_since: None,
            changes,
        }
    }

    #[test]
    fn a_fault_is_drawn_while_it_held_and_only_within_the_jobs_time() {
        let past = node(vec![
            condition(40, "true", "critical"),
            condition(30, "false", "warning"),
            condition(20, "true", "warning"),
            condition(5, "false", "warning"),
            condition(1, "true", "critical"),
        ]);
        let found = lanes(&[past], at(10), at(50));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].label,
            "Node gpu-a-11, memory pressure: 20 min, 2 times, to the end of this timeline"
        );
        let drawn: Vec<_> = found[0].bars.iter().map(|bar| (bar.tone, bar.from, bar.to)).collect();
        assert_eq!(
            drawn,
            [(Tone::Critical, at(40), None), (Tone::Warning, at(20), Some(at(30)))]
        );
    }

    #[test]
    fn not_ready_and_not_seen_are_faults_and_what_is_fine_or_unknown_is_none() {
        let mut past = node(vec![
            change(30, "node.phase", json!({ "from": "not_ready", "to": "ready" })),
            condition(25, "unknown", "warning"),
            change(20, "node.phase", json!({ "from": "ready", "to": "not_ready" })),
            condition(15, "true", "info"),
        ]);
        past.stale_since = Some(at(35));
        let found = lanes(&[past], at(0), at(50));
        let labels: Vec<&str> = found.iter().map(|lane| lane.label.as_str()).collect();
        assert_eq!(
            labels,
            [
                "Node gpu-a-11, not ready: 10 min",
                "Node gpu-a-11, not seen by any worker: 15 min, to the end of this timeline"
            ]
        );
        assert!(lanes(&[node(vec![condition(60, "true", "critical")])], at(0), at(50)).is_empty());
    }

    #[test]
    fn many_faults_are_counted_and_warnings_come_last() {
        let of = |severity| node(vec![condition(10, "true", severity)]);
        let mut many = vec![of("warning")];
        many.extend((0..7).map(|_| of("critical")));
        let found = lanes(&many, at(0), at(50));
        assert_eq!(found.len(), LANES);
        assert!(found.iter().all(|lane| lane.bars[0].tone == Tone::Critical));
        assert!(
            found[5].label.ends_with("; 2 more faults are not drawn"),
            "{}",
            found[5].label
        );
    }
}
