//! A job's output on a terminal: stored lines, then live ones, resumed where it broke off.

use std::{io::IsTerminal, time::Duration};

use clap::Args;
use futures::StreamExt;
use reqwest::Method;
use serde_json::Value;
use trainyard_core::model::{JobId, ReplicaKey};

use super::{
    Done,
    http::{ClientError, Server},
    jobs::{self, JobView},
    say, submit,
    table::{json_for_terminal, line_for_terminal, printable},
};
use crate::config::{ClientArgs, Output};

#[derive(Debug, Args)]
pub struct LogsArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// The job's id, or a name that only one job has
    pub job: String,
    /// Go on as long as the job does
    #[arg(short, long)]
    pub follow: bool,
    /// Only this replica, as in worker-0 [default: all, merged by time]
    #[arg(long, value_name = "ROLE-INDEX", value_parser = replica)]
    pub replica: Option<ReplicaKey>,
    /// Only this rank; of an MPI job, the lines in which this rank of mpirun speaks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(..=i64::from(i32::MAX)))]
    pub rank: Option<u32>,
    /// Only this attempt [default: all of them]
    #[arg(long, value_name = "N")]
    pub attempt: Option<u32>,
    /// Only the last so many lines
    #[arg(long, value_name = "LINES", conflicts_with = "since")]
    pub tail: Option<u64>,
    /// Only lines since then: 10m, 2h, or a time such as 2026-11-30T13:00:00Z
    #[arg(long, value_name = "WHEN")]
    pub since: Option<String>,
    /// Only lines with this in them
    #[arg(long, value_name = "TEXT", conflicts_with = "follow")]
    pub grep: Option<String>,
    /// Show when each line was stored
    #[arg(long)]
    pub time: bool,
}

fn replica(text: &str) -> Result<ReplicaKey, String> {
    let wrong = || "it has the form ROLE-INDEX, such as worker-0".to_owned();
    let (role, index) = text.rsplit_once(['-', '/']).ok_or_else(wrong)?;
    let index = index.parse().map_err(|_| wrong())?;
    Ok(ReplicaKey {
        role: role.to_owned(),
        index,
    })
}

pub async fn print(server: &Server, args: &LogsArgs, output: Output) -> Result<Done, ClientError> {
    let id = jobs::find(server, &args.job).await?;
    let mut query: Vec<(&str, String)> = Vec::new();
    if let Some(key) = &args.replica {
        query.push(("role", key.role.clone()));
        query.push(("index", key.index.to_string()));
    }
    query.extend(args.rank.map(|rank| ("rank", rank.to_string())));
    query.extend(args.attempt.map(|attempt| ("attempt", attempt.to_string())));
    let how = Show {
        output,
        time: args.time,
        colours: std::io::stdout().is_terminal(),
    };
    if let Some(text) = &args.grep {
        return grep(server, id, &query, text, how).await;
    }
    if let (Some(lines), false) = (args.tail, args.follow) {
        return tail(server, id, &query, lines, how).await;
    }
    query.extend(args.tail.map(|lines| ("tail", lines.to_string())));
    if let Some(since) = &args.since {
        query.push(("since", moment(since)?));
    }
    if args.follow {
        follow(server, id, query, how).await?;
        return Ok(Done::Well);
    }
    stored(server, id, query, how).await
}

/// How lines are shown.
#[derive(Debug, Clone, Copy)]
struct Show {
    output: Output,
    time: bool,
    colours: bool,
}

/// What is stored now, page by page.
async fn stored(server: &Server, id: JobId, mut query: Vec<(&str, String)>, how: Show) -> Result<Done, ClientError> {
    query.push(("limit", "10000".into()));
    loop {
        let page = server.get(&format!("/jobs/{id}/logs"), &query).await?;
        let lines = page["items"].as_array().map_or(&[][..], Vec::as_slice);
        show(lines, how)?;
        let Some(next) = page["next"].as_str() else {
            return Ok(Done::Well);
        };
        if page["more"] == Value::Bool(false) {
            return Ok(Done::Well);
        }
        query.retain(|(name, _)| !matches!(*name, "cursor" | "since"));
        query.push(("cursor", next.to_owned()));
    }
}

/// The last lines. Of a rank that speaks rarely, an answer may hold few of them and tell from where to look further back.
async fn tail(
    server: &Server,
    id: JobId,
    chosen: &[(&str, String)],
    lines: u64,
    how: Show,
) -> Result<Done, ClientError> {
    let mut newest_first: Vec<Value> = Vec::new();
    let mut missing = lines;
    let mut until: Option<String> = None;
    let older = loop {
        let mut query = chosen.to_vec();
        query.push(("tail", missing.to_string()));
        query.extend(until.take().map(|until| ("until", until)));
        let mut page = server.get(&format!("/jobs/{id}/logs"), &query).await?;
        let items = page["items"].take();
        missing = missing.saturating_sub(items.as_array().map_or(0, Vec::len) as u64);
        newest_first.push(items);
        match page["looked_since"].as_str() {
            Some(since) if missing > 0 => until = Some(since.to_owned()),
            _ => break page["older"] == Value::Bool(true),
        }
    };
    for items in newest_first.iter().rev() {
        show(items.as_array().map_or(&[][..], Vec::as_slice), how)?;
    }
    if older && missing > 0 {
        eprintln!("Older lines are left out: one answer holds no more text. --since shows all from a time on.");
    }
    Ok(Done::Well)
}

async fn grep(
    server: &Server,
    id: JobId,
    chosen: &[(&str, String)],
    text: &str,
    how: Show,
) -> Result<Done, ClientError> {
    let mut cursor: Option<String> = None;
    loop {
        let mut query = chosen.to_vec();
        query.push(("pattern", text.to_owned()));
        // Every line of every stream, a page at a time.
        query.extend([("limit", "5000".to_owned()), ("per_stream", "5000".to_owned())]);
        query.extend(cursor.iter().map(|cursor| ("cursor", cursor.clone())));
        let found = server.get(&format!("/jobs/{id}/logs/search"), &query).await?;
        for group in found["groups"].as_array().into_iter().flatten() {
            show(group["lines"].as_array().map_or(&[][..], Vec::as_slice), how)?;
        }
        match found["next"].as_str() {
            Some(next) => cursor = Some(next.to_owned()),
            None => return Ok(Done::Well),
        }
    }
}

/// A watched job: its output, then how it ended.
pub async fn follow_to_the_end(server: &Server, id: JobId, output: Output) -> Result<Done, ClientError> {
    let how = Show {
        output,
        time: false,
        colours: std::io::stdout().is_terminal(),
    };
    follow(server, id, Vec::new(), how).await?;
    loop {
        let value = server.get(&format!("/jobs/{id}"), &[]).await?;
        let job: JobView = server.read(&value)?;
        if job.phase.is_final() {
            return submit::ended(&job, output, &value);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Follows until the server says that nothing more will come. A connection that breaks is taken up where it broke; only
/// a server that stays away for a minute ends it.
async fn follow(server: &Server, id: JobId, query: Vec<(&str, String)>, how: Show) -> Result<(), ClientError> {
    const PATIENCE: u32 = 30;
    let mut position: Option<String> = None;
    let mut failures = 0;
    loop {
        let mut request = server
            .request(Method::GET, &format!("/jobs/{id}/logs/follow"))
            .query(&query)
            .query(&[("all", "true")]);
        if let Some(position) = &position {
            request = request.header("Last-Event-ID", position);
        }
        let result = match server.send(request.header("Accept", "text/event-stream")).await {
            Ok(response) => {
                failures = 0;
                read_events(response, &mut position, how).await?
            }
            Err(ClientError::Unreachable { .. }) if failures < PATIENCE => Ending::Broke,
            Err(ClientError::Refused(problem)) if problem.status == 503 && failures < PATIENCE => Ending::Broke,
            Err(error) => return Err(error),
        };
        match result {
            Ending::Complete => return Ok(()),
            Ending::Again => {}
            Ending::Broke => {
                failures += 1;
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
        }
    }
}

enum Ending {
    Complete,
    /// The server asks anew who we are.
    Again,
    Broke,
}

async fn read_events(
    response: reqwest::Response,
    position: &mut Option<String>,
    how: Show,
) -> Result<Ending, ClientError> {
    let mut events = Events::default();
    let mut body = response.bytes_stream();
    while let Some(Ok(bytes)) = body.next().await {
        for event in events.feed(&bytes) {
            match event.name.as_str() {
                "lines" => {
                    let lines = event
                        .data
                        .lines()
                        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
                    // A line without its end comes again once it has one; a terminal can't take it back.
                    let lines: Vec<Value> = lines.filter(|line| line["partial"] != Value::Bool(true)).collect();
                    show(&lines, how)?;
                    if event.id.is_some() {
                        *position = event.id;
                    }
                }
                "skipped" => say("... some output was skipped ...\n")?,
                "end" => return Ok(Ending::Complete),
                "again" => return Ok(Ending::Again),
                "failed" => return Ok(Ending::Broke),
                _ => {}
            }
        }
    }
    Ok(Ending::Broke)
}

fn show(lines: &[Value], how: Show) -> Result<(), ClientError> {
    let mut text = String::new();
    for line in lines {
        if how.output == Output::Json {
            text.push_str(&json_for_terminal(&line.to_string()));
            text.push('\n');
            continue;
        }
        let part = |name: &str| line[name].as_str().unwrap_or_default();
        if how.time {
            text.push_str(part("at"));
            text.push(' ');
        }
        text.push_str(&format!("{}-{} | ", printable(part("role")), line["index"]));
        if line["kind"] == "gap" {
            text.push_str(&format!("*** {} ***", printable(part("text"))));
        } else {
            text.push_str(&line_for_terminal(part("text"), how.colours));
            if let Some(missing) = line["missing"].as_u64() {
                text.push_str(&format!(" [{missing} bytes more; the page of its logs has a download]"));
            }
        }
        text.push('\n');
    }
    say(&text)
}

/// `10m` ago, or a time as it is.
fn moment(text: &str) -> Result<String, ClientError> {
    if let Ok(span) = text.parse::<trainyard_core::document::units::Duration>() {
        let at = chrono::Utc::now() - span.as_chrono();
        return Ok(at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true));
    }
    match text.parse::<chrono::DateTime<chrono::Utc>>() {
        Ok(at) => Ok(at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true)),
        Err(_) => Err(ClientError::Usage(format!(
            "--since is '{text}': it is a span such as 10m or 2h, or a time such as 2026-11-30T13:00:00Z"
        ))),
    }
}

/// Server-Sent Events out of bytes that may be cut anywhere.
#[derive(Default)]
struct Events {
    rest: Vec<u8>,
    open: Event,
}

#[derive(Debug, Default, Clone, PartialEq)]
struct Event {
    name: String,
    id: Option<String>,
    data: String,
}

impl Events {
    fn feed(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.rest.extend_from_slice(bytes);
        let mut done = Vec::new();
        let mut from = 0;
        while let Some(length) = self.rest[from..].iter().position(|&byte| byte == b'\n') {
            let line = String::from_utf8_lossy(&self.rest[from..from + length]);
            let line = line.trim_end_matches('\r');
            match line
                .split_once(':')
                .map(|(field, value)| (field, value.strip_prefix(' ').unwrap_or(value)))
            {
                Some(("event", value)) => self.open.name = value.to_owned(),
                Some(("id", value)) => self.open.id = Some(value.to_owned()),
                Some(("data", value)) => {
                    self.open.data.push_str(value);
                    self.open.data.push('\n');
                }
                _ if line.is_empty() && !self.open.name.is_empty() => done.push(std::mem::take(&mut self.open)),
                _ => {}
            }
            from += length + 1;
        }
        self.rest.drain(..from);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_whole_however_their_bytes_are_cut() {
        let text =
            ": still here\n\nid: 1.0~1.7\nevent: lines\ndata: {\"text\":\"ü\"}\ndata: {}\n\nevent: end\ndata: {}\n\n"
                .as_bytes();
        let whole = Events::default().feed(text);
        assert_eq!(whole.len(), 2);
        assert_eq!(whole[0].id.as_deref(), Some("1.0~1.7"));
        assert_eq!(whole[0].data, "{\"text\":\"ü\"}\n{}\n");
        for size in 1..text.len() {
            let mut events = Events::default();
            let cut: Vec<Event> = text.chunks(size).flat_map(|part| events.feed(part)).collect();
            assert_eq!(cut, whole, "{size}");
        }
    }

    #[test]
    fn a_replica_is_a_role_and_an_index_even_when_the_role_has_dashes() {
        assert_eq!(
            replica("param-server-12").unwrap(),
            ReplicaKey {
                role: "param-server".into(),
                index: 12
            }
        );
        assert_eq!(
            replica("worker/0").unwrap(),
            ReplicaKey {
                role: "worker".into(),
                index: 0
            }
        );
        assert!(replica("worker").is_err());
    }

    #[test]
    fn since_is_a_span_or_a_time() {
        assert_eq!(moment("2026-11-30T13:00:00Z").unwrap(), "2026-11-30T13:00:00.000Z");
        assert!(moment("10m").is_ok());
        assert_eq!(moment("yesterday").unwrap_err().exit_code(), 2);
    }
}
