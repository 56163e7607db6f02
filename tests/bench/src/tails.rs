//! Live output: one process prints a hundred lines a second, each with its number and the time; so many readers follow.
//! A line's delay is from the print to the bytes' arrival here, through file, worker, Postgres, server and socket.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http_body_util::BodyExt;
use memchr::memmem;
use tokio::{
    sync::{oneshot, watch},
    task::JoinSet,
};

use crate::{
    Fault, Run,
    cpu::{self, Group},
    ground::{Ground, Server},
    load::{self, Shot},
    logs,
};

#[derive(Debug, Clone)]
pub struct Tails {
    pub readers: usize,
    pub lines: u64,
    /// Milliseconds.
    pub p50: f64,
    pub p99: f64,
    pub most: f64,
    /// Numbers that a reader did not see between its first and its last one, over all readers.
    pub lost: u64,
    /// Readers that saw nothing, or whose stream ended before its time.
    pub broken: u64,
    pub kib: u64,
    /// Share of one processor, of the program with its worker.
    pub processor: f64,
}

pub async fn measure(run: &Run, ground: &Ground, up: &Server, readers: usize) -> Result<Tails, Fault> {
    let lasting = Duration::from_secs(if run.quick { 5 } else { 15 });
    // The job outlasts the readers, who may take some seconds to arrive.
    let script = format!(
        "import time\nnext = time.time()\nfor i in range({}):\n    print(f'n={{i:08}} t={{time.time_ns()}}.', flush=True)\n    next += 0.01\n    time.sleep(max(0, next - time.time()))\n",
        (lasting.as_secs() + 45) * 100
    );
    let job = logs::submit(ground, up, &format!("tail-{readers}"), &script).await?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while !sqlx::query_scalar("select exists (select from log_streams where job_id = $1 and lines > 0)")
        .bind(job.0)
        .fetch_one(&ground.pool)
        .await?
    {
        if tokio::time::Instant::now() > deadline {
            return Err(Fault::Said(
                "the job that prints a hundred lines a second printed none".into(),
            ));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let mut following = JoinSet::new();
    let shot = |reader: usize| {
        let token = &ground.tokens[reader % ground.tokens.len()];
        Shot::get(format!("/api/v1/jobs/{job}/logs/follow?tail=0&stream=stdout")).with(token)
    };
    // They read from the moment when they come, and are judged from the moment when all have seen their first line.
    let (begin, began) = watch::channel(None);
    let mut arriving = JoinSet::new();
    for reader in 0..readers {
        let (address, shot) = (up.address, shot(reader));
        let (came, comes) = oneshot::channel();
        let began = began.clone();
        following.spawn(async move {
            loop {
                let mut sender = load::connect(address).await?;
                let response = sender.send_request(shot.request("text/event-stream")?).await?;
                // Too many at the door at once: they are told when to come back.
                if response.status() != hyper::StatusCode::SERVICE_UNAVAILABLE {
                    return follow(response, came, began).await;
                }
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        arriving.spawn(comes);
    }
    arriving.join_all().await;
    begin.send_replace(Some(tokio::time::Instant::now() + lasting));
    let (group, before) = (Group::One(up.pid()), cpu::used(Group::One(up.pid())));
    let mut seen = Seen::default();
    let (mut broken, mut kib) = (0, 0);
    while let Some(one) = following.join_next().await {
        kib = kib.max(cpu::memory(up.pid()).0);
        match one.map_err(|error| Fault::Said(error.to_string()))? {
            Ok(one) if !one.micros.is_empty() && !one.ended => seen.add(one),
            Ok(_) | Err(_) => broken += 1,
        }
    }
    let used = cpu::used(group).saturating_sub(before);
    let cancel = Shot {
        method: "POST",
        ..Shot::get(format!("/api/v1/jobs/{job}/cancel")).with(&ground.tokens[0])
    };
    load::once(up.address, &cancel).await?;
    seen.micros.sort_unstable();
    let quantile = |share: f64| {
        let at = (seen.micros.len().saturating_sub(1) as f64 * share).round() as usize;
        seen.micros
            .get(at)
            .map_or(f64::NAN, |micros| f64::from(*micros) / 1000.0)
    };
    Ok(Tails {
        readers,
        lines: seen.micros.len() as u64,
        p50: quantile(0.5),
        p99: quantile(0.99),
        most: quantile(1.0),
        lost: seen.lost,
        broken,
        kib,
        processor: used.as_secs_f64() / lasting.as_secs_f64(),
    })
}

/// What one reader saw.
#[derive(Default)]
struct Seen {
    /// What was printed before this reader came, in nanoseconds since 1970, is no measure of delay.
    since: u128,
    micros: Vec<u32>,
    last: Option<u64>,
    lost: u64,
    ended: bool,
}

impl Seen {
    fn add(&mut self, other: Seen) {
        self.micros.extend(other.micros);
        self.lost += other.lost;
    }

    /// Every line in a piece of the stream. A line that is cut in two is left for the next piece.
    fn take(&mut self, piece: &[u8]) -> usize {
        let now = nanoseconds();
        let mut end = 0;
        for at in memmem::find_iter(piece, b"n=") {
            let Some(stop) = memchr::memchr(b'.', &piece[at..]) else {
                break;
            };
            let Some((number, time)) = parse(&piece[at..at + stop]) else {
                continue;
            };
            end = at + stop;
            if let Some(last) = self.last {
                self.lost += number.saturating_sub(last + 1);
            }
            if time >= self.since {
                let micros = now.saturating_sub(time) / 1000;
                self.micros.push(u32::try_from(micros).unwrap_or(u32::MAX));
            }
            self.last = Some(number);
        }
        end
    }
}

fn nanoseconds() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_nanos()
}

/// `n=00000012 t=1700000000000000000`
fn parse(line: &[u8]) -> Option<(u64, u128)> {
    let text = std::str::from_utf8(line).ok()?;
    let (number, time) = text.strip_prefix("n=")?.split_once(" t=")?;
    Some((number.parse().ok()?, time.parse().ok()?))
}

/// Reads until the time that `began` tells, and judges what is printed from when it is told.
async fn follow(
    response: hyper::Response<hyper::body::Incoming>,
    came: oneshot::Sender<()>,
    mut began: watch::Receiver<Option<tokio::time::Instant>>,
) -> Result<Seen, Fault> {
    let mut came = Some(came);
    let mut seen = Seen {
        since: u128::MAX,
        ..Seen::default()
    };
    let mut rest: Vec<u8> = Vec::new();
    let mut body = response.into_body();
    loop {
        let until = *began.borrow();
        if until.is_some() && seen.since == u128::MAX {
            seen.since = nanoseconds();
        }
        let frame = tokio::select! {
            frame = body.frame() => frame,
            _ = began.changed(), if until.is_none() => continue,
            () = tokio::time::sleep_until(until.unwrap_or_else(tokio::time::Instant::now)), if until.is_some() => break,
        };
        let Some(frame) = frame else {
            seen.ended = true;
            break;
        };
        if let Ok(data) = frame?.into_data() {
            rest.extend_from_slice(&data);
            let taken = seen.take(&rest);
            rest.drain(..taken);
            if seen.last.is_some() {
                // Nobody waits for it any more when another one broke.
                came.take().map(|came| came.send(()));
            }
        }
    }
    Ok(seen)
}
