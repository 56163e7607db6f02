//! A frozen post-mortem as the page shows it.

use chrono::{DateTime, Utc};
use trainyard_core::{
    model::{JobId, ReplicaKey},
    plan::{
        postmortem::{Part, PostMortem},
        words,
    },
};

use super::{PostMortemView, RankEnd};
use crate::web::pages::{
    told,
    view::{Condition, State, Tone},
};

/// What the state above it says already is not said again.
pub fn told(end: &PostMortem, id: JobId, above: &State, now: DateTime<Utc>) -> PostMortemView {
    let part = |part: Part| match part {
        Part::FirstFailure => (0, "First to fail:"),
        Part::AlsoFailed => (1, "Failed too:"),
        Part::NeverRan => (2, "Never ran:"),
        Part::Victim => (3, "Ended with it:"),
        Part::Succeeded => (4, "Succeeded:"),
    };
    let mut replicas: Vec<_> = end.replicas.iter().collect();
    replicas.sort_by_key(|replica| (part(replica.part).0, replica.rank));
    let ranks = replicas
        .into_iter()
        // Hundreds of victims say the same; the table of replicas has all of them.
        .take(12)
        .map(|replica| {
            let key = ReplicaKey {
                role: replica.role.clone(),
                index: replica.index,
            };
            let place = replica
                .node
                .as_ref()
                .map(|node| format!(" on {node}"))
                .unwrap_or_default();
            RankEnd {
                part: part(replica.part).1,
                first: replica.part == Part::FirstFailure,
                name: format!("rank {} ({key}){place}", replica.rank),
                exit: replica.exit.clone(),
                meaning: replica.recognised.as_ref().and_then(|known| {
                    let parts = [known.meaning.as_str(), known.next.as_str()];
                    let fresh = parts
                        .iter()
                        .filter(|part| !end.summary.contains(**part) && end.next != **part);
                    let said = fresh.copied().collect::<Vec<_>>().join(" ");
                    (!said.is_empty()).then_some(said)
                }),
                lines: replica
                    .last_lines
                    .iter()
                    .map(|line| crate::web::pages::terminal::plain(line))
                    .collect(),
                logs: format!("/jobs/{id}/logs?attempt={}&replica={key}", end.attempt),
            }
        })
        .collect();
    PostMortemView {
        attempt: end.attempt,
        summary: end.summary.clone(),
        code: serde_json::to_value(end.reason)
            .ok()
            .and_then(|code| code.as_str().map(str::to_owned))
            .unwrap_or_default(),
        policy: Some(end.policy_sentence.clone())
            .filter(|policy| !above.sentence.contains(policy.trim_end_matches('.'))),
        steps_lost: end.steps_lost.filter(|lost| *lost > 0).map(|lost| {
            format!(
                "{} since the last checkpoint are lost.",
                words::counted(lost.unsigned_abs(), "step")
            )
        }),
        next: Some(end.next.clone()).filter(|next| above.next.as_ref() != Some(next)),
        ranks,
        nodes: end
            .nodes
            .iter()
            .map(|node| Condition {
                tone: Tone::Warning,
                severity: node.severity.as_str(),
                name: format!("{}: {}", node.node, told::named(&node.condition)),
                message: node.message.clone(),
                code: node.condition.clone(),
                since: told::when(node.since.unwrap_or(end.ended_at), now),
            })
            .collect(),
    }
}
