//! Secrets of a team. Values go in and never come back; they are read from a file or standard input, so that none of
//! them stands in a shell's history or a list of processes.

use std::{collections::BTreeMap, io::Read, path::Path};

use chrono::{DateTime, Utc};
use clap::{Args, Subcommand};
use reqwest::Method;
use serde_json::{Value, json};
use trainyard_core::plan::words;

use super::{
    Done, answer,
    http::{ClientError, Server},
    jobs::pages,
    table::{Align, Table},
    warnings,
};
use crate::config::{ClientArgs, Output};

#[derive(Debug, Args)]
pub struct SecretArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    #[command(subcommand)]
    pub command: SecretCommand,
}

#[derive(Debug, Subcommand)]
pub enum SecretCommand {
    /// Store a secret, or a new version of it
    Put {
        /// Lower-case letters, digits and dashes
        name: String,
        /// A key with the file that its value is in; - reads standard input (one key alone)
        #[arg(long = "from", value_name = "KEY=FILE", value_parser = super::assignment, required = true)]
        values: Vec<(String, String)>,
        /// The team that it belongs to [default: your only one]
        #[arg(long)]
        team: Option<String>,
    },
    /// List secrets: names, keys and versions, never values
    List {
        /// Only of this team
        #[arg(long)]
        team: Option<String>,
    },
    /// Remove a secret; jobs that name it no longer start
    Delete {
        name: String,
        #[arg(long)]
        team: Option<String>,
    },
}

pub async fn run(server: &Server, args: SecretArgs, output: Output) -> Result<Done, ClientError> {
    match args.command {
        SecretCommand::Put { name, values, team } => {
            let body = json!({ "values": read_all(&values)? });
            let request = server.request(Method::PUT, &path(&name)?).query(&of(team)).json(&body);
            let stored = server.json(request).await?;
            answer(output, &stored, || {
                format!("Stored {name}, version {}.\n", stored["version"]) + &warnings(&stored)
            })?;
        }
        SecretCommand::List { team } => {
            let secrets = pages(server, "/secrets", &of(team), 1_000).await?;
            let now = Utc::now();
            let mut table = Table::new(&[
                ("NAME", Align::Left),
                ("KEYS", Align::Left),
                ("VERSION", Align::Right),
                ("STORED", Align::Left),
            ]);
            for secret in &secrets {
                let keys: Vec<&str> = secret["keys"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(Value::as_str)
                    .collect();
                let at: Option<DateTime<Utc>> = secret["created_at"].as_str().and_then(|at| at.parse().ok());
                table.row([
                    secret["name"].as_str().unwrap_or_default().to_owned(),
                    keys.join(", "),
                    secret["version"].to_string(),
                    at.map(|at| words::relative(at, now)).unwrap_or_default(),
                ]);
            }
            answer(output, &Value::Array(secrets), || match table.is_empty() {
                true => "No secrets yet.\n".to_owned(),
                false => table.to_string(),
            })?;
        }
        SecretCommand::Delete { name, team } => {
            let gone = server
                .json(server.request(Method::DELETE, &path(&name)?).query(&of(team)))
                .await?;
            answer(output, &gone, || format!("{name} is removed.\n"))?;
        }
    }
    Ok(Done::Well)
}

fn of(team: Option<String>) -> Vec<(&'static str, String)> {
    team.into_iter().map(|team| ("team", team)).collect()
}

/// The name goes into the address, so it has to be one.
fn path(name: &str) -> Result<String, ClientError> {
    let fits = !name.is_empty()
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    match fits {
        true => Ok(format!("/secrets/{name}")),
        false => Err(ClientError::Usage(format!(
            "'{name}' can't be a secret's name; it has lower-case letters, digits and dashes"
        ))),
    }
}

fn read_all(sources: &[(String, String)]) -> Result<BTreeMap<String, String>, ClientError> {
    if sources.iter().filter(|(_, file)| file == "-").count() > 1 {
        return Err(ClientError::Usage(
            "only one key can be read from standard input".into(),
        ));
    }
    sources
        .iter()
        .map(|(key, file)| Ok((key.clone(), read(file)?)))
        .collect()
}

/// A value without the line end that editors and `echo` put behind it.
fn read(file: &str) -> Result<String, ClientError> {
    let fault = |source| ClientError::File {
        path: file.to_owned(),
        source,
    };
    let mut text = String::new();
    match file {
        "-" => drop(std::io::stdin().lock().read_to_string(&mut text).map_err(fault)?),
        _ => text = std::fs::read_to_string(Path::new(file)).map_err(fault)?,
    }
    if text.ends_with('\n') {
        text.pop();
        if text.ends_with('\r') {
            text.pop();
        }
    }
    Ok(text)
}
