//! Every way a verb can say no, as values. How each is told over HTTP stands in one table, `web::error`.

use serde::Serialize;
use trainyard_core::{
    document::{Fault, Position},
    model::{Phase, TeamRole, Wanted},
};
use utoipa::ToSchema;

use crate::{db::DbError, keys::KeyError, logs::LogsError};

#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Nothing of that name or id that the caller may see; nobody is told which.
    #[error("there is no {what} {id}")]
    NotFound { what: &'static str, id: String },
    #[error("this needs {needs}")]
    Forbidden { needs: String },
    /// What was sent has faults, all of them.
    #[error("{} fault(s) in what was sent", .0.len())]
    Faults(Vec<FieldFault>),
    /// A job that ended stays as it is.
    #[error("the job has ended ({phase}), so it can't be changed any more")]
    Ended { phase: Phase },
    #[error("the job has no attempt yet, so there is nothing to report about")]
    NoAttempt,
    /// An earlier wish stands in the way.
    #[error("the job is asked to {wanted} already")]
    Superseded { wanted: Wanted },
    /// The record changed since the caller read it.
    #[error("the record changed since it was read")]
    Stale,
    #[error("the idempotency key was used for another request within the last 24 hours")]
    KeyReused,
    #[error("there is a {what} named {name} already")]
    Taken { what: &'static str, name: String },
    #[error("somebody has to stay {what}")]
    LastOne { what: &'static str },
    #[error("the {what} is still in use")]
    InUse { what: &'static str },
    #[error("the worker of {node} looked at it at {seen}, so it is not gone")]
    Alive { node: String, seen: String },
    /// More waits than can be served soon.
    #[error("too much waits to be written")]
    Overloaded,
    #[error("at most {limit} bytes are taken")]
    TooLarge { limit: usize },
    #[error("no first start happened on this database yet")]
    NotStarted,
    #[error("a log could not be read")]
    Logs(#[source] LogsError),
    #[error("a secret could not be sealed or opened")]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Db(#[from] DbError),
}

impl Refusal {
    /// Says where in the text that was sent each fault lies, as far as `place` can tell.
    pub fn placed(self, place: impl Fn(&str) -> Option<Position>) -> Self {
        match self {
            Refusal::Faults(mut faults) => {
                for fault in faults.iter_mut().filter(|fault| fault.line.is_none()) {
                    let at = place(&fault.path);
                    fault.line = at.map(|at| at.line);
                    fault.column = at.map(|at| at.column);
                }
                Refusal::Faults(faults)
            }
            other => other,
        }
    }

    pub fn fault(fault: FieldFault) -> Self {
        Refusal::Faults(vec![fault])
    }

    pub fn role(role: TeamRole, team: &str) -> Self {
        Refusal::Forbidden {
            needs: format!("the role {role} in team {team}"),
        }
    }
}

impl From<LogsError> for Refusal {
    fn from(error: LogsError) -> Self {
        match error {
            LogsError::Db(error) => Refusal::Db(error),
            LogsError::Position(value) => Refusal::fault(
                FieldFault::new("cursor", "wrong_form", "it is not a position in these logs")
                    .value(value)
                    .hint("leave it out to read from the beginning"),
            ),
            LogsError::Pattern(what) => Refusal::fault(
                FieldFault::new("pattern", "wrong_form", format!("it is no regular expression: {what}"))
                    .hint("search for the text itself with regex=false"),
            ),
            LogsError::Busy => Refusal::Overloaded,
            other => Refusal::Logs(other),
        }
    }
}

/// One fault of what was sent: where, what, and the way out.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct FieldFault {
    /// The field, such as `roles[0].resources.cpu`, or a parameter's name. Empty: the body as a whole.
    pub path: String,
    /// From 1, in the text that was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<u32>,
    /// Stable: programs may tell faults apart by it.
    pub code: String,
    /// The value that is wrong, shortened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

impl FieldFault {
    pub fn new(path: impl Into<String>, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line: None,
            column: None,
            code: code.into(),
            value: None,
            message: message.into(),
            hint: None,
        }
    }

    pub fn value(mut self, value: impl Into<String>) -> Self {
        let value: String = value.into();
        self.value = Some(value.chars().take(120).collect());
        self
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl From<Fault> for FieldFault {
    fn from(fault: Fault) -> Self {
        // A code is a unit variant, so it is written as one word.
        let code = serde_json::to_value(fault.code)
            .ok()
            .and_then(|word| word.as_str().map(str::to_owned));
        Self {
            path: fault.path,
            line: fault.line,
            column: fault.column,
            code: code.unwrap_or_else(|| "invalid".into()),
            value: fault.value,
            message: fault.message,
            hint: fault.hint,
        }
    }
}
