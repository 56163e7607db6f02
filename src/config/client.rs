//! Settings of the program as a client: where its server is, and what `up` writes down for its commands.

use std::{collections::BTreeMap, path::Path};

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

/// Whether the command line asks for JSON, for when it was not understood as a whole.
pub fn asks_for_json() -> bool {
    let words = std::env::args_os().skip(1);
    let words: Vec<String> = words.map(|word| word.to_string_lossy().into_owned()).collect();
    words
        .windows(2)
        .any(|pair| matches!(pair[0].as_str(), "-o" | "--output") && pair[1] == "json")
        || (words.iter()).any(|word| matches!(word.as_str(), "-ojson" | "-o=json" | "--output=json"))
}

fn secret(text: &str) -> Result<SecretString, std::convert::Infallible> {
    // A token out of a file comes with the line's end.
    Ok(SecretString::from(text.trim()))
}

/// Where a client finds its server, and what it shows there.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Without a slash at its end.
    pub server: String,
    pub token: Option<SecretString>,
}

/// What `up` leaves for the commands of the person who ran it.
#[derive(Default, Serialize, Deserialize)]
struct ClientFile {
    /// Where commands go that name no server: where `up` ran last.
    server: String,
    token: String,
    /// Tokens of the servers before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    others: BTreeMap<String, String>,
}

impl ClientFile {
    /// The token that this server made, which no other one must get to see.
    fn token_of(&self, server: &str) -> Option<&String> {
        if self.server == server {
            Some(&self.token)
        } else {
            self.others.get(server)
        }
    }
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
            (Some(server), Some(file)) => Ok(Connection {
                token: token.or_else(|| file.token_of(&server).map(|token| token.as_str().into())),
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

/// Whether the file has a token of this server.
pub fn has_token_of(path: &Path, server: &str) -> bool {
    matches!(read_client_file(path), Ok(Some(file)) if file.token_of(server).is_some())
}

/// Makes this server the one that commands go to, in the client's file, which nobody else may read; with `token` if it
/// made a new one. Answers with the server that it was before, if it was another.
pub fn write_client_file(path: &Path, server: &str, token: Option<&SecretString>) -> std::io::Result<Option<String>> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    // What can't be read is of use to nobody.
    let mut file = read_client_file(path).ok().flatten().unwrap_or_default();
    let before = std::mem::replace(&mut file.server, server.to_owned());
    let token_before = std::mem::take(&mut file.token);
    let moved = !before.is_empty() && before != server;
    if moved {
        file.others.insert(before.clone(), token_before.clone());
    }
    let kept = file.others.remove(server);
    file.token = match token {
        Some(token) => token.expose_secret().to_owned(),
        None => kept.unwrap_or(token_before),
    };
    private_file::replace(path, serde_json::to_string_pretty(&file)?.as_bytes())?;
    Ok(moved.then_some(before))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_server_keeps_its_token_and_the_last_one_that_started_is_meant() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trainyard/client.json");
        let (one, two) = ("http://one", "http://two");
        let write = |server, token: Option<&str>| {
            write_client_file(&path, server, token.map(SecretString::from).as_ref()).unwrap()
        };
        assert_eq!(write(one, Some("first")), None);
        assert_eq!(write(two, Some("second")), Some(one.to_owned()));
        assert!(has_token_of(&path, one) && has_token_of(&path, two) && !has_token_of(&path, "http://three"));
        assert_eq!(write(one, None), Some(two.to_owned()));
        let file = read_client_file(&path).unwrap().unwrap();
        assert_eq!((file.server.as_str(), file.token.as_str()), (one, "first"));
        assert_eq!(file.token_of(two).map(String::as_str), Some("second"));
        assert_eq!(write(one, Some("third")), None);
        let file = read_client_file(&path).unwrap().unwrap();
        assert_eq!(file.token_of(one).map(String::as_str), Some("third"));
    }
}
