//! The first start's three example jobs, so that logs, a post-mortem and a "why" are one click away; and the first one's
//! progress, live in the terminal. They are submitted through the public API, as a person would.

use std::{io::Write, time::Duration};

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
    let server = Server::new(client.resolve(&Environment::read()).map_err(ClientError::Config)?);
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

/// One line that is written over while the job goes on.
async fn follow(server: &Server, job: &str) -> Result<(), ClientError> {
    let mut last = String::new();
    loop {
        let view = server
            .json(server.request(reqwest::Method::GET, &format!("/jobs/{job}")))
            .await?;
        let sentence = view["sentence"]
            .as_str()
            .or_else(|| view["message"].as_str())
            .unwrap_or_default()
            .to_owned();
        if sentence != last {
            print!("\r\x1b[K  train: {sentence}");
            // A terminal that went away is no reason to stop serving.
            let _ = std::io::stdout().flush();
            last = sentence;
        }
        if is_over(&view) {
            println!();
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

fn is_over(view: &Value) -> bool {
    matches!(view["phase"].as_str(), Some("succeeded" | "failed" | "cancelled"))
}
