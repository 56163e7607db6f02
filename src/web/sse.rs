//! Server-Sent Events out of the hub's bytes, to somebody who may see them as long as they may.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use futures::{Stream, StreamExt, stream};
use trainyard_core::model::UserId;

use super::{Code, Error, WebState, accept, auth, extract::Asker};
use crate::{actions::FieldFault, db::access::Caller, hub::frame};

pub const MEDIA_TYPE: &str = "text/event-stream";

/// What live streams are held to.
#[derive(Debug, Clone, Copy)]
pub struct Bound {
    /// How many one user may have open at once.
    pub per_user: usize,
    /// How long one lasts before it has to be asked for again.
    pub lasting: Duration,
}

/// Who has how many live streams open.
#[derive(Clone)]
pub struct Watching {
    per_user: usize,
    open: Arc<Mutex<HashMap<UserId, usize>>>,
}

/// One open stream, given back however it ends.
struct Place {
    watching: Watching,
    user: UserId,
}

impl Watching {
    pub fn new(per_user: usize) -> Self {
        Self {
            per_user,
            open: Arc::default(),
        }
    }

    fn enter(&self, user: UserId) -> Result<Place, Error> {
        // A panic elsewhere leaves the counts whole: no change of them is in two steps.
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(user).or_default();
        if *count >= self.per_user {
            metrics::counter!("trainyard_http_refused_total", "reason" => "live").increment(1);
            return Err(Error::new(
                Code::RateLimited,
                format!(
                    "{} live views and streams of yours are open, and one user may have no more",
                    self.per_user
                ),
            )
            .hint("close some of them, then try again")
            .retry_after(5));
        }
        *count += 1;
        metrics::gauge!("trainyard_tails").increment(1.0);
        Ok(Place {
            watching: self.clone(),
            user,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics::gauge!("trainyard_tails").decrement(1.0);
        let mut open = self.watching.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.user);
            }
        }
    }
}

/// A stream that lasts until the client goes or the program stops; or, with the event `again`, until its time is up or
/// the caller is not any more who they were. Who then may still look comes back with the id of the last event.
pub fn response(
    state: &WebState,
    asker: &Asker,
    headers: &HeaderMap,
    messages: impl Stream<Item = Bytes> + Send + 'static,
) -> Result<Response, Error> {
    let place = state.watching.enter(asker.caller.actor.user)?;
    // Without a first byte some clients wait for the head to be flushed.
    let opening = stream::once(async { Bytes::from_static(b": open\n\n") });
    let messages = opening.chain(messages).boxed();
    let over = Box::pin(over(state.clone(), asker.caller.clone(), headers.clone()));
    let body = stream::unfold(Some((messages, over, place)), |open| async {
        let (mut messages, mut over, place) = open?;
        tokio::select! {
            biased;
            () = &mut over => Some((frame::of_json(None, "again", "{}"), None)),
            next = messages.next() => Some((next?, Some((messages, over, place)))),
        }
    });
    let mut response = Response::new(Body::from_stream(body.map(Ok::<_, Infallible>)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// Comes to its end when a stream of this caller has to.
async fn over(state: WebState, caller: Arc<Caller>, headers: HeaderMap) {
    let mut changes = state.actions.wake.access_changes();
    let changed = async {
        loop {
            // Before the question, so that a change during it is not missed.
            changes.mark_unchanged();
            match auth::authenticate(&state, &headers).await {
                Ok(Some(now)) if now == caller => {}
                _ => return,
            }
            if changes.changed().await.is_err() {
                return;
            }
        }
    };
    // Both ends mean the same.
    let _ = tokio::time::timeout(state.settings.live.lasting, changed).await;
}

/// Whether the client wants a live stream instead of a page.
pub fn wanted(headers: &HeaderMap) -> bool {
    accept::prefers(headers, MEDIA_TYPE, "application/json")
}

/// Where a stream goes on: `Last-Event-ID`, else the parameter.
pub fn last_event_id(headers: &HeaderMap) -> Option<&str> {
    headers
        .get("last-event-id")
        .and_then(|value| value.to_str().ok())
        .filter(|id| !id.is_empty())
}

/// The number that a stream of events goes on behind.
pub fn after(headers: &HeaderMap, parameter: Option<i64>) -> Result<i64, Error> {
    let fault = |text: &str| {
        Error::parameter(
            FieldFault::new("Last-Event-ID", "wrong_form", "this is no event's number")
                .value(text)
                .hint("send the id of the last event that arrived, or leave it out"),
        )
    };
    match last_event_id(headers) {
        Some(text) => text.parse().ok().filter(|after| *after >= 0).ok_or_else(|| fault(text)),
        None => match parameter.unwrap_or(0) {
            after if after >= 0 => Ok(after),
            wrong => Err(fault(&wrong.to_string())),
        },
    }
}
