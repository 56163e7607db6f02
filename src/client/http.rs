//! Asking a server, and its refusals in words.

use std::time::Duration;

use reqwest::{Method, RequestBuilder, Response, StatusCode};
use secrecy::ExposeSecret;
use serde::Deserialize;
use serde_json::{Value, json};

use super::table::{json_for_terminal, printable};
use crate::{
    config::{ConfigError, Connection},
    tls,
};

/// What can go wrong between the command line and a job.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error(transparent)]
    Config(ConfigError),
    /// What was typed can't be done, seen before any server was asked.
    #[error("{0}")]
    Usage(String),
    #[error("{path}: {source}")]
    File { path: String, source: std::io::Error },
    #[error("no answer from {server}: {why}")]
    Unreachable { server: String, why: String },
    #[error("{}", .0.title)]
    Refused(Box<Problem>),
    /// It answered, but not as a Trainyard does.
    #[error("{server} did not answer as a Trainyard does: {why}")]
    Strange { server: String, why: String },
    #[error("{}", not_signed_in(.server, *.token))]
    NotSignedIn { server: String, token: bool },
    #[error("there is no job {0} that you may see")]
    NoSuchJob(String),
    #[error("there is no node {0} that you may see; `trainyard nodes` lists them")]
    NoSuchNode(String),
    #[error("several jobs are named {name}: {}", ids.join(", "))]
    Ambiguous { name: String, ids: Vec<String> },
    /// Nothing of this machine says which certificates to trust.
    #[error("no TLS here: {0}")]
    Tls(String),
    #[error("{0}")]
    Output(#[from] std::io::Error),
}

/// RFC 9457 problem+json.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Problem {
    pub status: u16,
    pub code: String,
    pub title: String,
    pub detail: Option<String>,
    pub hint: Option<String>,
    pub errors: Vec<ProblemFault>,
    pub request_id: Option<String>,
    /// As it came, for programs.
    #[serde(skip)]
    pub whole: Value,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ProblemFault {
    pub path: String,
    pub line: Option<u64>,
    pub column: Option<u64>,
    pub message: String,
    pub hint: Option<String>,
}

impl ClientError {
    pub fn exit_code(&self) -> u8 {
        match self {
            ClientError::Usage(_) => 2,
            ClientError::Config(_)
            | ClientError::Tls(_)
            | ClientError::Unreachable { .. }
            | ClientError::Strange { .. } => 3,
            ClientError::NotSignedIn { .. } | ClientError::NoSuchJob(_) | ClientError::NoSuchNode(_) => 4,
            ClientError::Refused(problem) => match problem.status {
                403 | 404 | 410 => 4,
                503 => 3,
                _ => 1,
            },
            ClientError::File { .. } | ClientError::Ambiguous { .. } | ClientError::Output(_) => 1,
        }
    }

    /// For standard error: what happened, every fault with its place, and the way out.
    pub fn in_words(&self) -> String {
        let mut words = format!("trainyard: {}\n", printable(&self.to_string()));
        if let ClientError::Refused(problem) = self {
            words.push_str(&problem.in_words());
        }
        for line in self.hint().iter().flat_map(|hint| hint.lines()) {
            words.push_str(&format!("  {line}\n"));
        }
        words
    }

    /// For a program, as one line on standard error: the server's problem document whole, or what went wrong here in
    /// its form: `code`, `title`, and `hint` where there is one.
    pub fn in_json(&self) -> String {
        let problem = match self {
            ClientError::Refused(problem) => problem.whole.clone(),
            here => {
                let mut problem = json!({ "code": here.code(), "title": here.to_string() });
                if let Some(hint) = here.hint() {
                    problem["hint"] = hint.into();
                }
                problem
            }
        };
        json_for_terminal(&problem.to_string()) + "\n"
    }

    /// Stable: programs may tell errors apart by it.
    fn code(&self) -> &str {
        match self {
            ClientError::Config(_) => "settings",
            ClientError::Usage(_) => "usage",
            ClientError::File { .. } => "file",
            ClientError::Unreachable { .. } => "unreachable",
            ClientError::Refused(problem) => &problem.code,
            ClientError::Strange { .. } => "strange_answer",
            ClientError::NotSignedIn { .. } => "unauthenticated",
            ClientError::NoSuchJob(_) | ClientError::NoSuchNode(_) => "not_found",
            ClientError::Ambiguous { .. } => "ambiguous",
            ClientError::Tls(_) => "tls",
            ClientError::Output(_) => "output",
        }
    }

    /// The way out of what no server has refused.
    fn hint(&self) -> Option<String> {
        match self {
            ClientError::Unreachable { .. } => Some(
                "Is it running? `trainyard up` starts one here; --server or TRAINYARD_SERVER names another.".to_owned(),
            ),
            ClientError::NotSignedIn { server, token } => {
                let token = if *token {
                    "It is mistyped, expired or revoked.\n"
                } else {
                    ""
                };
                Some(format!(
                    "{token}Make a token at {server}/settings, or on the server's machine with `trainyard token create NAME`.\n\
                     Then give it in TRAINYARD_TOKEN, or with --token."
                ))
            }
            ClientError::Ambiguous { .. } => Some("Name it by its id.".to_owned()),
            _ => None,
        }
    }
}

impl Problem {
    fn in_words(&self) -> String {
        let mut words = String::new();
        let mut add = |line: String| {
            words.push_str("  ");
            words.push_str(&printable(&line));
            words.push('\n');
        };
        // The faults say the same with their places.
        if let Some(detail) = self.detail.as_ref().filter(|_| self.errors.is_empty()) {
            add(detail.clone());
        }
        for fault in &self.errors {
            let mut line = String::new();
            if let (Some(row), Some(column)) = (fault.line, fault.column) {
                line.push_str(&format!("line {row}, column {column}: "));
            }
            if !fault.path.is_empty() {
                line.push_str(&format!("{}: ", fault.path));
            }
            line.push_str(&fault.message);
            if let Some(hint) = &fault.hint {
                line.push_str(&format!("; {hint}"));
            }
            add(line);
        }
        if let Some(hint) = self.hint.as_ref().filter(|_| self.errors.is_empty()) {
            add(hint.clone());
        }
        if let Some(request) = self.request_id.as_ref().filter(|_| self.status >= 500) {
            add(format!("Request {request}, {}", self.code));
        }
        words
    }
}

/// A server, and who we are there.
pub struct Server {
    connection: Connection,
    http: reqwest::Client,
}

impl Server {
    pub fn new(connection: Connection) -> Result<Self, ClientError> {
        let http = tls::client()
            .connect_timeout(Duration::from_secs(5))
            .user_agent(concat!("trainyard/", env!("CARGO_PKG_VERSION")))
            .no_proxy()
            .build()
            .map_err(|error| ClientError::Tls(innermost(&error)))?;
        Ok(Self { connection, http })
    }

    pub fn address(&self) -> &str {
        &self.connection.server
    }

    pub fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self
            .http
            .request(method, format!("{}/api/v1{path}", self.connection.server));
        match &self.connection.token {
            Some(token) => request.bearer_auth(token.expose_secret()),
            None => request,
        }
    }

    /// Sends, and turns every refusal into words. The answer's body is still to be read.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, ClientError> {
        let response = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::UNAUTHORIZED {
            return Err(ClientError::NotSignedIn {
                server: self.connection.server.clone(),
                token: self.connection.token.is_some(),
            });
        }
        let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        let whole: Value = serde_json::from_slice(&body).unwrap_or_default();
        match Problem::deserialize(&whole) {
            Ok(mut problem) if !problem.title.is_empty() => {
                problem.status = status.as_u16();
                problem.whole = whole;
                Err(ClientError::Refused(Box::new(problem)))
            }
            _ => Err(self.strange(format!("it said {}", said(status)))),
        }
    }

    /// Sends, and reads a JSON answer. An answer without a body is null.
    pub async fn json(&self, request: RequestBuilder) -> Result<Value, ClientError> {
        let response = self.send(request.timeout(Duration::from_secs(60))).await?;
        let body = response.bytes().await.map_err(|error| self.unreachable(&error))?;
        if body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&body).map_err(|error| self.strange(error.to_string()))
    }

    pub async fn get(&self, path: &str, query: &[(&str, String)]) -> Result<Value, ClientError> {
        self.json(self.request(Method::GET, path).query(query)).await
    }

    /// Reads a value as what it should be.
    pub fn read<T: for<'a> Deserialize<'a>>(&self, value: &Value) -> Result<T, ClientError> {
        T::deserialize(value).map_err(|error| self.strange(error.to_string()))
    }

    pub fn strange(&self, why: String) -> ClientError {
        ClientError::Strange {
            server: self.connection.server.clone(),
            why,
        }
    }

    pub fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        let innermost = innermost(error);
        if error.is_builder() {
            return ClientError::Usage(format!("this can't be sent to a server: {innermost}"));
        }
        ClientError::Unreachable {
            server: self.connection.server.clone(),
            why: match innermost == error.to_string() && error.is_timeout() {
                true => "it took too long".to_owned(),
                false => innermost,
            },
        }
    }
}

/// The innermost cause says it best: "Connection refused".
fn innermost(error: &dyn std::error::Error) -> String {
    match error.source() {
        Some(cause) => innermost(cause),
        None => error.to_string(),
    }
}

fn not_signed_in(server: &str, token: bool) -> String {
    match token {
        true => format!("{server} does not take this token"),
        false => format!("you are not signed in to {server}"),
    }
}

fn said(status: StatusCode) -> String {
    match status.canonical_reason() {
        Some(reason) => format!("{} {reason}", status.as_u16()),
        None => status.as_u16().to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_every_place_and_the_way_out() {
        let problem: Problem = serde_json::from_str(
            r#"{"type": "x", "status": 422, "code": "invalid_document", "title": "2 faults in the document",
                "errors": [{"path": "roles[0].replicas", "line": 7, "column": 15, "code": "wrong_type",
                            "message": "'many' is not a whole number", "hint": "write 4"},
                           {"path": "", "message": "evil \u001b[2J words"}]}"#,
        )
        .unwrap();
        let error = ClientError::Refused(Box::new(problem));
        assert_eq!(
            error.in_words(),
            "trainyard: 2 faults in the document\n  \
             line 7, column 15: roles[0].replicas: 'many' is not a whole number; write 4\n  \
             evil \\u{1b}[2J words\n"
        );
        assert_eq!(error.exit_code(), 1);
    }

    #[test]
    fn exit_codes_tell_who_was_at_fault() {
        let refused = |status| {
            ClientError::Refused(Box::new(Problem {
                status,
                ..Problem::default()
            }))
            .exit_code()
        };
        assert_eq!([refused(404), refused(403), refused(409), refused(503)], [4, 4, 1, 3]);
        assert_eq!(ClientError::Usage(String::new()).exit_code(), 2);
    }

    #[test]
    fn who_is_not_signed_in_is_told_how() {
        let error = |token| ClientError::NotSignedIn {
            server: "http://yard:7420".into(),
            token,
        };
        let words = error(false).in_words();
        assert!(
            words.starts_with("trainyard: you are not signed in to http://yard:7420\n"),
            "{words}"
        );
        assert!(
            words.contains("http://yard:7420/settings") && words.contains("TRAINYARD_TOKEN"),
            "{words}"
        );
        assert!(error(true).in_words().contains("expired or revoked"));
        assert_eq!(error(true).exit_code(), 4);
    }
}
