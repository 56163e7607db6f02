//! Server-Sent Events out of the hub's bytes.

use std::convert::Infallible;

use axum::{
    body::{Body, Bytes},
    http::{HeaderMap, HeaderValue, header},
    response::Response,
};
use futures::{Stream, StreamExt};

use super::Error;
use crate::actions::FieldFault;

pub const MEDIA_TYPE: &str = "text/event-stream";

/// A stream that lasts until the client goes or the program stops. Counted among those who follow.
pub fn response(messages: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            metrics::gauge!("trainyard_tails").decrement(1.0);
        }
    }
    metrics::gauge!("trainyard_tails").increment(1.0);
    let counted = Counted;
    let body = messages.map(move |bytes| {
        let _held_until_the_stream_ends = &counted;
        Ok::<_, Infallible>(bytes)
    });
    // Without a first byte some clients wait for the head to be flushed.
    let opening = futures::stream::once(async { Ok(Bytes::from_static(b": open\n\n")) });
    let mut response = Response::new(Body::from_stream(opening.chain(body)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// Whether the client wants a live stream instead of a page.
pub fn wanted(headers: &HeaderMap) -> bool {
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or_default();
    accept
        .split(',')
        .any(|part| part.split(';').next().unwrap_or_default().trim() == MEDIA_TYPE)
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
