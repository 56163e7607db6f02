//! Stored output: a job that printed many lines, read back whole.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use trainyard_core::model::{JobId, StreamId};

use crate::{
    Fault, Run,
    cpu::{self, Group},
    ground::{Ground, Server},
    load::{self, Shot},
};

#[derive(Debug, Clone)]
pub struct Reading {
    pub how: &'static str,
    pub lines: u64,
    pub mib: f64,
    pub lines_per_second: f64,
    /// Of the server, in milliseconds of processor per million lines.
    pub server: f64,
}

/// Runs the job, waits until all that it printed is stored, and reads it in the forms that there are.
pub async fn measure(run: &Run, ground: &Ground, up: &Server) -> Result<Vec<Reading>, Fault> {
    let wanted: u64 = if run.quick { 200_000 } else { 2_000_000 };
    let script = format!(
        "import sys\nfor i in range({wanted}):\n    sys.stdout.write(f'step={{i}} loss=0.{{i % 997:03}} some words as a training loop prints\\n')\n"
    );
    let job = submit(ground, up, "lines", &script).await?;
    let begun = Instant::now();
    loop {
        let stored: Option<i64> =
            sqlx::query_scalar("select sum(lines)::bigint from log_streams where job_id = $1 and ended_at is not null")
                .bind(job.0)
                .fetch_one(&ground.pool)
                .await?;
        if stored.is_some_and(|lines| lines as u64 >= wanted) {
            break;
        }
        if begun.elapsed() > Duration::from_secs(300) {
            return Err(Fault::Said(format!(
                "{stored:?} of {wanted} lines were stored in 300 s"
            )));
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!(
        "{wanted} lines printed and stored within {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    let stream: uuid::Uuid =
        sqlx::query_scalar("select id from log_streams where job_id = $1 order by lines desc limit 1")
            .bind(job.0)
            .fetch_one(&ground.pool)
            .await?;
    let stream = StreamId(stream);
    let whole = format!("/api/v1/jobs/{job}/logs/download");
    let one = format!("{whole}?stream_id={stream}");
    let mut readings = Vec::new();
    for (how, path, accept) in [
        ("bytes of a stream", &one, "application/octet-stream"),
        ("text, all streams merged", &whole, "text/plain"),
        ("a JSON object per line", &whole, "application/x-ndjson"),
    ] {
        readings.push(
            read(
                up,
                how,
                &Shot::get(path.as_str()).with(&ground.tokens[0]),
                accept,
                wanted,
            )
            .await?,
        );
    }
    Ok(readings)
}

async fn read(up: &Server, how: &'static str, shot: &Shot, accept: &str, wanted: u64) -> Result<Reading, Fault> {
    let group = Group::One(up.pid());
    // The first time warms; the second one counts.
    let mut reading = None;
    for _ in 0..2 {
        let (begun, before) = (Instant::now(), cpu::used(group));
        let mut sender = load::connect(up.address).await?;
        let mut body = sender.send_request(shot.request(accept)?).await?.into_body();
        let (mut lines, mut bytes) = (0, 0);
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                bytes += data.len();
                lines += memchr::memchr_iter(b'\n', &data).count() as u64;
            }
        }
        if lines < wanted {
            return Err(Fault::Said(format!("{how}: {lines} of {wanted} lines came back")));
        }
        let seconds = begun.elapsed().as_secs_f64();
        let used = cpu::used(group).saturating_sub(before);
        reading = Some(Reading {
            how,
            lines,
            mib: bytes as f64 / f64::from(1 << 20),
            lines_per_second: lines as f64 / seconds,
            server: used.as_secs_f64() * 1e9 / lines as f64,
        });
    }
    reading.ok_or_else(|| Fault::Said("nothing was read".into()))
}

/// A job of one process that runs a Python script.
pub async fn submit(ground: &Ground, up: &Server, name: &str, script: &str) -> Result<JobId, Fault> {
    let document = json!({
        "apiVersion": "trainyard.dev/v1",
        "kind": "Job",
        "name": name,
        "roles": [{
            "name": "main",
            "command": ["python3", "main.py"],
            "resources": { "cpu": "100m", "memory": "64Mi" }
        }],
        "code": { "inline": { "main.py": script } }
    });
    let shot = Shot {
        method: "POST",
        body: Bytes::from(document.to_string()),
        ..Shot::get("/api/v1/jobs").with(&ground.tokens[0])
    };
    let (status, body) = load::once(up.address, &shot).await?;
    if status != 201 {
        return Err(Fault::Said(format!(
            "POST /api/v1/jobs: {status} {}",
            String::from_utf8_lossy(&body)
        )));
    }
    let job: Value = serde_json::from_slice(&body)?;
    let id = job["id"].as_str().and_then(|id| id.parse().ok());
    id.ok_or_else(|| Fault::Said("the job has no id".into()))
}
