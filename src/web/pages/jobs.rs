//! The list of jobs: what is wrong or waiting, then the rest. Filters and place live in the address.

use std::collections::BTreeMap;

use askama::Template;
use axum::{
    extract::State,
    response::{Html, Redirect},
};
use chrono::{DateTime, Duration, Utc};
use serde::Deserialize;
use trainyard_core::{
    model::{JobId, Phase},
    plan::words,
};

use super::{
    shown,
    sort::{Column, Head, Holds, Sort, heads},
    told,
    view::{Choice, Pages, Section, SelectOption, Shell, Tone, When},
    viewer,
};
use crate::{
    db::{
        Db, DbError, Scope, clusters_read,
        jobs_list::{self, JobFilter, Order},
        jobs_read::Job,
        page_reads::{self, Aside, COUNTED},
        teams,
    },
    web::{
        Error, WebState,
        extract::{Asker, Params},
    },
};

#[derive(Debug, Template)]
#[template(path = "jobs.html", blocks = ["choices"])]
pub struct JobsPage {
    pub shell: Shell,
    /// `2 failed in the last day, 3 wait, 4 run`.
    pub summary: String,
    pub choices: Vec<Choice>,
    /// The state filter in force, kept by the form.
    pub state: Option<String>,
    pub text: String,
    pub label: String,
    pub teams: Vec<SelectOption>,
    pub clusters: Vec<SelectOption>,
    pub filtered: bool,
    /// The order that the address asks for, kept by the form.
    pub sort: Option<String>,
    pub heads: Vec<Head>,
    pub rows: Vec<JobRow>,
    pub pages: Pages,
}

#[derive(Debug, Clone, Template)]
#[template(
    source = "{% import \"parts.html\" as parts %}{% include \"job_row.html\" %}",
    ext = "html"
)]
pub struct JobRowFragment {
    pub row: JobRow,
}

#[derive(Debug, Clone)]
pub struct JobRow {
    pub id: String,
    pub tone: Tone,
    pub sentence: String,
    pub name: String,
    pub team: String,
    pub owner: String,
    pub cluster: String,
    pub replicas: String,
    pub gpus: String,
    pub submitted: When,
    /// How long its attempts ran, or nothing yet.
    pub ran: String,
}

/// What the address asks for. A form sends every field, so an empty one means nothing.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct JobsQuery {
    state: Option<String>,
    text: Option<String>,
    team: Option<String>,
    cluster: Option<String>,
    label: Option<String>,
    /// `submitted` or `-submitted`.
    sort: Option<String>,
    /// The last job of the page before.
    after: Option<String>,
}

/// The columns of [`JobRow`]. Jobs have no end, so they are sorted only as their indexes are: by age.
pub const COLUMNS: [Column; 8] = [
    Column::new("State", "", Holds::State),
    Column::new("Job", "", Holds::Text),
    Column::new("Team, owner", "", Holds::Text),
    Column::new("Cluster", "", Holds::Text),
    Column::new("Replicas", "", Holds::Number),
    Column::new("GPUs", "", Holds::Number),
    Column::new("Submitted", "submitted", Holds::Time),
    Column::new("Ran", "", Holds::Text),
];
pub const NEWEST: Sort = Sort {
    word: "submitted",
    falls: true,
};

const PAGE: i64 = 50;
/// A team with more clusters filters by the cluster's page.
const CHOICES: i64 = 200;

/// The words of the state filter with what they let through.
const STATES: [(&str, &str, &[Phase]); 7] = [
    (
        "open",
        "Open",
        &[
            Phase::Queued,
            Phase::Starting,
            Phase::Running,
            Phase::Stopping,
            Phase::Suspended,
        ],
    ),
    ("waiting", "Waiting", &[Phase::Queued]),
    (
        "running",
        "Running",
        &[Phase::Starting, Phase::Running, Phase::Stopping],
    ),
    ("suspended", "Suspended", &[Phase::Suspended]),
    ("failed", "Failed", &[Phase::Failed]),
    ("succeeded", "Succeeded", &[Phase::Succeeded]),
    ("cancelled", "Cancelled", &[Phase::Cancelled]),
];

/// `GET /`.
pub async fn home() -> Redirect {
    Redirect::to("/jobs")
}

/// `GET /jobs`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    Params(query): Params<JobsQuery>,
) -> Result<Html<String>, Error> {
    let mut page = load(&state.db, &asker.scope(), &query, state.actions.now()).await?;
    page.shell.viewer = viewer(&asker);
    shown(&page)
}

/// The page for whoever has this scope; the viewer is filled in by the caller.
pub async fn load(db: &Db, scope: &Scope, query: &JobsQuery, now: DateTime<Utc>) -> Result<JobsPage, DbError> {
    let query = query.without_empty();
    let teams = teams::list(db, scope, None, CHOICES).await?;
    let clusters = clusters_read::list(db, scope, None, CHOICES).await?;
    let counts = page_reads::open_jobs(db, scope, now - Duration::days(1)).await?;
    let team = query
        .team
        .as_ref()
        .map(|name| teams.iter().find(|team| team.name == *name).map(|team| team.id));
    let sort = Sort::of(query.sort.as_deref(), &COLUMNS, NEWEST);
    let cluster = query.cluster.as_ref().map(|name| {
        clusters
            .iter()
            .find(|one| one.name == *name || one.id.to_string() == *name)
            .map(|one| one.id)
    });
    let (rows, next) = match (team, cluster) {
        // Somebody else's team or cluster is as good as one that is not there.
        (Some(None), _) | (_, Some(None)) => (Vec::new(), None),
        (team, cluster) => {
            let filter = JobFilter {
                phases: query.phases().to_vec(),
                team: team.flatten(),
                cluster: cluster.flatten(),
                labels: query.labels(),
                text: query.text.clone(),
                order: if sort.falls { Order::Newest } else { Order::Oldest },
                ..JobFilter::default()
            };
            let after = query.after.as_ref().and_then(|id| id.parse().ok());
            let page = jobs_list::page(db, scope, &filter, after, PAGE).await?;
            (rows(db, &page.jobs, now).await?, page.next)
        }
    };
    let named = |count: Option<&i64>| count.copied().unwrap_or(0);
    let failed = named(counts.get("failed"));
    let waiting = named(counts.get("queued"));
    let running = named(counts.get("running")) + named(counts.get("starting")) + named(counts.get("stopping"));
    let suspended = named(counts.get("suspended"));
    let here = query.address(&[]);
    let later = query.after.is_some();
    Ok(JobsPage {
        shell: Shell {
            title: title(failed, waiting),
            section: Section::Jobs,
            // Only the first page is live: what lies behind one place does not move.
            live: (!later).then(|| here.replacen("/jobs", "/jobs/live", 1)),
            here: here.clone(),
            ..Shell::default()
        },
        summary: summary(failed, waiting, running, suspended),
        choices: choices(&query, failed, waiting, running, suspended),
        filtered: query.is_filtered(),
        teams: options(
            "All my teams",
            teams.iter().map(|team| team.name.clone()),
            query.team.as_deref(),
        ),
        clusters: options(
            "All clusters",
            clusters.iter().map(|cluster| cluster.name.clone()),
            query.cluster.as_deref(),
        ),
        pages: Pages {
            first: later.then(|| query.address(&[])),
            next: next.map(|next| query.address(&[("after", Some(&next.to_string()))])),
        },
        heads: heads(&COLUMNS, sort, |sort| query.address(&[("sort", Some(sort))])),
        sort: query.sort.clone(),
        text: query.text.unwrap_or_default(),
        label: query.label.unwrap_or_default(),
        state: query.state,
        rows,
    })
}

async fn rows(db: &Db, jobs: &[Job], now: DateTime<Utc>) -> Result<Vec<JobRow>, DbError> {
    let asides = asides(db, jobs, now).await?;
    Ok(jobs
        .iter()
        .zip(&asides)
        .map(|(job, aside)| row(job, aside, now))
        .collect())
}

async fn asides(db: &Db, jobs: &[Job], now: DateTime<Utc>) -> Result<Vec<Aside>, DbError> {
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    let mut asides = page_reads::asides(db, &ids, now).await?;
    Ok(ids.iter().map(|id| asides.remove(id).unwrap_or_default()).collect())
}

/// The state of each job in the words of its row, for those that show no page.
pub async fn sentences(db: &Db, jobs: &[Job], now: DateTime<Utc>) -> Result<Vec<String>, DbError> {
    let asides = asides(db, jobs, now).await?;
    let told = |(job, aside)| told::job_sentence(job, aside, &told::More::default(), now);
    Ok(jobs.iter().zip(&asides).map(told).collect())
}

pub fn row(job: &Job, aside: &Aside, now: DateTime<Utc>) -> JobRow {
    JobRow {
        id: job.id.to_string(),
        tone: told::job_tone(job, aside),
        sentence: told::job_sentence(job, aside, &told::More::default(), now),
        name: job.name.clone(),
        team: job.team.name.clone(),
        owner: job.owner.name.clone(),
        cluster: match (&job.cluster, &job.cluster_wanted) {
            (Some(cluster), _) => cluster.name.clone(),
            (None, Some(wanted)) => wanted.clone(),
            (None, None) => "any".into(),
        },
        replicas: words::count(job.replicas),
        gpus: words::count(job.gpus),
        submitted: told::when(job.created_at, now),
        ran: told::ran_for(aside).map(words::duration).unwrap_or_default(),
    }
}

/// `7`, or `more than 10,000`.
fn counted(count: i64) -> String {
    if count > COUNTED {
        format!("more than {}", words::count(COUNTED))
    } else {
        words::count(count)
    }
}

fn title(failed: i64, waiting: i64) -> String {
    let mut parts = Vec::new();
    if failed > 0 {
        parts.push(format!("{} failed", counted(failed)));
    }
    if waiting > 0 {
        parts.push(format!("{} wait", counted(waiting)));
    }
    if parts.is_empty() {
        "Jobs".into()
    } else {
        format!("{} · Jobs", parts.join(", "))
    }
}

fn summary(failed: i64, waiting: i64, running: i64, suspended: i64) -> String {
    let verb = |count: i64, one: &str, many: &str| {
        let word = if count == 1 { one } else { many };
        format!("{} {word}", counted(count))
    };
    if failed + waiting + running + suspended == 0 {
        return "Nothing runs or waits, and nothing failed in the last day.".into();
    }
    let mut parts = vec![match failed {
        0 => "None failed in the last day".to_owned(),
        count => format!("{} failed in the last day", counted(count)),
    }];
    parts.push(if waiting == 0 {
        "none waits".into()
    } else {
        verb(waiting, "waits", "wait")
    });
    parts.push(if running == 0 {
        "none runs".into()
    } else {
        verb(running, "runs", "run")
    });
    if suspended > 0 {
        parts.push(verb(suspended, "is suspended", "are suspended"));
    }
    format!("{}.", parts.join(", "))
}

fn choices(query: &JobsQuery, failed: i64, waiting: i64, running: i64, suspended: i64) -> Vec<Choice> {
    let all = Choice {
        label: "All".into(),
        href: query.address(&[("state", None)]),
        current: query.state.is_none(),
        count: None,
    };
    let states = STATES.iter().map(|(word, label, _)| Choice {
        label: (*label).to_owned(),
        href: query.address(&[("state", Some(word))]),
        current: query.state.as_deref() == Some(word),
        count: match *word {
            "open" => Some(counted(waiting + running + suspended)),
            "waiting" => Some(counted(waiting)),
            "running" => Some(counted(running)),
            "suspended" => Some(counted(suspended)),
            "failed" => Some(format!("{} in the last day", counted(failed))),
            _ => None,
        },
    });
    std::iter::once(all).chain(states).collect()
}

pub(super) fn options(all: &str, names: impl Iterator<Item = String>, chosen: Option<&str>) -> Vec<SelectOption> {
    let first = SelectOption {
        value: String::new(),
        label: all.to_owned(),
        selected: chosen.is_none(),
    };
    let rest = names.map(|name| SelectOption {
        selected: chosen == Some(name.as_str()),
        label: name.clone(),
        value: name,
    });
    std::iter::once(first).chain(rest).collect()
}

impl JobsQuery {
    fn without_empty(&self) -> Self {
        let some = |value: &Option<String>| {
            value
                .as_ref()
                .map(|text| text.trim().to_owned())
                .filter(|text| !text.is_empty())
        };
        Self {
            state: some(&self.state),
            text: some(&self.text),
            team: some(&self.team),
            cluster: some(&self.cluster),
            label: some(&self.label),
            sort: some(&self.sort),
            after: some(&self.after),
        }
    }

    fn is_filtered(&self) -> bool {
        [&self.state, &self.text, &self.team, &self.cluster, &self.label]
            .into_iter()
            .any(Option::is_some)
    }

    fn phases(&self) -> &'static [Phase] {
        STATES
            .iter()
            .find(|(word, _, _)| Some(*word) == self.state.as_deref())
            .map_or(&[], |(_, _, phases)| phases)
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let pair = self.label.as_deref().and_then(|label| label.split_once('='));
        pair.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()))
            .into_iter()
            .collect()
    }

    /// The first page of this list with some of its parameters changed.
    fn address(&self, changes: &[(&str, Option<&str>)]) -> String {
        let mut pairs = [
            ("state", self.state.as_deref()),
            ("text", self.text.as_deref()),
            ("team", self.team.as_deref()),
            ("cluster", self.cluster.as_deref()),
            ("label", self.label.as_deref()),
            ("sort", self.sort.as_deref()),
            ("after", None),
        ];
        for (name, value) in changes {
            pairs
                .iter_mut()
                .filter(|pair| pair.0 == *name)
                .for_each(|pair| pair.1 = *value);
        }
        told::address("/jobs", &pairs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_live_in_the_address_and_survive_it() {
        let query = JobsQuery {
            text: Some(" a&b ".into()),
            team: Some(String::new()),
            ..JobsQuery::default()
        }
        .without_empty();
        assert_eq!(
            query.address(&[("state", Some("failed"))]),
            "/jobs?state=failed&text=a%26b"
        );
        assert_eq!(query.address(&[]), "/jobs?text=a%26b");
        assert!(query.is_filtered());
        let labelled = JobsQuery {
            label: Some("exp = moe".into()),
            ..JobsQuery::default()
        };
        assert_eq!(labelled.labels(), BTreeMap::from([("exp".into(), "moe".into())]));
    }

    #[test]
    fn every_phase_is_in_some_choice() {
        for &phase in Phase::ALL {
            assert!(STATES.iter().any(|(_, _, phases)| phases.contains(&phase)), "{phase}");
        }
    }

    #[test]
    fn the_summary_says_what_is_wrong_first() {
        assert_eq!(summary(1, 2, 1, 0), "1 failed in the last day, 2 wait, 1 runs.");
        assert_eq!(
            summary(0, 0, 3, 1),
            "None failed in the last day, none waits, 3 run, 1 is suspended."
        );
        assert_eq!(title(0, 0), "Jobs");
    }
}
