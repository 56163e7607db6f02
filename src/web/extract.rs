//! What handlers take from a request. Every fault names its field, as the problem's `errors` show it.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, RawPathParams, Request},
    http::{HeaderMap, header, request::Parts},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use trainyard_core::document::{Format, Rules, check_json};
use utoipa::ToSchema;

use super::{Code, Error, WebState, params};
use crate::{
    actions::{Ask, FieldFault},
    db::{Scope, access::Caller},
};

/// What this request is known by.
#[derive(Debug, Clone)]
pub struct RequestId(pub Arc<str>);

/// Who asks. Only the guard puts it there; a handler that takes one can't be reached without.
#[derive(Debug, Clone)]
pub struct Asker {
    pub caller: Arc<Caller>,
    pub request: Arc<str>,
}

impl Asker {
    pub fn ask(&self) -> Ask<'_> {
        Ask {
            caller: &self.caller,
            request: &self.request,
        }
    }

    /// What the caller may read.
    pub fn scope(&self) -> Scope {
        self.caller.actor.scope()
    }
}

impl FromRequestParts<WebState> for Asker {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &WebState) -> Result<Self, Error> {
        let caller = parts
            .extensions
            .get::<Arc<Caller>>()
            .cloned()
            .ok_or_else(Error::unauthenticated)?;
        let request = parts
            .extensions
            .get::<RequestId>()
            .map_or_else(|| "unknown".into(), |id| id.0.clone());
        Ok(Self { caller, request })
    }
}

/// Parameters behind the question mark.
#[derive(Debug)]
pub struct Params<T>(pub T);

impl<T: DeserializeOwned> FromRequestParts<WebState> for Params<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, _: &WebState) -> Result<Self, Error> {
        params::parse(parts.uri.query().unwrap_or_default())
            .map(Self)
            .map_err(Error::parameter)
    }
}

/// The one parameter of the path, as an id or a name.
#[derive(Debug)]
pub struct PathOf<T>(pub T);

impl<T: PathPart> FromRequestParts<WebState> for PathOf<T> {
    type Rejection = Error;

    async fn from_request_parts(parts: &mut Parts, state: &WebState) -> Result<Self, Error> {
        let raw = RawPathParams::from_request_parts(parts, state).await.map_err(|_| {
            Error::parameter(FieldFault::new(
                "path",
                "wrong_form",
                "the address is not well-formed UTF-8",
            ))
        })?;
        let values: Vec<(&str, &str)> = raw.iter().collect();
        // No name has a NUL, and Postgres takes no text with one.
        if let Some((name, text)) = values.iter().find(|(_, text)| text.contains('\0')) {
            return Err(Error::not_found(&name.replace('_', " "), text));
        }
        T::of(&values).map(Self)
    }
}

/// What can be read from the parameters of a path.
pub trait PathPart: Sized {
    fn of(values: &[(&str, &str)]) -> Result<Self, Error>;
}

/// An id that can't be one belongs to nothing: 404, like an id of nothing.
fn one<T: std::str::FromStr>((name, text): (&str, &str)) -> Result<T, Error> {
    text.parse()
        .map_err(|_| Error::not_found(&name.replace('_', " "), text))
}

macro_rules! path_ids {
    ($($id:ty),+) => {$(
        impl PathPart for $id {
            fn of(values: &[(&str, &str)]) -> Result<Self, Error> {
                one(values.first().copied().unwrap_or_default())
            }
        }
    )+};
}

path_ids!(
    trainyard_core::model::JobId,
    trainyard_core::model::TeamId,
    trainyard_core::model::UserId,
    trainyard_core::model::TokenId,
    trainyard_core::model::ClusterId,
    trainyard_core::model::NodeId,
    trainyard_core::model::CheckId,
    String
);

impl<A: std::str::FromStr, B: std::str::FromStr> PathPart for (A, B) {
    fn of(values: &[(&str, &str)]) -> Result<Self, Error> {
        let nth = |n: usize| values.get(n).copied().unwrap_or_default();
        Ok((one(nth(0))?, one(nth(1))?))
    }
}

/// A JSON body. What its type refuses is told by the type's schema.
#[derive(Debug)]
pub struct JsonBody<T>(pub T);

impl<T: DeserializeOwned + ToSchema> FromRequest<WebState> for JsonBody<T> {
    type Rejection = Error;

    async fn from_request(request: Request, state: &WebState) -> Result<Self, Error> {
        let bytes = body(request, state).await?;
        match serde_json::from_slice(&bytes) {
            Ok(value) => Ok(Self(value)),
            Err(refused) => Err(Error::faults(
                Code::InvalidBody,
                faults::<T>(&utf8(bytes)?, &refused.to_string()),
            )),
        }
    }
}

/// All that is wrong with a body that its type has refused, held against the schema of the type as documents are.
fn faults<T: ToSchema>(text: &str, refused: &str) -> Vec<FieldFault> {
    let mut schemas = Vec::new();
    T::schemas(&mut schemas);
    schemas.push(("Body".into(), T::schema()));
    let schemas: BTreeMap<_, _> = schemas.into_iter().collect();
    let schema = json!({ "$ref": "#/components/schemas/Body", "components": { "schemas": schemas } });
    let faults = match Rules::compile(&schema) {
        Ok(rules) => check_json(text, &rules),
        Err(error) => {
            tracing::error!(%error, "the schema of a body can't be read");
            Vec::new()
        }
    };
    if faults.is_empty() {
        // The type knows better than its schema.
        return vec![FieldFault::new("", "wrong_form", refused)];
    }
    faults.into_iter().map(FieldFault::from).collect()
}

fn utf8(bytes: Bytes) -> Result<String, Error> {
    String::from_utf8(bytes.into()).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let fault = FieldFault::new("", "syntax", format!("byte {at} is not UTF-8")).hint("send it as UTF-8");
        Error::faults(Code::InvalidBody, vec![fault])
    })
}

/// A document's text, with how it is written.
#[derive(Debug)]
pub struct Document {
    pub text: String,
    pub format: Format,
}

impl FromRequest<WebState> for Document {
    type Rejection = Error;

    async fn from_request(request: Request, state: &WebState) -> Result<Self, Error> {
        let format = match media_type(request.headers()) {
            Some(kind) if kind == "application/json" => Format::Json,
            _ => Format::Yaml,
        };
        let bytes = body(request, state).await?;
        Ok(Self {
            text: utf8(bytes)?,
            format,
        })
    }
}

/// A body as it came.
#[derive(Debug)]
pub struct RawBody(pub Bytes);

impl FromRequest<WebState> for RawBody {
    type Rejection = Error;

    async fn from_request(request: Request, state: &WebState) -> Result<Self, Error> {
        body(request, state).await.map(Self)
    }
}

/// The whole body, within the limit that the route has.
pub async fn body(request: Request, state: &WebState) -> Result<Bytes, Error> {
    let limit = state.settings.body_limit;
    Bytes::from_request(request, state).await.map_err(|rejection| {
        if rejection.status() == axum::http::StatusCode::PAYLOAD_TOO_LARGE {
            metrics::counter!("trainyard_http_refused_total", "reason" => "size").increment(1);
            Error::new(
                Code::TooLarge,
                format!("The body is larger than the {limit} bytes that this address takes"),
            )
            .hint("in a document, code and data are what grows: upload code or name a git commit, put data in a volume")
        } else {
            let words = format!(
                "the body broke off before its end, or did not arrive within {} seconds",
                state.settings.body_time.as_secs()
            );
            Error::faults(Code::InvalidRequest, vec![FieldFault::new("", "syntax", words)])
        }
    })
}

/// The request with its whole body at hand: nobody who reads it has to wait.
pub async fn whole(request: Request, state: &WebState) -> Result<Request, Error> {
    let (parts, sent) = request.into_parts();
    let bytes = body(Request::from_parts(parts.clone(), sent), state).await?;
    Ok(Request::from_parts(parts, Body::from(bytes)))
}

/// The media type of a body, without its parameters.
pub fn media_type(headers: &HeaderMap) -> Option<String> {
    let value = headers.get(header::CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
}

/// `Idempotency-Key`, if one was sent.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<&str>, Error> {
    let Some(value) = headers.get("idempotency-key") else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(key) if (1..=255).contains(&key.len()) => Ok(Some(key)),
        _ => Err(Error::parameter(
            FieldFault::new(
                "Idempotency-Key",
                "wrong_form",
                "a key has 1 to 255 visible ASCII characters",
            )
            .hint("a UUID will do"),
        )),
    }
}

/// `If-Match`, if it was sent.
pub fn if_match(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::IF_MATCH).and_then(|value| value.to_str().ok())
}
