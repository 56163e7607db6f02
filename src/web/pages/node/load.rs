//! Reading what a node's page shows, and putting it into words.

use chrono::{DateTime, Duration, Utc};
use serde_json::Value;
use trainyard_core::{model::NodeId, plan::words};

use super::{
    GpuRow, Meter, NodePage, NodeQuery, RunningRow,
    measures::{self, RANGES},
};
use crate::{
    db::{
        Db, DbError, Scope, conditions,
        events::Subject,
        metrics,
        nodes_read::{self, Node, NodeReplica},
        page_reads::{self, Event},
    },
    web::pages::{
        clusters, nodes,
        timeline::{self, Bar, Lane, TimelineFigure},
        told,
        view::{Choice, Condition, Crumb, Fact, Section, Shell, State, Tone},
    },
    web::plot::Size,
};

const RUNNING: i64 = 200;
const EVENTS: i64 = 15;
/// Changes of conditions that the timeline is drawn from.
const CHANGES: i64 = 200;

pub async fn load(
    db: &Db,
    scope: &Scope,
    id: NodeId,
    query: &NodeQuery,
    now: DateTime<Utc>,
) -> Result<NodePage, DbError> {
    let node = nodes_read::get(db, scope, id).await?;
    let replicas = nodes_read::replicas(db, scope, &node, RUNNING).await?;
    let rows = conditions::of(db, Subject::Node(id)).await?;
    let mut events = page_reads::installation_events(db, id.0, CHANGES).await?;
    let (range, label, span) = measures::range(query.range.as_deref());
    let since = now - span;
    let selection = metrics::Selection {
        since: Some(since),
        ..metrics::Selection::default()
    };
    let (series, _) = metrics::outline(db, metrics::Owner::Node(id), &selection).await?;
    let timeline = changes(&node, &rows, &events, now);
    let conditions = told::conditions(rows, true, now);
    events.truncate(EVENTS as usize);
    let (tone, sentence) = nodes::state_of(&node, now);
    let worst = conditions
        .iter()
        .find(|condition| matches!(condition.tone, Tone::Critical | Tone::Warning));
    Ok(NodePage {
        shell: Shell {
            title: format!("{}: {}", sentence.split([',', ':']).next().unwrap_or("Node"), node.name),
            section: Section::Nodes,
            crumbs: vec![Crumb {
                label: "Nodes".into(),
                href: "/nodes".into(),
            }],
            live: node
                .gone_at
                .is_none()
                .then(|| format!("/nodes/{id}/live?range={range}")),
            here: format!("/nodes/{id}?range={range}"),
            ..Shell::default()
        },
        name: node.name.clone(),
        state: state(&node, tone, sentence, worst, now),
        conditions,
        timeline,
        usage_as_of: words::relative(node.observed_at, now),
        meters: meters(&node),
        running_summary: summary(&replicas),
        running: replicas.iter().map(|row| running(row, now)).collect(),
        plots_heading: format!("In the last {}", label.strip_prefix("1 ").unwrap_or(label)),
        ranges: RANGES
            .iter()
            .map(|(word, label, _)| Choice {
                label: (*label).to_owned(),
                href: format!("/nodes/{id}?range={word}#plots"),
                current: *word == range,
                count: None,
            })
            .collect(),
        plots: measures::plots(id, range, &series, now, Size::Small),
        gpus: gpus(&node.usage),
        facts: facts(&node, now),
        events: events.into_iter().map(|row| told::event(row, now)).collect(),
    })
}

fn state(node: &Node, tone: Tone, sentence: String, worst: Option<&Condition>, now: DateTime<Utc>) -> State {
    // The worst condition says it better than a count does.
    let (tone, sentence) = match worst {
        Some(condition) if matches!(tone, Tone::Critical | Tone::Warning) => {
            (tone, format!("{sentence}: {}", condition.message))
        }
        _ => (tone, sentence),
    };
    State {
        tone,
        reason: None,
        code: Some(worst.map_or_else(|| node.reason.clone(), |condition| condition.code.clone()))
            .filter(|code| !code.is_empty()),
        since: Some(worst.map_or_else(
            || told::when(node.first_seen_at, now),
            |condition| condition.since.clone(),
        )),
        next: node
            .stale_since
            .map(|_| "Start a worker for its cluster: trainyard up, or trainyard work, on that machine.".to_owned()),
        stale: None,
        sentence,
    }
}

fn summary(replicas: &[NodeReplica]) -> String {
    let mut jobs: Vec<_> = replicas.iter().map(|row| row.job).collect();
    jobs.dedup();
    match replicas.len() {
        0 => String::new(),
        count => format!(
            "{} of {}",
            words::counted(count as u64, "replica"),
            words::counted(jobs.len() as u64, "job")
        ),
    }
}

fn running(row: &NodeReplica, now: DateTime<Utc>) -> RunningRow {
    RunningRow {
        tone: told::replica_tone(row.phase),
        word: row.phase.to_string(),
        job: row.job.to_string(),
        job_name: row.job_name.clone(),
        key: format!("{}-{}", row.role, row.index),
        rank: u32::try_from(row.rank).unwrap_or(0),
        step: row.step.map(words::count).unwrap_or_default(),
        team: row.team.name.clone(),
        gpus: match row.gpu_indices.is_empty() {
            true => "none".into(),
            false => row
                .gpu_indices
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(", "),
        },
        since: row.started_at.map(|at| told::when(at, now)),
    }
}

/// A share in whole percent.
fn percent(part: f64, whole: f64) -> Option<u8> {
    (whole > 0.0).then(|| (part / whole * 100.0).round().clamp(0.0, 100.0) as u8)
}

fn meters(node: &Node) -> Vec<Meter> {
    let usage = &node.usage;
    let mut meters = Vec::new();
    let cores = node.capacity["cpu_milli"].as_u64().unwrap_or(0);
    if let Some(busy) = usage["cpu_percent"].as_f64() {
        let used = busy / 100.0 * cores as f64 / 1000.0;
        meters.push(Meter {
            name: "CPU".into(),
            words: format!("{used:.1} of {}", words::cores(cores)),
            percent: percent(busy, 100.0),
        });
    }
    if let (Some(total), Some(free)) = (usage["memory_total"].as_u64(), usage["memory_available"].as_u64()) {
        let used = total.saturating_sub(free);
        meters.push(Meter {
            name: "Memory".into(),
            words: format!("{} of {}", words::bytes(used), words::bytes(total)),
            percent: percent(used as f64, total as f64),
        });
    }
    for disk in usage["disks"].as_array().into_iter().flatten().take(4) {
        let (total, free) = (disk["total"].as_u64().unwrap_or(0), disk["free"].as_u64().unwrap_or(0));
        let used = total.saturating_sub(free);
        meters.push(Meter {
            name: format!("Disk {}", disk["mount"].as_str().unwrap_or_default()),
            words: format!("{} of {}", words::bytes(used), words::bytes(total)),
            percent: percent(used as f64, total as f64),
        });
    }
    if let Some(load) = usage["load"].as_array() {
        let load: Vec<String> = load
            .iter()
            .filter_map(Value::as_f64)
            .map(|value| format!("{value:.2}"))
            .collect();
        meters.push(Meter {
            name: "Load".into(),
            words: format!("{} over 1, 5, 15 min", load.join(", ")),
            percent: None,
        });
    }
    if usage.is_object() && !usage.as_object().is_some_and(serde_json::Map::is_empty) {
        let hottest = usage["sensors"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|sensor| Some((sensor["celsius"].as_f64()?, sensor["name"].as_str().unwrap_or_default())))
            .max_by(|a, b| a.0.total_cmp(&b.0));
        let words = match hottest {
            Some((celsius, name)) => format!("{celsius:.0} °C at {name}"),
            None => "this machine shows no sensor".to_owned(),
        };
        meters.push(Meter {
            name: "Temperature".into(),
            words,
            percent: None,
        });
    }
    meters
}

fn gpus(usage: &Value) -> Vec<GpuRow> {
    let gib = |value: &Value| {
        value
            .as_f64()
            .map(|bytes| format!("{:.1}", bytes / 1_073_741_824.0))
            .unwrap_or_default()
    };
    let whole = |value: &Value| value.as_f64().map(|value| format!("{value:.0}")).unwrap_or_default();
    usage["gpus"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|gpu| GpuRow {
            index: gpu["index"]
                .as_u64()
                .and_then(|index| u32::try_from(index).ok())
                .unwrap_or(0),
            model: gpu["name"].as_str().unwrap_or_default().to_owned(),
            busy: whole(&gpu["utilisation_percent"]),
            memory_used: gib(&gpu["memory_used"]),
            memory: gib(&gpu["memory_total"]),
            temperature: whole(&gpu["celsius"]),
            power: whole(&gpu["watts"]),
            faults: match (gpu["lost"].as_bool(), gpu["memory_errors"].as_u64()) {
                (Some(true), _) => "does not answer".into(),
                (_, Some(0)) => "none".into(),
                (_, Some(errors)) => words::counted(errors, "memory error"),
                (_, None) => "not told by the driver".into(),
            },
        })
        .collect()
}

fn facts(node: &Node, now: DateTime<Utc>) -> Vec<Fact> {
    let mut facts = vec![Fact::link(
        "Cluster",
        node.cluster.name.clone(),
        format!("/clusters/{}", node.cluster.id),
    )];
    for (name, key) in [
        ("Processor", "cpu"),
        ("System", "os"),
        ("Kernel", "kernel"),
        ("Architecture", "architecture"),
        ("GPU driver", "gpu_driver"),
    ] {
        if let Some(text) = node.facts[key].as_str().filter(|text| !text.is_empty()) {
            facts.push(Fact::new(name, text));
        }
    }
    let cores = node.allocatable["cpu_milli"].as_i64().unwrap_or(0);
    let memory = node.allocatable["memory_bytes"].as_u64().unwrap_or(0);
    facts.push(Fact::new(
        "For jobs",
        format!("{} cores, {}", clusters::cores(cores), words::bytes(memory)),
    ));
    if let Some(seconds) = node.usage["uptime_seconds"].as_i64() {
        facts.push(Fact::new("Up for", words::duration(Duration::seconds(seconds))));
    }
    facts.push(Fact::when("First seen", told::when(node.first_seen_at, now)));
    facts.push(Fact::new("Id", node.id.to_string()));
    facts
}

/// How conditions came and went in the last day, from the events of their changes.
fn changes(
    node: &Node,
    now_holds: &[conditions::Condition],
    events: &[Event],
    now: DateTime<Utc>,
) -> Option<TimelineFigure> {
    if now_holds.is_empty() {
        return None;
    }
    let from = (now - Duration::days(1)).max(node.first_seen_at);
    let lanes: Vec<Lane> = now_holds
        .iter()
        .take(12)
        .map(|condition| {
            // Each change tells what holds from then on; what was before the oldest one that is known stays blank.
            let mut bars = Vec::new();
            let mut to = None;
            for event in events
                .iter()
                .filter(|event| event.data["type"].as_str() == Some(&condition.kind))
            {
                if to.is_some_and(|to| to <= from) {
                    break;
                }
                let word = |name: &str| event.data[name].as_str().unwrap_or_default();
                bars.push(bar(
                    word("status"),
                    word("severity"),
                    &event.message,
                    event.at.max(from),
                    to,
                ));
                to = Some(event.at);
            }
            if bars.is_empty() {
                let (status, severity) = (condition.status.as_str(), condition.severity.as_str());
                bars.push(bar(
                    status,
                    severity,
                    &condition.message,
                    condition.since.max(from),
                    None,
                ));
            }
            Lane {
                label: told::named(&condition.kind),
                bars,
                points: Vec::new(),
            }
        })
        .collect();
    Some(timeline::draw(
        &format!("Conditions of {} from {} until now", node.name, words::exact(from)),
        from,
        now,
        &lanes,
    ))
}

fn bar(status: &str, severity: &str, message: &str, from: DateTime<Utc>, to: Option<DateTime<Utc>>) -> Bar {
    let (tone, word) = match (status, severity) {
        ("true", "critical") => (Tone::Critical, "critical"),
        ("true", "warning") => (Tone::Warning, "warning"),
        ("true", _) => (Tone::Info, "info"),
        ("unknown", _) => (Tone::Stale, "unknown"),
        _ => (Tone::Succeeded, "fine"),
    };
    Bar {
        tone,
        from,
        to,
        word,
        title: format!("{}: {message}, from {}", words::sentence(word), words::exact(from)),
    }
}
