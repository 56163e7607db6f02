//! A proxy in front of the API server that delays, cuts, and answers errors in its place, before the request got through or after.
//! It listens on loopback without TLS. Requests that carry a token pass it on; others are made as an administrator.

use crate::certs;
use crate::cluster::{Testbed, config_of};
use crate::error::{Doing, Result, refused};
use futures::{StreamExt, TryStreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::TcpListener;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Waits before passing the request on.
    Delay(Duration),
    /// Closes the connection without an answer and without passing the request on.
    Cut,
    /// Passes on, and closes the connection after so many bytes of the answer's body; the way a watch breaks.
    CutAfter(usize),
    /// Answers this code; the API server never sees the request.
    AnswerBefore(u16),
    /// Passes the request on, throws the real answer away, and answers this code: the write happened, and nobody was told.
    AnswerAfter(u16),
}

/// Which requests a fault meets, and how often.
#[derive(Clone, Debug)]
pub struct Rule {
    /// `None` is every method.
    pub method: Option<String>,
    /// Part of path and query.
    pub path: String,
    pub fault: Fault,
    /// How many requests it still meets; `None` is all of them.
    pub times: Option<u32>,
}

impl Rule {
    pub fn new(method: &str, path: &str, fault: Fault) -> Rule {
        let method = (!method.is_empty()).then(|| method.to_uppercase());
        Rule {
            method,
            path: path.into(),
            fault,
            times: None,
        }
    }

    pub fn times(mut self, times: u32) -> Rule {
        self.times = Some(times);
        self
    }
}

/// Runs until it is dropped.
pub struct FaultProxy {
    pub url: String,
    inner: Arc<Inner>,
    server: tokio::task::JoinHandle<()>,
}

struct Inner {
    admin: Client,
    /// A client without a certificate of its own, for requests that bring a token.
    plain: Client,
    rules: Mutex<Vec<Rule>>,
    log: Mutex<Vec<(String, Option<Fault>)>>,
}

impl FaultProxy {
    pub async fn start(testbed: &Testbed) -> Result<FaultProxy> {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .doing("cannot listen for a proxy")?;
        let url = format!("http://{}", listener.local_addr().doing("cannot tell a port")?);
        let layout = testbed.layout;
        let admin = certs::kubeconfig(layout, "admin", &layout.api_url())?;
        let plain = certs::kubeconfig_with_token(layout, &layout.api_url(), "")?;
        let (admin, plain) = (once(&admin).await?, once(&plain).await?);
        let inner = Arc::new(Inner {
            admin,
            plain,
            rules: Mutex::default(),
            log: Mutex::default(),
        });
        let server = tokio::spawn(accept(listener, inner.clone()));
        Ok(FaultProxy { url, inner, server })
    }

    /// Adds a rule; the first that fits a request decides.
    pub fn add(&self, rule: Rule) {
        lock(&self.inner.rules).push(rule);
    }

    pub fn clear(&self) {
        lock(&self.inner.rules).clear();
    }

    /// Every request so far as `METHOD path`, with the fault that met it.
    pub fn log(&self) -> Vec<(String, Option<Fault>)> {
        lock(&self.inner.log).clone()
    }

    /// A kube client that goes through here and meets each fault itself.
    pub fn client(&self) -> Result<Client> {
        self.client_with(false)
    }

    /// The same as kube makes it by default: it tries again by itself after 429, 503 and 504, whatever the verb.
    pub fn retrying_client(&self) -> Result<Client> {
        self.client_with(true)
    }

    fn client_with(&self, retry: bool) -> Result<Client> {
        let mut config = kube::Config::new(self.url.parse().map_err(|e| refused("a proxy's address")(&e))?);
        config.proxy_url = None;
        config.default_retry = retry;
        Client::try_from(config).doing("cannot make a client")
    }
}

/// A client that asks once: a request that comes through twice would be the proxy's doing.
async fn once(kubeconfig: &str) -> Result<Client> {
    let mut config = config_of(kubeconfig).await?;
    config.default_retry = false;
    Client::try_from(config).doing("cannot make a client")
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.server.abort();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

async fn accept(listener: TcpListener, inner: Arc<Inner>) {
    // Connections end with the proxy: a set that is dropped aborts its tasks.
    let mut connections = tokio::task::JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let inner = inner.clone();
        connections.spawn(async move {
            let service = service_fn(|request| answer(request, inner.clone()));
            // A cut connection is an error here, and the point.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

type Answer = Response<UnsyncBoxBody<Bytes, Broken>>;

/// Why a connection ends early.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Broken(String);

async fn answer(request: Request<Incoming>, inner: Arc<Inner>) -> std::result::Result<Answer, Broken> {
    let target = request
        .uri()
        .path_and_query()
        .map(|p| p.to_string())
        .unwrap_or_default();
    let fault = inner.pick(request.method().as_str(), &target);
    lock(&inner.log).push((format!("{} {target}", request.method()), fault));
    match fault {
        Some(Fault::Cut) => return Err(Broken("cut on purpose".into())),
        Some(Fault::AnswerBefore(code)) => return Ok(status(code)),
        Some(Fault::Delay(time)) => tokio::time::sleep(time).await,
        _ => {}
    }
    let response = inner.pass(request).await?;
    Ok(match fault {
        Some(Fault::AnswerAfter(code)) => {
            // To the end, so that the write is done when the caller hears of its failure.
            let _ = response.into_body().collect().await;
            status(code)
        }
        Some(Fault::CutAfter(bytes)) => response.map(|body| cut_after(body, bytes)),
        _ => response.map(|body| body.map_err(|e| Broken(e.to_string())).boxed_unsync()),
    })
}

impl Inner {
    fn pick(&self, method: &str, target: &str) -> Option<Fault> {
        let mut rules = lock(&self.rules);
        let fits = |r: &&mut Rule| {
            r.times != Some(0) && r.method.as_deref().is_none_or(|m| m == method) && target.contains(&r.path)
        };
        let rule = rules.iter_mut().find(fits)?;
        rule.times = rule.times.map(|t| t - 1);
        Some(rule.fault)
    }

    async fn pass(&self, request: Request<Incoming>) -> std::result::Result<Response<Body>, Broken> {
        let token = request.headers().contains_key(hyper::header::AUTHORIZATION);
        let (mut head, body) = request.into_parts();
        head.headers.remove(hyper::header::HOST);
        let body = body.collect().await.map_err(|e| Broken(e.to_string()))?.to_bytes();
        let request = Request::from_parts(head, Body::from(body));
        let client = if token { &self.plain } else { &self.admin };
        client.send(request).await.map_err(|e| Broken(e.to_string()))
    }
}

fn cut_after(body: Body, bytes: usize) -> UnsyncBoxBody<Bytes, Broken> {
    let mut left = bytes;
    let frames = body
        .into_data_stream()
        .map_err(|e| Broken(e.to_string()))
        .map(move |part| {
            let part = part?;
            if left == 0 {
                return Err(Broken("cut on purpose".into()));
            }
            let part = part.slice(..part.len().min(left));
            left -= part.len();
            Ok(Frame::data(part))
        });
    BodyExt::boxed_unsync(StreamBody::new(frames))
}

/// An error as the API server would word it.
fn status(code: u16) -> Answer {
    let reason = match code {
        429 => "TooManyRequests",
        504 => "Timeout",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let body = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "the testbed's proxy says so", "reason": reason, "code": code,
    });
    let body = Full::new(Bytes::from(body.to_string()))
        .map_err(|never| match never {})
        .boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = hyper::StatusCode::from_u16(code).unwrap_or(hyper::StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(
        hyper::header::CONTENT_TYPE,
        hyper::header::HeaderValue::from_static("application/json"),
    );
    if code == 429 {
        response
            .headers_mut()
            .insert(hyper::header::RETRY_AFTER, hyper::header::HeaderValue::from_static("1"));
    }
    response
}
