//! One cluster: what it can do, what it enforces, whom it trusts, and its queue.

use askama::Template;
use axum::{
    extract::State,
    response::{Html, Redirect},
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use trainyard_core::{
    model::{ClusterId, Provider},
    plan::words,
};

use super::{
    clusters, found, shown, told,
    view::{Condition, Crumb, EventRow, Fact, Section, Shell, State as Told, Tone, When},
    viewer,
};
use crate::{
    db::{
        Db, DbError, Scope,
        checks::{self, Check},
        clusters_read::{self, Cluster},
        conditions,
        events::Subject,
        page_reads,
    },
    web::{
        Error, WebState,
        extract::{Asker, PathOf},
    },
};

#[derive(Debug, Clone, Template)]
#[template(path = "cluster.html", blocks = ["state", "conditions", "queue", "events"])]
pub struct ClusterPage {
    pub shell: Shell,
    pub id: String,
    pub name: String,
    pub state: Told,
    pub facts: Vec<Fact>,
    /// Who is kept apart from whom, in one or two sentences.
    pub trust: String,
    pub limits: Vec<Limit>,
    pub conditions: Vec<Condition>,
    pub queue_summary: String,
    pub queue: Vec<QueueRow>,
    pub grants: Vec<Grant>,
    pub events: Vec<EventRow>,
}

#[derive(Debug, Clone)]
pub struct Limit {
    pub name: &'static str,
    pub tone: Tone,
    /// `yes`, `no`, `not known yet`.
    pub word: &'static str,
    pub how: String,
}

#[derive(Debug, Clone)]
pub struct QueueRow {
    pub place: usize,
    pub job: String,
    pub name: String,
    pub team: String,
    pub priority: i32,
    pub asks: String,
    pub since: When,
    pub why: String,
}

#[derive(Debug, Clone)]
pub struct Grant {
    pub id: String,
    pub team: String,
    pub level: String,
    pub namespace: String,
    pub queue: String,
}

const QUEUE: i64 = 50;
const EVENTS: i64 = 15;

/// `GET /clusters/{cluster}`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<ClusterId>,
) -> Result<Html<String>, Error> {
    let page = load(&state.db, &asker.scope(), id, state.actions.now()).await;
    let mut page = found("cluster", id, page)?;
    page.shell.viewer = viewer(&asker);
    shown(&page)
}

pub async fn load(db: &Db, scope: &Scope, id: ClusterId, now: DateTime<Utc>) -> Result<ClusterPage, DbError> {
    let cluster = clusters_read::get(db, scope, id).await?;
    let room = page_reads::rooms(db, &[id]).await?.remove(&id);
    let waiting = page_reads::queue(db, scope, &cluster, QUEUE).await?;
    let grants = clusters_read::grants(db, scope, id).await?;
    let conditions = told::conditions(conditions::of(db, Subject::Cluster(id)).await?, false, now);
    let events = page_reads::installation_events(db, id.0, EVENTS).await?;
    let (tone, word) = clusters::state_of(&cluster, now);
    let sentence = format!(
        "{word}, {} of {} ready, {}, {}",
        words::count(cluster.nodes_ready),
        words::counted(cluster.nodes.unsigned_abs(), "node"),
        match cluster.jobs_active {
            0 => "nothing runs".to_owned(),
            1 => "1 job runs".to_owned(),
            count => format!("{} jobs run", words::count(count)),
        },
        match cluster.jobs_queued {
            0 => "nothing waits".to_owned(),
            1 => "1 waits".to_owned(),
            count => format!("{} wait", words::count(count)),
        },
    );
    let mut facts = vec![Fact::new("Comes from", clusters::provider(cluster.provider))];
    if let Some(room) = room {
        facts.push(Fact::new(
            "CPU",
            format!(
                "{} of {} cores free",
                clusters::cores(room.cpu_milli_free),
                clusters::cores(room.cpu_milli)
            ),
        ));
        let bytes = |bytes: i64| words::bytes(bytes.unsigned_abs());
        facts.push(Fact::new(
            "Memory",
            format!("{} of {} free", bytes(room.memory_bytes_free), bytes(room.memory_bytes)),
        ));
        facts.push(Fact::new(
            "GPUs",
            match room.gpus {
                0 => "none".to_owned(),
                all => format!("{} of {} free", words::count(room.gpus_free), words::count(all)),
            },
        ));
    }
    facts.push(match cluster.observed_at {
        Some(at) => Fact::when("Looked at", told::when(at, now)),
        None => Fact::new("Looked at", "never"),
    });
    if let Some(check) = checks::newest(db, id).await? {
        facts.push(Fact::new("Asked", asked(&check, now)));
    }
    facts.push(Fact::new("Id", id.to_string()));
    Ok(ClusterPage {
        shell: Shell {
            title: format!("{word}: {}", cluster.name),
            section: Section::Clusters,
            crumbs: vec![Crumb {
                label: "Clusters".into(),
                href: "/clusters".into(),
            }],
            live: Some(format!("/clusters/{id}/live")),
            here: format!("/clusters/{id}"),
            ..Shell::default()
        },
        id: id.to_string(),
        name: cluster.name.clone(),
        state: Told {
            tone,
            sentence,
            reason: (cluster.phase != "active").then(|| cluster.message.clone()),
            code: None,
            since: Some(told::when(cluster.stale_since.unwrap_or(cluster.created_at), now)),
            next: cluster.stale_since.map(|_| match cluster.provider {
                Provider::Local => "Start Trainyard on that machine: trainyard up, or trainyard work.".to_owned(),
                _ => "Start a worker: trainyard work.".to_owned(),
            }),
            stale: None,
        },
        trust: trust(&cluster),
        limits: limits(&cluster),
        facts,
        conditions,
        queue_summary: match cluster.jobs_queued {
            0 => String::new(),
            count => words::counted(count.unsigned_abs(), "job"),
        },
        queue: waiting
            .into_iter()
            .map(|row| QueueRow {
                place: usize::try_from(row.place).unwrap_or(0),
                job: row.id.to_string(),
                name: row.name,
                team: row.team,
                priority: row.priority,
                asks: told::asks(row.replicas, row.cpu_milli, row.memory_bytes, row.gpus),
                since: told::when(row.queued_at, now),
                why: row.not_yet.map_or_else(
                    || "No worker has looked at it yet.".to_owned(),
                    |not_yet| told::full(&told::hold(&not_yet)),
                ),
            })
            .collect(),
        grants: grants
            .into_iter()
            .map(|grant| Grant {
                id: grant.team.id.to_string(),
                team: grant.team.name,
                level: grant.level,
                namespace: grant.namespace.unwrap_or_else(|| "none".into()),
                queue: grant.queue.unwrap_or_else(|| "none".into()),
            })
            .collect(),
        events: events.into_iter().map(|row| told::event(row, now)).collect(),
    })
}

/// `POST /clusters/{cluster}/look`: has its worker look at it now.
pub async fn look(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<ClusterId>,
) -> Result<Redirect, Error> {
    let nothing = Value::Object(Default::default());
    state
        .actions
        .ask_check(asker.ask(), "cluster.look", id, &nothing)
        .await?;
    Ok(Redirect::to(&format!("/clusters/{id}")))
}

/// What came of the last question to the cluster.
fn asked(check: &Check, now: DateTime<Utc>) -> String {
    let asked = words::relative(check.created_at, now);
    let answer = check.answer.as_ref().unwrap_or(&Value::Null);
    match (check.phase.as_str(), check.answered_at) {
        ("answered", Some(at)) => {
            let attempts = &answer["attempts"];
            let count = |name: &str| attempts[name].as_u64().unwrap_or(0);
            let unrecorded = attempts["unrecorded"].as_array().map_or(0, Vec::len) as u64;
            let mut found = format!("{} alive", words::counted(count("live"), "attempt"));
            if unrecorded > 0 {
                found += &format!(", {} that no record knows", words::count(unrecorded));
            }
            if count("not_started") > 0 {
                found += &format!(", {} not there", words::count(count("not_started")));
            }
            format!("answered {}: {found}", words::relative(at, now))
        }
        ("failed", Some(at)) => {
            let why = answer["message"].as_str().unwrap_or("no reason is known");
            format!("no answer {}: {why}", words::relative(at, now))
        }
        _ => format!("asked {asked}, and not answered yet"),
    }
}

/// What the worker found about who is kept apart from whom.
fn trust(cluster: &Cluster) -> String {
    if cluster.provider != Provider::Local {
        return "Jobs are kept apart by the namespaces and rights that the grants below give.".into();
    }
    match (
        cluster.facts["one_trust_domain"].as_bool(),
        cluster.facts["account"].as_str(),
    ) {
        (Some(true), _) => {
            "Trainyard runs as an ordinary account here, so its server, its keys, its database and every \
            job are one trust domain: a job can read whatever this account can read."
                .into()
        }
        (Some(false), Some(account)) => format!(
            "Jobs run as the account {account}, apart from the server, its keys and its database. They are not kept \
             apart from each other: all of them are that account."
        ),
        _ => "Not known yet: no worker has looked at this cluster.".into(),
    }
}

fn limits(cluster: &Cluster) -> Vec<Limit> {
    if cluster.provider != Provider::Local {
        return vec![Limit {
            name: "Memory, CPU, GPUs",
            tone: Tone::Succeeded,
            word: "yes",
            how: "By Kubernetes.".into(),
        }];
    }
    let missing: Vec<&str> = cluster.facts["missing"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let why = match missing.is_empty() {
        true => "The control groups of this machine do not allow it to this account.".to_owned(),
        false => format!("{}.", missing.join("; ")),
    };
    let limit = |name, fact: &str, held: &str, counted: &str| {
        let (tone, word, how) = match cluster.facts[fact].as_bool() {
            Some(true) => (Tone::Succeeded, "yes", held.to_owned()),
            Some(false) => (Tone::Warning, "no", format!("{counted} {why}")),
            None => (Tone::Stale, "not known yet", "No worker has looked at it.".to_owned()),
        };
        Limit { name, tone, word, how }
    };
    vec![
        limit(
            "Memory",
            "limits_memory",
            "A replica that goes beyond its memory is ended by the kernel, and that is told apart from other ends.",
            "Replicas are counted against the machine's memory, but not held to what they asked for.",
        ),
        limit(
            "CPU",
            "limits_cpu",
            "A replica gets no more processor time than it asked for.",
            "Replicas are counted against the cores, but not held to what they asked for.",
        ),
        Limit {
            name: "GPUs",
            tone: Tone::Info,
            word: "by assignment",
            how:
                "Each replica is told its own GPUs in CUDA_VISIBLE_DEVICES; nothing keeps a program from using others."
                    .into(),
        },
    ]
}
