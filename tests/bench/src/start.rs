//! From the program's start to its first ready answer, and what it takes when nobody asks for anything.

use std::time::{Duration, Instant};

use crate::{
    Fault, Run,
    cpu::{self, Group},
    ground::Server,
    records::median,
};

#[derive(Debug, Clone, Copy)]
pub struct Idle {
    pub seconds_to_ready: f64,
    pub kib: u64,
    /// Share of one processor.
    pub processor: f64,
}

/// `serve` alone, as a server of many is, and `up`, with this machine's worker in the same process.
pub async fn measure(run: &Run) -> Result<(Idle, Idle), Fault> {
    Ok((idle(run, "serve").await?, idle(run, "up").await?))
}

async fn idle(run: &Run, command: &str) -> Result<Idle, Fault> {
    let (starts, quiet) = match run.quick {
        true => (3, Duration::from_secs(5)),
        false => (7, Duration::from_secs(20)),
    };
    let mut seconds = Vec::new();
    for _ in 1..starts {
        let begun = Instant::now();
        let server = Server::trainyard(run, command)?;
        server.ready("/readyz").await?;
        seconds.push(begun.elapsed().as_secs_f64());
        server.stop().await?;
    }
    let begun = Instant::now();
    let server = Server::trainyard(run, command)?;
    server.ready("/readyz").await?;
    seconds.push(begun.elapsed().as_secs_f64());
    // What starting leaves behind is not idling.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let (group, before) = (Group::One(server.pid()), cpu::used(Group::One(server.pid())));
    tokio::time::sleep(quiet).await;
    let used = cpu::used(group).saturating_sub(before);
    let (kib, _) = cpu::memory(server.pid());
    server.stop().await?;
    Ok(Idle {
        seconds_to_ready: median(seconds.into_iter()),
        kib,
        processor: used.as_secs_f64() / quiet.as_secs_f64(),
    })
}
