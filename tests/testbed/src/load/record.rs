//! Records a list and the watch that follows it, and replays both without an API server: the same bytes every time, at any pace.
//!
//! A recording is JSON lines: the list first, then `{"at": milliseconds, "event": ...}`.

use crate::error::{Doing, Error, Result, refused};
use futures::{AsyncBufReadExt, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use kube::Client;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::convert::Infallible;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

/// Kept as the API server wrote them: a list of 50,000 pods is 150 MB of text, and would be gigabytes as values.
pub struct Recording {
    list: Box<RawValue>,
    events: Vec<Recorded>,
}

#[derive(Serialize, Deserialize)]
struct Recorded {
    at: u64,
    event: Box<RawValue>,
}

impl Recording {
    /// Lists `path` (e.g. `/api/v1/pods`), then watches until there were `count` changes or `end` comes. `ready` is called between the two,
    /// when whatever happens next will be in the recording.
    pub async fn take(
        client: &Client,
        path: &str,
        count: usize,
        end: impl Future<Output = ()>,
        ready: impl FnOnce(),
    ) -> Result<Recording> {
        let list = client.request_text(get(path)?).await;
        let list =
            RawValue::from_string(list.doing(format!("cannot list {path}"))?).map_err(|e| refused("a list")(&e))?;
        let versioned = head::<Versioned>(&list);
        let versioned = versioned.map_err(|_| Error::Refused(format!("{path} is no list that can be watched")))?;
        let mut version = versioned.metadata.resource_version;
        let join = if path.contains('?') { '&' } else { '?' };
        let (mut events, mut changes, mut ready) = (Vec::new(), 0, Some(ready));
        let started = Instant::now();
        let mut end = pin!(end);
        'watching: while changes < count {
            // An API server ends a watch whose client is slow, and after some minutes any; the next goes on where it ended.
            let watch = format!("{path}{join}watch=1&allowWatchBookmarks=true&resourceVersion={version}");
            let opened = client.request_stream(get(&watch)?).await;
            let mut lines = opened.doing(format!("cannot watch {path}"))?.lines();
            if let Some(ready) = ready.take() {
                ready();
            }
            while changes < count {
                let line = tokio::select! {
                    line = lines.next() => line,
                    () = &mut end => break 'watching,
                };
                let Some(line) = line else { break };
                let event = RawValue::from_string(line.doing("a watch broke")?).map_err(|e| refused("an event")(&e))?;
                let head: Head = head(&event)?;
                if head.kind == "ERROR" {
                    return Err(Error::Refused(format!("the watch of {path} was refused: {event}")));
                }
                changes += usize::from(head.kind != "BOOKMARK");
                version = head.object.metadata.resource_version;
                let at = started.elapsed().as_millis() as u64;
                events.push(Recorded { at, event });
            }
        }
        Ok(Recording { list, events })
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn save(&self, to: &Path) -> Result<()> {
        let mut text = format!("{}\n", self.list);
        for event in &self.events {
            text += &serde_json::to_string(event).map_err(|e| Error::Refused(e.to_string()))?;
            text.push('\n');
        }
        crate::layout::write(to, text)
    }

    pub fn load(from: &Path) -> Result<Recording> {
        let text = std::fs::read_to_string(from).doing(format!("cannot read {}", from.display()))?;
        let no_recording = format!("{} is no recording of `watch record`", from.display());
        let mut lines = text.lines();
        let list = serde_json::from_str(lines.next().unwrap_or_default()).map_err(|e| refused(&no_recording)(&e))?;
        let events: std::result::Result<_, _> = lines.map(serde_json::from_str).collect();
        Ok(Recording {
            list,
            events: events.map_err(|e| refused(&no_recording)(&e))?,
        })
    }

    /// Serves it on loopback: lists answer the recorded list, watches the events that come after their resource version. `pace` 1 is
    /// the time it took, 2 twice as fast, 0 without waiting.
    pub async fn replay(self, pace: f64) -> Result<Replay> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .doing("cannot listen for a replay")?;
        let url = format!("http://{}", listener.local_addr().doing("cannot tell a port")?);
        let recording = Arc::new(self);
        let server = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let recording = recording.clone();
                connections.spawn(async move {
                    let service = service_fn(|request| answer(request, recording.clone(), pace));
                    // A client that leaves in the middle of a watch is what clients do.
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        Ok(Replay { url, server })
    }
}

/// Serves until it is dropped.
pub struct Replay {
    pub url: String,
    server: tokio::task::JoinHandle<()>,
}

impl Replay {
    pub fn client(&self) -> Result<Client> {
        let mut config = kube::Config::new(self.url.parse().map_err(|e| refused("a replay's address")(&e))?);
        config.proxy_url = None;
        Client::try_from(config).doing("cannot make a client")
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn get(path: &str) -> Result<Request<Vec<u8>>> {
    if !path.starts_with('/') {
        return Err(Error::Refused(format!(
            "{path}: a path starts with a slash, e.g. /api/v1/pods"
        )));
    }
    Request::get(path).body(Vec::new()).map_err(|e| refused("a path")(&e))
}

type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

async fn answer(
    request: Request<Incoming>,
    recording: Arc<Recording>,
    pace: f64,
) -> std::result::Result<Answer, Infallible> {
    let query = request.uri().query().unwrap_or_default();
    let value = |name: &str| {
        query
            .split('&')
            .find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))
    };
    let body = if matches!(value("watch"), Some("1" | "true")) {
        let after = value("resourceVersion").and_then(|v| v.parse().ok()).unwrap_or(0);
        watch(recording, after, pace)
    } else {
        Full::new(Bytes::from(recording.list.get().to_string())).boxed_unsync()
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    Ok(response)
}

/// The events after a version, each at its time; then the stream stays open, as a real watch on a quiet cluster does.
fn watch(recording: Arc<Recording>, after: u64, pace: f64) -> UnsyncBoxBody<Bytes, Infallible> {
    let started = Instant::now();
    let first = recording
        .events
        .iter()
        .position(|e| head::<Head>(&e.event).is_ok_and(|head| head.version() > after))
        .unwrap_or(recording.events.len());
    let offset = recording.events.get(first).map_or(0, |e| e.at);
    let frames = futures::stream::iter(first..recording.events.len()).then(move |index| {
        let recorded = &recording.events[index];
        let line = Bytes::from(format!("{}\n", recorded.event));
        let due = if pace > 0.0 {
            Duration::from_millis(((recorded.at - offset) as f64 / pace) as u64)
        } else {
            Duration::ZERO
        };
        async move {
            tokio::time::sleep(due.saturating_sub(started.elapsed())).await;
            Ok::<_, Infallible>(Frame::data(line))
        }
    });
    BodyExt::boxed_unsync(StreamBody::new(frames.chain(futures::stream::pending())))
}

/// What of an event has to be understood; the rest is passed on as it is.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: String,
    object: Versioned,
}

impl Head {
    fn version(&self) -> u64 {
        self.object.metadata.resource_version.parse().unwrap_or(0)
    }
}

#[derive(Deserialize)]
struct Versioned {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "resourceVersion", default)]
    resource_version: String,
}

fn head<T: for<'a> Deserialize<'a>>(document: &RawValue) -> Result<T> {
    serde_json::from_str(document.get()).map_err(|e| refused("what was watched")(&e))
}
