//! Finding jobs, nodes and clusters by name.

use askama::Template;
use axum::{extract::State, response::Html};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use trainyard_core::model::{ClusterId, NodeId};

use super::{
    jobs, shown,
    view::{Section, Shell, Tone},
    viewer,
};
use crate::{
    db::{
        Db, DbError, Scope,
        jobs_list::{self, JobFilter},
        page_reads,
    },
    web::{
        Error, WebState,
        extract::{Asker, Params},
    },
};

#[derive(Debug, Template)]
#[template(path = "search.html")]
pub struct SearchPage {
    pub shell: Shell,
    pub text: String,
    pub groups: Vec<HitGroup>,
}

#[derive(Debug, Clone)]
pub struct HitGroup {
    pub heading: &'static str,
    pub none: &'static str,
    pub hits: Vec<Hit>,
}

#[derive(Debug, Clone)]
pub struct Hit {
    pub tone: Tone,
    pub name: String,
    pub href: String,
    pub about: String,
}

/// What the address asks for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SearchQuery {
    #[serde(default)]
    q: String,
}

const HITS: i64 = 20;

/// `GET /search`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    Params(query): Params<SearchQuery>,
) -> Result<Html<String>, Error> {
    let mut page = load(&state.db, &asker.scope(), query.q.trim(), state.actions.now()).await?;
    page.shell.viewer = viewer(&asker);
    shown(&page)
}

async fn load(db: &Db, scope: &Scope, text: &str, now: DateTime<Utc>) -> Result<SearchPage, DbError> {
    let mut groups = Vec::new();
    if !text.is_empty() {
        let filter = JobFilter {
            text: Some(text.to_owned()),
            ..JobFilter::default()
        };
        let jobs = jobs_list::page(db, scope, &filter, None, HITS).await?;
        let ids: Vec<_> = jobs.jobs.iter().map(|job| job.id).collect();
        let asides = page_reads::asides(db, &ids, now).await?;
        let none = page_reads::Aside::default();
        let hits = jobs.jobs.iter().map(|job| {
            let row = jobs::row(job, asides.get(&job.id).unwrap_or(&none), now);
            Hit {
                tone: row.tone,
                href: format!("/jobs/{}", row.id),
                about: format!("{} · {}, submitted {}", row.sentence, row.team, row.submitted.words),
                name: row.name,
            }
        });
        groups.push(HitGroup {
            heading: "Jobs",
            none: "No job's name, label or message contains it.",
            hits: hits.collect(),
        });
        let named = page_reads::named(db, scope, text, HITS).await?;
        let of = |nodes: bool| {
            let rows = named.iter().filter(move |row| row.is_node == nodes);
            rows.map(|row| Hit {
                tone: match row.phase.as_str() {
                    "ready" | "active" => Tone::Succeeded,
                    "not_ready" | "failed" => Tone::Failed,
                    _ => Tone::Waiting,
                },
                name: row.name.clone(),
                href: match nodes {
                    true => format!("/nodes/{}", NodeId(row.id)),
                    false => format!("/clusters/{}", ClusterId(row.id)),
                },
                about: row.phase.replace('_', " "),
            })
            .collect()
        };
        groups.push(HitGroup {
            heading: "Nodes",
            none: "No node's name contains it.",
            hits: of(true),
        });
        groups.push(HitGroup {
            heading: "Clusters",
            none: "No cluster's name contains it.",
            hits: of(false),
        });
    }
    Ok(SearchPage {
        shell: Shell {
            title: if text.is_empty() {
                "Find".into()
            } else {
                format!("Find: {text}")
            },
            section: Section::None,
            here: "/search".into(),
            ..Shell::default()
        },
        text: text.to_owned(),
        groups,
    })
}
