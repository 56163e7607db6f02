//! Settings of the program as a client: where its server is, and what `up` writes down for its commands.

use std::path::Path;

use clap::{Args, ValueEnum};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{ConfigError, Environment, http_url};
use crate::private_file;

/// Settings of the program as a client of a server's API.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Server")]
pub struct ClientArgs {
    /// Address of the server [default: the one that `trainyard up` wrote down for you]
    #[arg(long, env = "TRAINYARD_SERVER", value_name = "URL")]
    pub server: Option<String>,
    /// API token; the variable keeps it out of the list of processes
    #[arg(long, env = "TRAINYARD_TOKEN", value_name = "TOKEN", hide_env_values = true, value_parser = secret)]
    pub token: Option<SecretString>,
    /// How answers look: tables for people, or JSON
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub output: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Output {
    Table,
    Json,
}

fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    Ok(SecretString::from(text))
}

/// Where a client finds its server, and what it shows there.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Without a slash at its end.
    pub server: String,
    pub token: Option<SecretString>,
}

/// What `up` leaves for the commands of the person who ran it.
#[derive(Serialize, Deserialize)]
struct ClientFile {
    server: String,
    token: String,
}

impl ClientArgs {
    pub fn resolve(&self, environment: &Environment) -> Result<Connection, ConfigError> {
        let file = match environment.client_file() {
            Some(path) => read_client_file(&path)?,
            None => None,
        };
        let named = self.server.as_deref().filter(|server| !server.is_empty());
        let given = named.map(|server| {
            http_url(server).map_err(|why| ConfigError::Server {
                value: server.to_owned(),
                why,
            })
        });
        let given = given.transpose()?;
        let token = self.token.clone().filter(|token| !token.expose_secret().is_empty());
        match (given, file) {
            // The file's token was made by one server, and no other one must get to see it.
            (Some(server), Some(file)) => Ok(Connection {
                token: token.or_else(|| (file.server == server).then(|| file.token.into())),
                server,
            }),
            (Some(server), None) => Ok(Connection { server, token }),
            (None, Some(file)) => Ok(Connection {
                server: file.server,
                token: token.or_else(|| Some(file.token.into())),
            }),
            (None, None) => Err(ConfigError::NoServer),
        }
    }
}

fn read_client_file(path: &Path) -> Result<Option<ClientFile>, ConfigError> {
    let fault = |why: String| ConfigError::File {
        path: path.to_path_buf(),
        why,
    };
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .map(Some)
            .map_err(|error| fault(format!("{error}. `trainyard up` writes it anew if you remove it"))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(fault(error.to_string())),
    }
}

/// Writes the client's file, for nobody else to read.
pub fn write_client_file(path: &Path, server: &str, token: &SecretString) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let file = ClientFile {
        server: server.to_owned(),
        token: token.expose_secret().to_owned(),
    };
    private_file::replace(path, serde_json::to_string_pretty(&file)?.as_bytes())
}
