//! The first start's three example jobs, so that logs, a post-mortem and a "why" are one click away; and the first one's
//! progress, live in the terminal. They are submitted through the public API, as a person would.

use std::{
    io::{IsTerminal, Write},
    time::Duration,
};

use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    client::http::{ClientError, Server},
    config::{ClientArgs, Config, Environment, Output},
    db::Db,
};

/// (name, document): one that trains, one whose rank fails, one that asks for more than the machine has.
const EXAMPLES: [(&str, &str); 3] = [
    ("train", include_str!("../examples/train/job.yaml")),
    ("fails", include_str!("../examples/fails/job.yaml")),
    ("too-big", include_str!("../examples/too-big/job.yaml")),
];

/// Submits the examples on a first start, prints what this machine offers, and follows the first job.
pub async fn show(config: Config, db: Db, first: bool, stop: CancellationToken) {
    if !first {
        return;
    }
    let told = stop.run_until_cancelled(tell(&config)).await;
    if let Some(Err(error)) = told {
        eprintln!("The example jobs could not be shown: {}", error.in_words());
    }
    drop(db);
}

async fn tell(config: &Config) -> Result<(), ClientError> {
    let client = ClientArgs {
        server: Some(config.public_url.clone()),
        token: None,
        output: Output::Table,
    };
    let server = Server::new(client.resolve(&Environment::read()).map_err(ClientError::Config)?)?;
    if let Some(offer) = offered(&server).await? {
        println!("{offer}\n");
    }
    let mut first = None;
    println!("Submitting three example jobs:");
    for (name, document) in EXAMPLES {
        let request = server
            .request(reqwest::Method::POST, "/jobs")
            .header(reqwest::header::CONTENT_TYPE, "application/yaml")
            .header("Idempotency-Key", format!("first-start-{name}"))
            .body(document);
        let job = server.json(request).await?;
        let id = job["id"].as_str().unwrap_or_default().to_owned();
        println!("  {name:<8} {}/jobs/{id}", config.public_url);
        first.get_or_insert(id);
    }
    let Some(first) = first else { return Ok(()) };
    println!();
    follow(&server, &first).await?;
    println!("\nNext:");
    println!("  trainyard logs {first}        every line of both replicas");
    println!("  trainyard why too-big         why that one waits");
    println!("  trainyard submit -f examples/pytorch/job.yaml   real distributed PyTorch, if it is installed\n");
    Ok(())
}

/// What this machine has for jobs. Its worker looks at it a moment after the server is there.
async fn offered(server: &Server) -> Result<Option<String>, ClientError> {
    let mut nodes = Value::Null;
    for _ in 0..20 {
        let request = server.request(reqwest::Method::GET, "/nodes?limit=1");
        nodes = server.json(request).await?;
        if nodes["items"][0].is_object() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
    let node = &nodes["items"][0];
    let number = |name: &str| node["allocatable"][name].as_u64();
    let (Some(cpu), Some(memory), Some(gpus)) = (number("cpu_milli"), number("memory_bytes"), number("gpus")) else {
        return Ok(None);
    };
    Ok(Some(format!(
        "This machine offers {} cores, {:.1} GiB of memory and {gpus} GPUs. What it lacks: trainyard doctor",
        cpu as f64 / 1000.0,
        memory as f64 / f64::from(1 << 30),
    )))
}

/// One line that is written over while the job goes on; where no terminal is, a line for each new sentence.
async fn follow(server: &Server, job: &str) -> Result<(), ClientError> {
    let terminal = std::io::stdout().is_terminal();
    let mut last = String::new();
    loop {
        let view = server
            .json(server.request(reqwest::Method::GET, &format!("/jobs/{job}")))
            .await?;
        let mut sentence = view["sentence"]
            .as_str()
            .or_else(|| view["message"].as_str())
            .unwrap_or_default()
            .to_owned();
        if terminal && let (Some(step), Some(total)) = (view["step"].as_u64(), view["total_steps"].as_u64()) {
            sentence = format!("{sentence} Step {step} of {total}.");
        }
        if sentence != last {
            match terminal {
                true => print!("\r\x1b[K  train: {sentence}"),
                false => println!("  train: {sentence}"),
            }
            // A terminal that went away is no reason to stop serving.
            let _ = std::io::stdout().flush();
            last = sentence;
        }
        if is_over(&view) {
            if terminal {
                println!();
            }
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn is_over(view: &Value) -> bool {
    matches!(view["phase"].as_str(), Some("succeeded" | "failed" | "cancelled"))
}
