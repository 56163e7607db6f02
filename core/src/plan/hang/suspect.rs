//! Which rank stands out once an attempt stands still, and what was looked at to tell.

use chrono::{DateTime, Duration, Utc};

use super::{RankSigns, Suspect};
use crate::plan::words;

/// More ranks than these are summed up.
const TOLD: usize = 16;

/// The one rank that differs from all others in something that they all showed; `None` where that is nobody or
/// several. A stopped process is the strongest sign, then a step that only it has not reached, then its last sign.
pub(super) fn who_stands_out(ranks: &[RankSigns], usual: Duration) -> Option<Suspect> {
    stopped(ranks)
        .or_else(|| behind(ranks))
        .or_else(|| quiet_first(ranks, usual))
}

/// The only rank whose process is stopped by a signal.
pub(super) fn stopped(ranks: &[RankSigns]) -> Option<Suspect> {
    let stopped = |rank: &&RankSigns| matches!(rank.process_state, Some('T' | 't'));
    let mut found = ranks.iter().filter(stopped);
    match (found.next(), found.next()) {
        (Some(only), None) => Some(suspect(only, "its process is stopped by a signal (state T)".to_owned())),
        _ => None,
    }
}

/// The only rank that has not reached the step that all others have.
fn behind(ranks: &[RankSigns]) -> Option<Suspect> {
    let mut steps: Vec<(i64, &RankSigns)> = Vec::with_capacity(ranks.len());
    for rank in ranks {
        steps.push((rank.steps.last()?.step, rank));
    }
    steps.sort_by_key(|&(step, rank)| (step, rank.rank));
    match steps[..] {
        [(last, rank), (next, _), ..] if last < next => Some(suspect(
            rank,
            format!(
                "its last step is {}; every other rank reached {} or more",
                words::count(last),
                words::count(next)
            ),
        )),
        _ => None,
    }
}

/// The only rank whose last sign came well before that of all others. All of them must print: one that never does
/// is silent for no reason.
fn quiet_first(ranks: &[RankSigns], usual: Duration) -> Option<Suspect> {
    let mut signs: Vec<(DateTime<Utc>, &RankSigns)> = Vec::with_capacity(ranks.len());
    for rank in ranks {
        let step = rank.steps.last().map(|step| step.at);
        // One start message is no rhythm, so a rank counts as printing only if it printed since it was up a while.
        let printed = rank
            .last_output_at
            .filter(|&at| at - rank.started_at > usual.max(Duration::seconds(5)));
        signs.push((step.max(printed)?, rank));
    }
    signs.sort_by_key(|&(at, rank)| (at, rank.rank));
    let margin = (usual * 2).max(Duration::seconds(2));
    match signs[..] {
        [(first, rank), (next, _), ..] if next - first >= margin => Some(suspect(
            rank,
            format!(
                "its last sign was at {}; every other rank gave one {} later or more",
                words::exact(first),
                words::brief(next - first)
            ),
        )),
        _ => None,
    }
}

fn suspect(rank: &RankSigns, evidence: String) -> Suspect {
    Suspect {
        key: rank.key.clone(),
        rank: rank.rank,
        evidence: vec![evidence],
    }
}

pub(super) fn in_words(suspect: Option<&Suspect>) -> String {
    match suspect {
        Some(suspect) => {
            let evidence = words::list(&suspect.evidence, 3);
            format!("Rank {} ({}) stands out: {evidence}.", suspect.rank, suspect.key)
        }
        None => "Rank unknown: none stands out in what was looked at.".to_owned(),
    }
}

/// One sentence per rank, and what can't be told.
pub(super) fn looked_at(ranks: &[RankSigns]) -> Vec<String> {
    let mut told: Vec<String> = ranks.iter().take(TOLD).map(of_rank).collect();
    if ranks.len() > TOLD {
        let rest = &ranks[TOLD..];
        let steps: Vec<i64> = rest
            .iter()
            .filter_map(|rank| rank.steps.last().map(|step| step.step))
            .collect();
        let steps = match (steps.iter().min(), steps.iter().max()) {
            (Some(low), Some(high)) => format!("last steps from {} to {}", words::count(*low), words::count(*high)),
            _ => "no steps".to_owned(),
        };
        told.push(format!("{} more: {steps}", words::counted(rest.len() as u64, "rank")));
    }
    let silent: Vec<u32> = ranks
        .iter()
        .filter(|rank| rank.steps.is_empty() && rank.last_output_at.is_none())
        .map(|rank| rank.rank)
        .collect();
    if !silent.is_empty() && silent.len() < ranks.len() {
        told.push(format!(
            "{} never printed, so their silence says nothing",
            words::ranks(&silent)
        ));
    }
    told
}

fn of_rank(rank: &RankSigns) -> String {
    let step = match rank.steps.last() {
        Some(step) => format!("step {} at {}", words::count(step.step), words::exact(step.at)),
        None => "no step".to_owned(),
    };
    let output = match rank.last_output_at {
        Some(at) => format!("last line at {}", words::exact(at)),
        None => "no line".to_owned(),
    };
    let cpu = rank
        .cpu_milli
        .map_or(String::new(), |milli| format!(", {}", words::cores(milli)));
    let state = rank
        .process_state
        .map_or(String::new(), |state| format!(", state {state}"));
    format!("rank {}: {step}, {output}{cpu}{state}", rank.rank)
}
