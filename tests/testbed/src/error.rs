//! One error type for the whole testbed: each says what was being done, and where a person can help, how.

use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{what} is missing; {help}")]
    Missing { what: String, help: String },
    #[error("{doing}: {source}")]
    Io { doing: String, source: std::io::Error },
    #[error("`{line}` failed ({status}): {output}")]
    Command {
        line: String,
        status: String,
        output: String,
    },
    #[error("{doing}: {}", told(source))]
    Kube { doing: String, source: Box<kube::Error> },
    #[error("gave up after {after:?} of waiting for {what}{last}")]
    Timeout {
        what: String,
        after: Duration,
        last: String,
    },
    #[error("{0}")]
    Refused(String),
}

/// The API server's own sentence, where it said one.
fn told(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) => status.message.clone(),
        kube::Error::Service(_) => format!("{error}; an API server that is gone is brought back by `tests/testbed/up`"),
        other => other.to_string(),
    }
}

pub type Result<T> = std::result::Result<T, Error>;

/// Adds to an error what was being done when it struck.
pub trait Doing<T> {
    fn doing(self, doing: impl Into<String>) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, std::io::Error> {
    fn doing(self, doing: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Io {
            doing: doing.into(),
            source,
        })
    }
}

impl<T> Doing<T> for std::result::Result<T, nix::errno::Errno> {
    fn doing(self, doing: impl Into<String>) -> Result<T> {
        self.map_err(|errno| Error::Io {
            doing: doing.into(),
            source: errno.into(),
        })
    }
}

impl<T> Doing<T> for std::result::Result<T, kube::Error> {
    fn doing(self, doing: impl Into<String>) -> Result<T> {
        self.map_err(|source| Error::Kube {
            doing: doing.into(),
            source: Box::new(source),
        })
    }
}

/// For errors that carry nothing but a text worth keeping (a parser's, a certificate maker's).
pub fn refused(doing: &str) -> impl Fn(&dyn std::fmt::Display) -> Error + '_ {
    move |error| Error::Refused(format!("{doing}: {error}"))
}
