//! `POST /api/v1/checks`: ask a cluster something.

use std::time::Duration;

use axum::{
    Json,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use serde_json::Value;
use trainyard_core::model::{CheckId, ClusterId};
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, JsonBody},
};
use crate::db::checks::{self, Check};

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewCheck {
    /// `cluster.look`: look at the cluster now, and say what is there.
    #[schema(example = "cluster.look")]
    pub kind: String,
    pub cluster: ClusterId,
    /// Whatever the kind wants to know besides.
    #[serde(default)]
    #[schema(value_type = Object)]
    pub question: Option<Value>,
}

/// How long `Prefer: wait` may hold an answer open.
const LONGEST: Duration = Duration::from_secs(30);
/// How often the record is looked at meanwhile.
const LOOK: Duration = Duration::from_millis(200);

/// Asks a cluster something. A worker answers; until then the check waits. `Prefer: wait=10` holds the reply open, unless
/// many replies are held open already.
#[utoipa::path(
    post,
    path = "/api/v1/checks",
    tag = "clusters",
    params(("Prefer" = Option<String>, Header, description = "wait=SECONDS, at most 30")),
    request_body(content = NewCheck),
    responses(
        (status = 202, description = "Asked", body = Check, headers(("location" = String, description = "The check"))),
        (status = 200, description = "Answered within the wait", body = Check)
    )
)]
pub async fn ask_check(
    State(state): State<WebState>,
    asker: Asker,
    headers: HeaderMap,
    JsonBody(new): JsonBody<NewCheck>,
) -> Result<Response, Error> {
    // Who waits holds a place that others may need, so only a few do.
    let mut patience = patience(&headers);
    let place = state.waits.try_acquire().ok().filter(|_| !patience.is_zero());
    if place.is_none() {
        patience = Duration::ZERO;
    }
    let question = new.question.unwrap_or_else(|| Value::Object(Default::default()));
    let check = state
        .actions
        .ask_check(asker.ask(), &new.kind, new.cluster, &question)
        .await?;
    let check = wait(&state, check, patience).await?;
    let status = if check.phase == "waiting" {
        StatusCode::ACCEPTED
    } else {
        StatusCode::OK
    };
    let location = format!("/api/v1/checks/{}", check.id);
    let mut response = (status, Json(check)).into_response();
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// What `Prefer: wait=N` asks for.
fn patience(headers: &HeaderMap) -> Duration {
    let prefer = headers
        .get("prefer")
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    let seconds = prefer
        .split([',', ';'])
        .find_map(|part| part.trim().strip_prefix("wait=")?.parse::<u64>().ok());
    Duration::from_secs(seconds.unwrap_or(0)).min(LONGEST)
}

async fn wait(state: &WebState, mut check: Check, patience: Duration) -> Result<Check, Error> {
    let until = tokio::time::Instant::now() + patience;
    while check.phase == "waiting" && tokio::time::Instant::now() < until {
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            // A stopping server does not wait for workers.
            () = state.stop.cancelled() => break,
        }
        let id: CheckId = check.id;
        check = checks::get(&state.db, None, id).await?;
    }
    Ok(check)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_bounded() {
        let mut headers = HeaderMap::new();
        assert_eq!(patience(&headers), Duration::ZERO);
        headers.insert("prefer", HeaderValue::from_static("respond-async, wait=10"));
        assert_eq!(patience(&headers), Duration::from_secs(10));
        headers.insert("prefer", HeaderValue::from_static("wait=86400"));
        assert_eq!(patience(&headers), LONGEST);
    }
}
