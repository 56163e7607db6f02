//! Load: so many connections that are kept, each sending its next request when the last one was answered.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1::SendRequest};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, task::JoinSet};

use crate::Fault;

/// A request that can be sent again and again.
#[derive(Debug, Clone)]
pub struct Shot {
    pub method: &'static str,
    pub path: String,
    pub token: Option<String>,
    pub body: Bytes,
}

impl Shot {
    pub fn get(path: impl Into<String>) -> Self {
        Self {
            method: "GET",
            path: path.into(),
            token: None,
            body: Bytes::new(),
        }
    }

    pub fn with(mut self, token: &str) -> Self {
        self.token = Some(token.to_owned());
        self
    }

    pub fn request(&self, accept: &str) -> Result<Request<Full<Bytes>>, Fault> {
        let mut request = Request::builder()
            .method(self.method)
            .uri(&self.path)
            .header("host", "bench")
            .header("accept", accept);
        if let Some(token) = &self.token {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if !self.body.is_empty() {
            request = request.header("content-type", "application/json");
        }
        Ok(request.body(Full::new(self.body.clone()))?)
    }
}

/// What a round saw.
#[derive(Debug, Clone, Default)]
pub struct Round {
    pub good: u64,
    pub statuses: BTreeMap<u16, u64>,
    pub broken: u64,
    /// Of good answers, in microseconds, in order.
    pub micros: Vec<u32>,
    pub lasted: Duration,
}

impl Round {
    pub fn rate(&self) -> f64 {
        self.good as f64 / self.lasted.as_secs_f64().max(1e-9)
    }

    /// In milliseconds.
    pub fn quantile(&self, share: f64) -> f64 {
        let last = self.micros.len().saturating_sub(1);
        let at = (last as f64 * share).round() as usize;
        self.micros
            .get(at)
            .map_or(f64::NAN, |micros| f64::from(*micros) / 1000.0)
    }
}

/// Fires shots over `connections` for as long as said, taking them in turn.
pub async fn fire(
    address: SocketAddr,
    shots: Arc<Vec<Shot>>,
    connections: usize,
    lasting: Duration,
) -> Result<Round, Fault> {
    let turn = Arc::new(AtomicU64::new(0));
    let mut senders = Vec::with_capacity(connections);
    for _ in 0..connections {
        senders.push(connect(address).await?);
    }
    let begun = Instant::now();
    let until = begun + lasting;
    let mut shooters = JoinSet::new();
    for sender in senders {
        shooters.spawn(shoot(address, sender, shots.clone(), turn.clone(), until));
    }
    let mut round = Round::default();
    while let Some(one) = shooters.join_next().await {
        let one = one.map_err(|error| Fault::Said(error.to_string()))??;
        round.good += one.good;
        round.broken += one.broken;
        round.micros.extend(one.micros);
        for (status, count) in one.statuses {
            *round.statuses.entry(status).or_default() += count;
        }
    }
    round.lasted = begun.elapsed();
    round.micros.sort_unstable();
    Ok(round)
}

async fn shoot(
    address: SocketAddr,
    mut sender: SendRequest<Full<Bytes>>,
    shots: Arc<Vec<Shot>>,
    turn: Arc<AtomicU64>,
    until: Instant,
) -> Result<Round, Fault> {
    let mut round = Round::default();
    while Instant::now() < until {
        let at = turn.fetch_add(1, Ordering::Relaxed) as usize % shots.len();
        let request = shots[at].request("application/json")?;
        let begun = Instant::now();
        match answer(&mut sender, request).await {
            Ok((status, _)) => {
                *round.statuses.entry(status).or_default() += 1;
                if (200..300).contains(&status) {
                    round.good += 1;
                    let micros = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
                    round.micros.push(micros);
                }
            }
            Err(_) => {
                round.broken += 1;
                sender = connect(address).await?;
            }
        }
    }
    Ok(round)
}

/// One request on a connection of its own.
pub async fn once(address: SocketAddr, shot: &Shot) -> Result<(u16, Bytes), Fault> {
    let mut sender = connect(address).await?;
    answer(&mut sender, shot.request("application/json")?).await
}

pub async fn connect(address: SocketAddr) -> Result<SendRequest<Full<Bytes>>, Fault> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // Its end is seen by the next request.
    tokio::spawn(connection);
    Ok(sender)
}

async fn answer(sender: &mut SendRequest<Full<Bytes>>, request: Request<Full<Bytes>>) -> Result<(u16, Bytes), Fault> {
    sender.ready().await?;
    let response = sender.send_request(request).await?;
    let status = response.status().as_u16();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}
