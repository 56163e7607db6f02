//! Listing jobs, showing one, asking why, and the verbs.

use chrono::{DateTime, Utc};
use clap::Args;
use reqwest::Method;
use serde::Deserialize;
use serde_json::Value;
use trainyard_core::{
    model::{JobId, Phase},
    plan::words,
};

use super::{
    Done, answer, assignment,
    http::{ClientError, Server},
    table::{Align, Table, printable},
    warnings,
};
use crate::config::{ClientArgs, Output};

#[derive(Debug, Args)]
pub struct JobsArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Only jobs in these phases
    #[arg(long, value_name = "PHASE", value_delimiter = ',')]
    pub state: Vec<Phase>,
    /// Only jobs of this team
    #[arg(long)]
    pub team: Option<String>,
    /// Only jobs on this cluster
    #[arg(long)]
    pub cluster: Option<String>,
    /// Only jobs of this person
    #[arg(long)]
    pub owner: Option<String>,
    /// Only jobs with this label
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub label: Vec<(String, String)>,
    /// Only jobs whose name, labels or message have this in them
    #[arg(long)]
    pub text: Option<String>,
    /// At most so many, the newest first
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}

#[derive(Debug, Args)]
pub struct JobArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// The job's id, or a name that only one job has
    pub job: String,
}

/// The part of a job's record that the command line shows.
#[derive(Debug, Clone, Deserialize)]
pub struct JobView {
    pub id: JobId,
    pub name: String,
    pub team: Named,
    pub owner: Named,
    pub phase: Phase,
    pub message: String,
    /// The server's words for all of it, where they were asked for.
    #[serde(default)]
    pub sentence: Option<String>,
    pub stale_since: Option<DateTime<Utc>>,
    pub priority: i32,
    pub cluster: Option<Named>,
    pub replicas: i64,
    pub gpus: i64,
    pub attempt: i64,
    pub step: Option<i64>,
    pub total_steps: Option<i64>,
    pub created_at: DateTime<Utc>,
    pub ended_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Named {
    pub name: String,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Value>,
    next: Option<String>,
}

/// What a person may wish of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Cancel,
    Suspend,
    Resume,
    Rerun,
    Delete,
}

/// One server page at most.
const PAGE: u32 = 100;

pub async fn list(server: &Server, args: &JobsArgs, output: Output) -> Result<Done, ClientError> {
    let mut filter: Vec<(&str, String)> = Vec::new();
    for (name, value) in [
        ("team", &args.team),
        ("cluster", &args.cluster),
        ("owner", &args.owner),
        ("text", &args.text),
    ] {
        filter.extend(value.iter().map(|value| (name, value.clone())));
    }
    filter.extend(args.state.iter().map(|phase| ("state", phase.to_string())));
    filter.extend(
        args.label
            .iter()
            .map(|(name, value)| ("label", format!("{name}={value}"))),
    );
    let mut asked = filter.clone();
    asked.push(("sentence", "true".to_owned()));
    let jobs = pages(server, "/jobs", &asked, args.limit as usize).await?;
    let now = Utc::now();
    let mut table = Table::new(&[
        ("STATE", Align::Left),
        ("NAME", Align::Left),
        ("TEAM", Align::Left),
        ("CLUSTER", Align::Left),
        ("REPLICAS", Align::Right),
        ("GPUS", Align::Right),
        ("SUBMITTED", Align::Left),
        ("ID", Align::Left),
    ]);
    for job in &jobs {
        let job: JobView = server.read(job)?;
        table.row([
            job.sentence(),
            job.name.clone(),
            job.team.name.clone(),
            job.cluster
                .as_ref()
                .map_or_else(|| "none yet".to_owned(), |cluster| cluster.name.clone()),
            words::count(job.replicas),
            words::count(job.gpus),
            words::relative(job.created_at, now),
            job.id.to_string(),
        ]);
    }
    answer(output, &Value::Array(jobs), || match table.is_empty() {
        true if filter.is_empty() => "No jobs yet. `trainyard submit -f FILE` submits one.\n".to_owned(),
        true => "No job fits.\n".to_owned(),
        // `trainyard job` says all of one.
        false => table.fitted(&["REPLICAS", "GPUS", "CLUSTER", "TEAM"]).to_string(),
    })?;
    Ok(Done::Well)
}

/// Follows cursors until there are enough.
pub async fn pages(
    server: &Server,
    path: &str,
    filter: &[(&str, String)],
    enough: usize,
) -> Result<Vec<Value>, ClientError> {
    let mut found: Vec<Value> = Vec::new();
    let mut cursor: Option<String> = None;
    while found.len() < enough {
        let mut query = filter.to_vec();
        query.push(("limit", PAGE.min((enough - found.len()) as u32).to_string()));
        query.extend(cursor.iter().map(|cursor| ("cursor", cursor.clone())));
        let page: Page = server.read(&server.get(path, &query).await?)?;
        found.extend(page.items);
        match page.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    Ok(found)
}

/// The job's id from what was typed: an id, or the name of exactly one job; with several, the one that has not ended.
pub async fn find(server: &Server, typed: &str) -> Result<JobId, ClientError> {
    if let Ok(id) = typed.parse() {
        return Ok(id);
    }
    let rows = pages(server, "/jobs", &[("name", typed.to_owned())], PAGE as usize).await?;
    let jobs: Vec<JobView> = rows.iter().map(|row| server.read(row)).collect::<Result<_, _>>()?;
    choose(typed, jobs)
}

fn choose(name: &str, jobs: Vec<JobView>) -> Result<JobId, ClientError> {
    let open: Vec<&JobView> = jobs.iter().filter(|job| !job.phase.is_final()).collect();
    match (jobs.as_slice(), open.as_slice()) {
        ([], _) => Err(ClientError::NoSuchJob(name.to_owned())),
        ([only], _) => Ok(only.id),
        (_, [only]) => Ok(only.id),
        _ => Err(ClientError::Ambiguous {
            name: name.to_owned(),
            ids: jobs.iter().map(|job| format!("{} ({})", job.id, job.phase)).collect(),
        }),
    }
}

pub async fn show(server: &Server, args: &JobArgs, output: Output) -> Result<Done, ClientError> {
    let id = find(server, &args.job).await?;
    let job = server.get(&format!("/jobs/{id}"), &[]).await?;
    let mut view: JobView = server.read(&job)?;
    let why = server.get(&format!("/jobs/{id}/why"), &[]).await?;
    view.sentence = why["sentence"].as_str().map(str::to_owned);
    let replicas = match view.attempt {
        0 => Vec::new(),
        number => {
            pages(
                server,
                &format!("/jobs/{id}/replicas"),
                &[("attempt", number.to_string())],
                1_000,
            )
            .await?
        }
    };
    let events = pages(server, &format!("/jobs/{id}/events"), &[], 10).await?;
    let now = Utc::now();
    answer(output, &job, || {
        let mut text = format!("{} ({})\n{}\n", printable(&view.name), view.id, view.sentence());
        let place = view
            .cluster
            .as_ref()
            .map_or("no cluster yet", |cluster| cluster.name.as_str());
        text += &format!(
            "Team {}, owner {}, {place}, priority {}, submitted {} ({})\n",
            printable(&view.team.name),
            printable(&view.owner.name),
            view.priority,
            words::relative(view.created_at, now),
            words::exact(view.created_at),
        );
        if !replicas.is_empty() {
            text += &format!(
                "\nReplicas of attempt {}\n{}",
                view.attempt,
                replica_table(&replicas, now)
            );
        }
        if !events.is_empty() {
            text += &format!("\nNewest events\n{}", event_table(&events, now));
        }
        text
    })?;
    Ok(Done::Well)
}

fn replica_table(rows: &[Value], now: DateTime<Utc>) -> Table {
    let mut table = Table::new(&[
        ("RANK", Align::Right),
        ("REPLICA", Align::Left),
        ("STATE", Align::Left),
        ("NODE", Align::Left),
        ("STEP", Align::Right),
        ("LAST OUTPUT", Align::Left),
    ]);
    for row in rows {
        let text = |name: &str| row[name].as_str().unwrap_or_default().to_owned();
        let last: Option<DateTime<Utc>> = row["last_output_at"].as_str().and_then(|at| at.parse().ok());
        let state = match row["message"].as_str() {
            Some(message) if !message.is_empty() => format!("{}: {message}", text("phase")),
            _ => text("phase"),
        };
        table.row([
            row["rank"].to_string(),
            format!("{}-{}", text("role"), row["index"]),
            state,
            row["node"]["name"].as_str().unwrap_or_default().to_owned(),
            row["step"].as_i64().map(words::count).unwrap_or_default(),
            last.map(|at| words::relative(at, now)).unwrap_or_default(),
        ]);
    }
    table
}

fn event_table(rows: &[Value], now: DateTime<Utc>) -> Table {
    let mut table = Table::new(&[("WHEN", Align::Left), ("WHAT", Align::Left), ("KIND", Align::Left)]);
    for row in rows {
        let at: Option<DateTime<Utc>> = row["at"].as_str().and_then(|at| at.parse().ok());
        table.row([
            at.map(|at| words::relative(at, now)).unwrap_or_default(),
            row["message"].as_str().unwrap_or_default().to_owned(),
            row["kind"].as_str().unwrap_or_default().to_owned(),
        ]);
    }
    table
}

pub async fn why(server: &Server, args: &JobArgs, output: Output) -> Result<Done, ClientError> {
    let id = find(server, &args.job).await?;
    let why = server.get(&format!("/jobs/{id}/why"), &[]).await?;
    answer(output, &why, || {
        let mut text = match why["sentence"].as_str() {
            Some(sentence) => format!("{}\n", printable(sentence)),
            None => "Nothing holds it up.\n".to_owned(),
        };
        for reason in why["why"]["reasons"].as_array().into_iter().flatten() {
            let part = |name: &str| printable(reason[name].as_str().unwrap_or_default());
            text += &format!(
                "\n{} ({}): {}\n",
                capital(&part("layer")),
                part("code"),
                part("message")
            );
            for number in reason["numbers"].as_array().into_iter().flatten() {
                let name = number["name"].as_str().unwrap_or_default();
                let value = number["value"].as_u64().unwrap_or_default();
                let shown = match number["unit"].as_str().unwrap_or_default() {
                    "cores/1000" => words::cores(value),
                    "bytes" => words::bytes(value),
                    unit if unit == name => words::count(value),
                    unit => format!("{} {unit}", words::count(value)),
                };
                text += &format!("  {}: {shown}\n", printable(name));
            }
            if !part("next").is_empty() {
                text += &format!("  Next: {}\n", part("next"));
            }
        }
        text
    })?;
    Ok(Done::Well)
}

pub async fn wish(server: &Server, args: &JobArgs, verb: Verb, output: Output) -> Result<Done, ClientError> {
    let id = find(server, &args.job).await?;
    let request = match verb {
        Verb::Cancel => server.request(Method::POST, &format!("/jobs/{id}/cancel")),
        Verb::Suspend => server.request(Method::POST, &format!("/jobs/{id}/suspend")),
        Verb::Resume => server.request(Method::POST, &format!("/jobs/{id}/resume")),
        Verb::Rerun => server.request(Method::POST, &format!("/jobs/{id}/rerun")),
        Verb::Delete => server.request(Method::DELETE, &format!("/jobs/{id}")),
    };
    let job = server.json(request).await?;
    let shown: Option<JobView> = if job.is_null() { None } else { Some(server.read(&job)?) };
    answer(output, &job, || match (verb, shown) {
        (Verb::Rerun, Some(again)) => format!("Submitted again as {} ({})\n", again.name, again.id) + &warnings(&job),
        (Verb::Delete, _) => format!("{id} leaves every list; a running job is ended first.\n"),
        (Verb::Cancel, Some(job)) => format!("Asked to cancel {}. {}\n", job.name, job.sentence()),
        (Verb::Suspend, Some(job)) => format!("Asked to suspend {}. {}\n", job.name, job.sentence()),
        (Verb::Resume, Some(job)) => format!("Asked to resume {}. {}\n", job.name, job.sentence()),
        (_, None) => "Done.\n".to_owned(),
    })?;
    Ok(Done::Well)
}

impl JobView {
    /// The state in a table's room.
    fn state(&self) -> String {
        let word = capital(self.phase.as_str());
        let word = if self.stale_since.is_some() {
            format!("{word} (when last seen)")
        } else {
            word
        };
        match (self.step, self.total_steps) {
            (Some(step), Some(total)) if self.phase == Phase::Running => {
                format!("{word}, step {} of {}", words::count(step), words::count(total))
            }
            (Some(step), None) if self.phase == Phase::Running => format!("{word}, step {}", words::count(step)),
            _ => word,
        }
    }

    /// The state with its reason.
    pub fn sentence(&self) -> String {
        if let Some(sentence) = &self.sentence {
            return printable(sentence);
        }
        match self.message.is_empty() {
            true => self.state(),
            false => printable(&format!("{}: {}", self.state(), self.message)),
        }
    }
}

fn capital(word: &str) -> String {
    let mut characters = word.chars();
    characters
        .next()
        .map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(number: u128, phase: Phase) -> JobView {
        let named = |name: &str| Named { name: name.into() };
        JobView {
            id: JobId(uuid::Uuid::from_u128(number)),
            name: "train".into(),
            team: named("vision"),
            owner: named("Maya"),
            phase,
            message: "rank 3 ended\u{1b}[2J with exit code 1".into(),
            sentence: None,
            stale_since: None,
            priority: 0,
            cluster: None,
            replicas: 2,
            gpus: 0,
            attempt: 1,
            step: Some(1_240),
            total_steps: Some(5_000),
            created_at: DateTime::UNIX_EPOCH,
            ended_at: None,
        }
    }

    #[test]
    fn a_name_means_the_only_job_that_has_it_or_the_only_one_that_has_not_ended() {
        let failed = job(1, Phase::Failed);
        let open = job(2, Phase::Running);
        assert!(matches!(choose("train", vec![]), Err(ClientError::NoSuchJob(_))));
        assert_eq!(choose("train", vec![failed.clone()]).unwrap(), failed.id);
        assert_eq!(choose("train", vec![failed.clone(), open.clone()]).unwrap(), open.id);
        assert!(matches!(
            choose("train", vec![failed.clone(), failed]),
            Err(ClientError::Ambiguous { .. })
        ));
    }

    #[test]
    fn a_state_is_a_sentence_without_control_characters() {
        assert_eq!(job(1, Phase::Running).state(), "Running, step 1,240 of 5,000");
        assert_eq!(
            job(1, Phase::Failed).sentence(),
            "Failed: rank 3 ended\\u{1b}[2J with exit code 1"
        );
    }
}
