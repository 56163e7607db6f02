//! The command line's REST side: what a person asks of a server, here or elsewhere. Everything goes through the public
//! API, so whatever these commands can do, a script can do.
//!
//! Answers are tables for people or JSON (`-o json`) on standard output; what went wrong goes to standard error, with
//! `-o json` as one object in the form of the API's problems.
//! Exit codes: 0 done; 1 refused, or a followed job did not succeed; 2 the command line was not understood; 3 no server
//! could be reached; 4 not found, or not for this caller.
//!
//! Deliberately absent: reading the environment (in `config`) and any knowledge of the database.

use std::process::ExitCode;

use clap::Subcommand;

use crate::config::{ClientArgs, ConfigError, Environment, Output};

pub mod code;
pub mod fleet;
pub mod http;
pub mod jobs;
pub mod logs;
pub mod secrets;
pub mod submit;
pub mod table;

use http::{ClientError, Server};

/// What goes through the API of a server.
#[derive(Debug, Subcommand)]
pub enum ClientCommand {
    /// Submit a job
    Submit(submit::SubmitArgs),
    /// List jobs
    Jobs(jobs::JobsArgs),
    /// Show a job: its state, attempts, replicas and newest events
    Job(jobs::JobArgs),
    /// Print a job's output
    Logs(logs::LogsArgs),
    /// Tell why a job does not run, or how it ended
    Why(jobs::JobArgs),
    /// Cancel a job
    Cancel(jobs::JobArgs),
    /// Stop a job for now and give its resources back
    Suspend(jobs::JobArgs),
    /// Let a suspended job go on
    Resume(jobs::JobArgs),
    /// Run a job's document once more, as a new job
    Rerun(jobs::JobArgs),
    /// Remove a job from every list; a running one is ended first
    Delete(jobs::JobArgs),
    /// List nodes
    Nodes(fleet::NodesArgs),
    /// Say that a machine will not come back: what lived there is lost, and may go on elsewhere
    Gone(fleet::GoneArgs),
    /// List clusters
    Clusters(fleet::ClustersArgs),
    /// Keep values that jobs use and nobody reads back
    Secret(secrets::SecretArgs),
    /// Print a fresh link that signs you in to the pages
    Open(fleet::OpenArgs),
}

impl ClientCommand {
    pub fn client(&self) -> &ClientArgs {
        match self {
            Self::Submit(args) => &args.client,
            Self::Jobs(args) => &args.client,
            Self::Logs(args) => &args.client,
            Self::Job(args)
            | Self::Why(args)
            | Self::Cancel(args)
            | Self::Suspend(args)
            | Self::Resume(args)
            | Self::Rerun(args)
            | Self::Delete(args) => &args.client,
            Self::Nodes(args) => &args.client,
            Self::Gone(args) => &args.client,
            Self::Clusters(args) => &args.client,
            Self::Secret(args) => &args.client,
            Self::Open(args) => &args.client,
        }
    }
}

/// Runs one command and tells how it went by its exit code.
pub async fn run(command: ClientCommand, environment: &Environment) -> ExitCode {
    let output = command.client().output;
    match attempt(command, environment).await {
        Ok(Done::Well) => ExitCode::SUCCESS,
        Ok(Done::Badly) => ExitCode::from(1),
        // The reader of our output went away, as `head` does: no failure of ours.
        Err(ClientError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprint!(
                "{}",
                match output {
                    Output::Table => error.in_words(),
                    Output::Json => error.in_json(),
                }
            );
            ExitCode::from(error.exit_code())
        }
    }
}

/// How a command that was carried out ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Done {
    Well,
    /// The job that was followed did not succeed.
    Badly,
}

async fn attempt(command: ClientCommand, environment: &Environment) -> Result<Done, ClientError> {
    let client = command.client();
    let connection = client.resolve(environment).map_err(ClientError::Config)?;
    let server = Server::new(connection)?;
    let output = client.output;
    match command {
        ClientCommand::Submit(args) => submit::submit(&server, &args, output).await,
        ClientCommand::Jobs(args) => jobs::list(&server, &args, output).await,
        ClientCommand::Job(args) => jobs::show(&server, &args, output).await,
        ClientCommand::Logs(args) => logs::print(&server, &args, output).await,
        ClientCommand::Why(args) => jobs::why(&server, &args, output).await,
        ClientCommand::Cancel(args) => jobs::wish(&server, &args, jobs::Verb::Cancel, output).await,
        ClientCommand::Suspend(args) => jobs::wish(&server, &args, jobs::Verb::Suspend, output).await,
        ClientCommand::Resume(args) => jobs::wish(&server, &args, jobs::Verb::Resume, output).await,
        ClientCommand::Rerun(args) => jobs::wish(&server, &args, jobs::Verb::Rerun, output).await,
        ClientCommand::Delete(args) => jobs::wish(&server, &args, jobs::Verb::Delete, output).await,
        ClientCommand::Nodes(args) => fleet::nodes(&server, &args, output).await,
        ClientCommand::Gone(args) => fleet::gone(&server, &args, output).await,
        ClientCommand::Clusters(args) => fleet::clusters(&server, &args, output).await,
        ClientCommand::Secret(args) => secrets::run(&server, args, output).await,
        ClientCommand::Open(_) => fleet::open(&server, output).await,
    }
}

/// `NAME=VALUE` of a flag.
pub(crate) fn assignment(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("it has the form NAME=VALUE".to_owned()),
    }
}

/// Standard output; a closed pipe is an error like any other until `run` forgives it.
pub(crate) fn say(text: &str) -> Result<(), ClientError> {
    use std::io::Write;
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    Ok(out.flush()?)
}

/// A value as indented JSON, or whatever a person gets.
pub(crate) fn answer(
    output: Output,
    value: &serde_json::Value,
    words: impl FnOnce() -> String,
) -> Result<(), ClientError> {
    match output {
        // A value that came from JSON can be written as JSON.
        Output::Json => {
            let json = serde_json::to_string_pretty(value).unwrap_or_default();
            say(&(table::json_for_terminal(&json) + "\n"))
        }
        Output::Table => say(&words()),
    }
}

/// What an answer warns of, a line each.
pub(crate) fn warnings(answer: &serde_json::Value) -> String {
    let warnings = answer["warnings"].as_array().into_iter().flatten();
    warnings
        .map(|warning| format!("Warning: {}.\n", table::printable(warning.as_str().unwrap_or_default())))
        .collect()
}

impl From<ConfigError> for ClientError {
    fn from(error: ConfigError) -> Self {
        ClientError::Config(error)
    }
}
