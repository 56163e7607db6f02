//! Submitting a document from a file or standard input, with placeholders filled, and watching it until it ends.

use std::{io::Read, path::PathBuf};

use clap::Args;
use reqwest::{Method, header};
use serde_json::Value;
use trainyard_core::document::fill;

use super::{
    Done, answer, assignment, code,
    http::{ClientError, Server},
    jobs::JobView,
    logs, say,
    table::json_for_terminal,
    warnings,
};
use crate::{
    config::{ClientArgs, Output},
    web::BODY_LIMIT,
};

#[derive(Debug, Args)]
pub struct SubmitArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// The job document, YAML or JSON; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    pub file: PathBuf,
    /// Fill a placeholder of the document, written PLACEHOLDER_NAME, ${NAME} or $NAME; the value stays one text or number
    #[arg(long, value_name = "NAME=VALUE", value_parser = assignment)]
    pub set: Vec<(String, String)>,
    /// Send this file, or all that lies in this folder but hidden files, along as code.inline; may be given several times
    #[arg(long, value_name = "PATH")]
    pub code: Vec<PathBuf>,
    /// Only check it, and tell what would be submitted
    #[arg(long)]
    pub dry_run: bool,
    /// Print its output until it ends; the exit code is 0 if it succeeded
    #[arg(long, visible_alias = "follow", conflicts_with = "dry_run")]
    pub watch: bool,
    /// Sent twice with the same key, it is submitted once [default: a new key]
    #[arg(long, value_name = "KEY")]
    pub idempotency_key: Option<String>,
}

pub async fn submit(server: &Server, args: &SubmitArgs, output: Output) -> Result<Done, ClientError> {
    // The code is added last: a `$NAME` in a program is the program's.
    let mut text = read(&args.file)?;
    if !args.set.is_empty() {
        text =
            fill(&text, &args.set.iter().cloned().collect()).map_err(|error| ClientError::Usage(error.to_string()))?;
    }
    let text = code::attach(text, &args.code)?;
    let kind = if text.trim_start().starts_with('{') {
        "application/json"
    } else {
        "application/yaml"
    };
    let key = args
        .idempotency_key
        .clone()
        .unwrap_or_else(|| uuid::Uuid::new_v4().to_string());
    let mut request = server
        .request(Method::POST, "/jobs")
        .header(header::CONTENT_TYPE, kind)
        .header("Idempotency-Key", key)
        .body(text);
    if args.dry_run {
        request = request.query(&[("dry_run", "true")]);
    }
    let created = server.json(request).await?;
    if args.dry_run {
        answer(output, &created, || {
            "The document is sound. Nothing was submitted.\n".to_owned() + &warnings(&created)
        })?;
        return Ok(Done::Well);
    }
    let job: JobView = server.read(&created)?;
    if !args.watch {
        answer(output, &created, || {
            format!(
                "Submitted {} ({})\n  Output: trainyard logs -f {}\n  Page:   {}/jobs/{}\n",
                job.name,
                job.id,
                job.id,
                server.address(),
                job.id
            ) + &warnings(&created)
        })?;
        return Ok(Done::Well);
    }
    if output == Output::Table {
        say(&format!(
            "Submitted {} ({}), {}/jobs/{}\n{}",
            job.name,
            job.id,
            server.address(),
            job.id,
            warnings(&created)
        ))?;
    }
    logs::follow_to_the_end(server, job.id, output).await
}

/// The document. One that no server takes is refused here, since a server hangs up before it was sent.
fn read(path: &PathBuf) -> Result<String, ClientError> {
    let text = read_whole(path)?;
    if text.len() > BODY_LIMIT {
        return Err(ClientError::Usage(format!(
            "{}: {} bytes are too much for a document, which has at most {BODY_LIMIT}; files go along with --code, data lies in a volume",
            path.display(),
            text.len()
        )));
    }
    Ok(text)
}

fn read_whole(path: &PathBuf) -> Result<String, ClientError> {
    let fault = |source| ClientError::File {
        path: path.display().to_string(),
        source,
    };
    if path.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text).map_err(fault)?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(fault)
}

/// The answer of a watched job, once it ended.
pub fn ended(job: &JobView, output: Output, value: &Value) -> Result<Done, ClientError> {
    // After lines of JSON, one more.
    match output {
        Output::Json => say(&(json_for_terminal(&value.to_string()) + "\n"))?,
        Output::Table => say(&format!("{}\n", job.sentence()))?,
    }
    Ok(if job.phase == trainyard_core::model::Phase::Succeeded {
        Done::Well
    } else {
        Done::Badly
    })
}
