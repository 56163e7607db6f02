//! The one outward table: every way to say no, with its status, its stable code and its title. To programs it is
//! problem+json (RFC 9457), to browsers a page. A database's words never get here; they go to our own log.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    actions::{FieldFault, Refusal},
    db::DbError,
};

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $status:ident $code:literal $title:literal,)+) => {
        /// Stable codes. Within v1, codes are only added.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code { $($(#[$doc])* $variant,)+ }

        impl Code {
            pub const ALL: &'static [Code] = &[$(Code::$variant),+];

            pub fn status(self) -> StatusCode {
                match self { $(Code::$variant => StatusCode::$status,)+ }
            }

            pub fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $code,)+ }
            }

            pub fn title(self) -> &'static str {
                match self { $(Code::$variant => $title,)+ }
            }
        }
    };
}

codes! {
    InvalidRequest = BAD_REQUEST "invalid_request" "The request has faults",
    InvalidBody = UNPROCESSABLE_ENTITY "invalid_body" "What was sent has faults",
    Unauthenticated = UNAUTHORIZED "unauthenticated" "Nobody is signed in",
    Forbidden = FORBIDDEN "forbidden" "Not allowed",
    /// An unsafe request of a browser without the session's own token.
    WrongOrigin = FORBIDDEN "csrf" "The request does not come from our own pages",
    NotFound = NOT_FOUND "not_found" "Not found",
    NoRoute = NOT_FOUND "no_route" "There is nothing at this address",
    MethodNotAllowed = METHOD_NOT_ALLOWED "method_not_allowed" "This address does not take that method",
    NotAcceptable = NOT_ACCEPTABLE "not_acceptable" "None of the accepted media types is offered here",
    Ended = CONFLICT "job_ended" "The job has ended",
    NoAttempt = CONFLICT "no_attempt" "The job has no attempt yet",
    Superseded = CONFLICT "superseded" "An earlier wish stands in the way",
    Taken = CONFLICT "taken" "The name is taken",
    LastOne = CONFLICT "last_one" "Somebody has to stay",
    InUse = CONFLICT "in_use" "Still in use",
    Stale = PRECONDITION_FAILED "stale" "The record changed since it was read",
    TooLarge = PAYLOAD_TOO_LARGE "too_large" "Too much was sent",
    UnsupportedMediaType = UNSUPPORTED_MEDIA_TYPE "unsupported_media_type" "That media type is not taken here",
    KeyReused = UNPROCESSABLE_ENTITY "idempotency_key_reused" "The idempotency key belongs to another request",
    IfMatchRequired = PRECONDITION_REQUIRED "if_match_required" "The request has to name the version that it changes",
    RateLimited = TOO_MANY_REQUESTS "rate_limited" "Too many requests",
    Internal = INTERNAL_SERVER_ERROR "internal" "A fault of ours",
    Unavailable = SERVICE_UNAVAILABLE "database_unavailable" "The database is away",
    Overloaded = SERVICE_UNAVAILABLE "overloaded" "Too much to do just now",
    NotStarted = SERVICE_UNAVAILABLE "not_started" "Not set up yet",
}

/// A refusal or a fault, as RFC 9457 writes it.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Problem {
    /// `urn:trainyard:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    pub title: String,
    pub status: u16,
    /// Stable: programs may tell problems apart by it.
    pub code: String,
    /// What happened, in words.
    pub detail: String,
    /// The way out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// All faults of what was sent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FieldFault>,
    /// What our own log knows this request by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Seconds after which trying again may help.
    #[serde(skip)]
    pub retry_after: Option<u64>,
}

/// What handlers answer with when they can't answer.
#[derive(Debug, Clone)]
pub struct Error(pub Box<Problem>);

impl Error {
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self(Box::new(Problem {
            kind: format!("urn:trainyard:problem:{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status().as_u16(),
            code: code.as_str().to_owned(),
            detail: detail.into(),
            hint: None,
            errors: Vec::new(),
            request_id: None,
            retry_after: None,
        }))
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    pub fn retry_after(mut self, seconds: u64) -> Self {
        self.0.retry_after = Some(seconds);
        self
    }

    pub fn faults(code: Code, faults: Vec<FieldFault>) -> Self {
        let detail = match faults.as_slice() {
            [one] if one.path.is_empty() => one.message.clone(),
            [one] => format!("{}: {}", one.path, one.message),
            many => format!("{} faults, each under errors", many.len()),
        };
        let mut error = Self::new(code, detail);
        error.0.hint = match faults.as_slice() {
            [one] => one.hint.clone(),
            _ => None,
        };
        error.0.errors = faults;
        error
    }

    /// A parameter of the address that is wrong.
    pub fn parameter(fault: FieldFault) -> Self {
        Self::faults(Code::InvalidRequest, vec![fault])
    }

    pub fn not_found(what: &str, id: &str) -> Self {
        let shown: String = id.chars().take(80).collect();
        Self::new(
            Code::NotFound,
            format!("There is no {what} {shown}, or you may not see it"),
        )
        .hint("list what there is, or ask an owner of its team to add you")
    }

    /// What was to be read did not come in time.
    pub fn silent() -> Self {
        Self::new(
            Code::Unavailable,
            "The records were asked and did not answer in time. Nothing was changed, and jobs go on",
        )
        .hint(AWAY)
        .retry_after(2)
    }

    pub fn unauthenticated() -> Self {
        Self::new(Code::Unauthenticated, "This needs a token or a signed-in browser")
            .hint("send 'Authorization: Bearer <token>'; `trainyard token create` makes one")
    }
}

const AWAY: &str = "try again in a few seconds; if it lasts, run `trainyard doctor` on the server's machine";

impl From<DbError> for Error {
    fn from(error: DbError) -> Self {
        match &error {
            DbError::Unavailable(source) => {
                tracing::warn!(%source, "the database is not available");
                Self::new(
                    Code::Unavailable,
                    "The records can't be reached: Postgres does not answer. Nothing was changed, and jobs go on",
                )
                .hint(AWAY)
                .retry_after(2)
            }
            DbError::NotFound => Self::not_found("record", ""),
            DbError::Stale => Refusal::Stale.into(),
            DbError::Constraint { constraint, .. } => {
                tracing::error!(%constraint, %error, "a write that should have been checked was refused");
                Self::internal()
            }
            DbError::Fenced | DbError::Inconsistent { .. } | DbError::Other(_) => {
                let source = std::error::Error::source(&error)
                    .map(ToString::to_string)
                    .unwrap_or_default();
                tracing::error!(%error, source, "a request met a fault of ours");
                Self::internal()
            }
        }
    }
}

impl From<crate::logs::LogsError> for Error {
    /// Logs are only read here, so what is wrong is a parameter and never a body.
    fn from(error: crate::logs::LogsError) -> Self {
        match Refusal::from(error) {
            Refusal::Faults(faults) => Self::faults(Code::InvalidRequest, faults),
            other => other.into(),
        }
    }
}

impl Error {
    pub fn internal() -> Self {
        Self::new(
            Code::Internal,
            "Something of ours is wrong; nothing of yours needs changing",
        )
        .hint("tell an admin the request id; the log of the server says more")
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let words = refusal.to_string();
        let mut detail: String = words.chars().take(1).flat_map(char::to_uppercase).collect();
        detail.extend(words.chars().skip(1));
        match refusal {
            Refusal::NotFound { what, id } => Self::not_found(what, &id),
            Refusal::Forbidden { .. } => {
                Self::new(Code::Forbidden, detail).hint("an owner of the team, or an admin, can give you that role")
            }
            Refusal::Faults(faults) => Self::faults(Code::InvalidBody, faults),
            Refusal::Ended { .. } => {
                Self::new(Code::Ended, detail).hint("a rerun makes a new job of the same document")
            }
            Refusal::NoAttempt => Self::new(Code::NoAttempt, detail).hint("wait until it has started"),
            Refusal::Superseded { .. } => {
                Self::new(Code::Superseded, detail).hint("a rerun makes a new job of the same document")
            }
            Refusal::Stale => {
                Self::new(Code::Stale, detail).hint("read it again, then repeat the change on what it is now")
            }
            Refusal::KeyReused => Self::new(Code::KeyReused, detail).hint("draw a new key for a new request"),
            Refusal::Taken { .. } => Self::new(Code::Taken, detail).hint("choose another name"),
            Refusal::LastOne { .. } => Self::new(Code::LastOne, detail).hint("name another one first"),
            Refusal::InUse { .. } => Self::new(Code::InUse, detail),
            Refusal::Alive { .. } => {
                Self::new(Code::InUse, detail).hint("stop what runs there, or wait half a minute if it has just died")
            }
            Refusal::Overloaded => Self::new(Code::Overloaded, detail)
                .hint("try again in a second")
                .retry_after(1),
            Refusal::TooLarge { .. } => Self::new(Code::TooLarge, detail),
            Refusal::NotStarted => Self::new(Code::NotStarted, detail)
                .hint("run `trainyard up` once")
                .retry_after(5),
            Refusal::Db(error) => error.into(),
            Refusal::Logs(error) => {
                tracing::error!(%error, "stored output can't be read");
                Self::internal()
            }
            Refusal::Keys(error) => {
                tracing::error!(%error, "a secret can't be sealed or opened");
                Self::internal()
            }
        }
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let problem = *self.0;
        let body = serde_json::to_vec(&problem).unwrap_or_default();
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Some(seconds) = problem.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if problem.status == 401 {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        // The face (see `face`) adds the request id, and shows browsers a page instead.
        response.extensions_mut().insert(Box::new(problem));
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_told_apart_and_every_one_is_a_refusal() {
        let mut words: Vec<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), Code::ALL.len());
        assert!(
            Code::ALL
                .iter()
                .all(|code| code.status().is_client_error() || code.status().is_server_error())
        );
    }

    #[test]
    fn a_databases_words_stay_inside() {
        let error = DbError::Inconsistent {
            table: "jobs",
            key: "7".into(),
            what: "select * from jobs".into(),
        };
        let problem = Error::from(error).0;
        assert_eq!(problem.status, 500);
        assert!(!serde_json::to_string(&problem).unwrap().contains("jobs"));
    }
}
