//! What admission said, in words: how much is asked for, how much is there, and who stands in the way.

use chrono::{DateTime, Utc};

use super::{WhyCode, WhyReason, layers::reason};
use crate::{
    model::Layer,
    plan::{
        admit::{Hold, JobRef, NotYet, Shortage},
        words,
    },
};

pub(super) fn told(not_yet: &NotYet, now: DateTime<Utc>) -> WhyReason {
    let told = match &not_yet.hold {
        Hold::NoNodes => {
            let message = "the cluster has no node that takes jobs".to_owned();
            let next = "open or add a node".to_owned();
            reason(Layer::Capacity, WhyCode::NoNodes, message, next)
        }
        Hold::Backoff { until } => {
            let message = format!("its backoff ends {}", words::relative(*until, now));
            reason(Layer::Policy, WhyCode::Backoff, message, "wait".to_owned())
        }
        Hold::TooBig { shortage } => {
            let message = format!("{}, so it can't start here", too_big(shortage));
            numbers(
                reason(Layer::Capacity, WhyCode::TooBig, message, ask_for_less(shortage)),
                shortage,
            )
        }
        Hold::NoRoom {
            shortage,
            must_end,
            must_end_count,
            by,
        } => {
            let message = no_room(shortage);
            let wait = wait_for(must_end, *must_end_count, *by, now);
            let next = match smaller(shortage) {
                Some(smaller) => format!("ask for {smaller}, or {wait}"),
                None => wait,
            };
            let mut told = numbers(reason(Layer::Capacity, WhyCode::NoRoom, message, next), shortage).figure(
                "must_end",
                u64::from(*must_end_count),
                "jobs",
            );
            told.until = *by;
            told
        }
        Hold::Behind { head, shortage } => {
            let others = match not_yet.ahead {
                0 | 1 => head.name.clone(),
                many => format!("{} and {}", head.name, words::counted(u64::from(many - 1), "other job")),
            };
            let room = match shortage {
                Some(shortage) => no_room(shortage),
                None => format!("there is room for it, which is set aside for {}", head.name),
            };
            let message = format!("{others} came first; {room}");
            let next = format!("wait until {} has started, or raise its priority", head.name);
            let told = reason(Layer::Queue, WhyCode::Behind, message, next);
            match shortage {
                Some(shortage) => numbers(told, shortage),
                None => told,
            }
        }
    };
    told.figure("ahead", u64::from(not_yet.ahead), "jobs")
}

/// Why no node takes it, whatever else ends.
pub fn too_big(short: &Shortage) -> String {
    let each = much(short, short.each);
    if short.total == 0 {
        format!("needs {each} on one node; no node has any")
    } else if short.one_replica_too_big {
        format!(
            "needs {each} on one node; the largest node has {}",
            bare(short, short.largest_total)
        )
    } else if short.asked > short.total {
        format!(
            "needs {}; the whole cluster has {}",
            gang(short),
            bare(short, short.total)
        )
    } else {
        format!(
            "needs {}, and {} with {} do not take them side by side",
            gang(short),
            words::counted(u64::from(short.nodes), "node"),
            much(short, short.total)
        )
    }
}

fn no_room(short: &Shortage) -> String {
    let each = much(short, short.each);
    if short.each > short.largest_free {
        let node = match &short.largest_free_node {
            Some(node) if short.nodes > 1 => format!("the emptiest node, {node}, has"),
            _ => "the node has".to_owned(),
        };
        return format!(
            "needs {each} on one node; {node} {} free of {}",
            bare(short, short.largest_free),
            bare(short, short.largest_total)
        );
    }
    let free = format!("{} of {} are free", bare(short, short.free), bare(short, short.total));
    if short.asked > short.free {
        format!("needs {}; {free}", gang(short))
    } else {
        format!("needs {} side by side; {free}, spread over the nodes", gang(short))
    }
}

/// `12 GPUs (3 replicas of 4)`.
fn gang(short: &Shortage) -> String {
    match short.replicas {
        0 | 1 => much(short, short.asked),
        many => format!(
            "{} ({} of {})",
            much(short, short.asked),
            words::counted(u64::from(many), "replica"),
            bare(short, short.each)
        ),
    }
}

fn ask_for_less(short: &Shortage) -> String {
    let field = field(short);
    if short.total == 0 {
        format!("take {field} out of the document, or add a node that has it")
    } else if short.one_replica_too_big {
        let most = much(short, short.largest_total);
        format!("ask for at most {most} per replica ({field}), or add a larger node")
    } else {
        format!("ask for fewer replicas or less per replica ({field}), or add nodes")
    }
}

/// What would fit now, where that is a simple answer: one replica, one number.
fn smaller(short: &Shortage) -> Option<String> {
    let simple = short.replicas == 1 && short.each > short.largest_free && short.largest_free > 0;
    simple.then(|| much(short, short.largest_free))
}

fn wait_for(must_end: &[JobRef], count: u32, by: Option<DateTime<Utc>>, now: DateTime<Utc>) -> String {
    let mut names: Vec<String> = must_end.iter().take(2).map(|job| job.name.clone()).collect();
    match count as usize - names.len().min(count as usize) {
        0 => {}
        1 => names.push("another job".to_owned()),
        more => names.push(format!("{} other jobs", words::count(more as u64))),
    }
    let names = words::list(&names, 3);
    match (names.is_empty(), by.filter(|by| *by > now)) {
        (true, _) => "wait".to_owned(),
        (_, Some(by)) => format!("wait for {names} to end (in at most {})", words::duration(by - now)),
        (_, None) => format!("wait for {names} to end"),
    }
}

fn numbers(told: WhyReason, short: &Shortage) -> WhyReason {
    let unit = match short.resource.as_str() {
        "cpu" => "cores/1000",
        "memory" => "bytes",
        other => other,
    };
    told.figure("asked_each", short.each, unit)
        .figure("asked", short.asked, unit)
        .figure("free", short.free, unit)
        .figure("total", short.total, unit)
        .figure("largest_free", short.largest_free, unit)
        .figure("largest_total", short.largest_total, unit)
        .figure("replicas", u64::from(short.replicas), "replicas")
        .figure("nodes", u64::from(short.nodes), "nodes")
}

/// An amount with its unit.
fn much(short: &Shortage, amount: u64) -> String {
    match short.resource.as_str() {
        "cpu" => words::cores(amount),
        "memory" => format!("{} of memory", words::bytes(amount)),
        "gpus" => words::counted(amount, "GPU"),
        other => format!("{} {other}", words::count(amount)),
    }
}

/// An amount whose unit was just said.
fn bare(short: &Shortage, amount: u64) -> String {
    match short.resource.as_str() {
        "cpu" => words::cores(amount).split(' ').next().unwrap_or_default().to_owned(),
        "memory" => words::bytes(amount),
        _ => words::count(amount),
    }
}

fn field(short: &Shortage) -> String {
    match short.resource.as_str() {
        known @ ("cpu" | "memory" | "gpus") => format!("resources.{known}"),
        other => format!("resources.other[\"{other}\"]"),
    }
}
