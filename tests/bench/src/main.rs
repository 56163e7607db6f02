//! `./bench`: Trainyard against a bare axum + sqlx server that writes and reads the same rows of the same database.
//!
//! Both run at once on one machine and are asked in turn in short rounds, so that whatever else the machine does meets
//! both. Rates depend on the machine; the ratio, and processor time per request, carry over.
//!
//! Deliberately absent: assertions. A benchmark tells; tests judge.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand};

mod baseline;
mod cpu;
mod ground;
mod load;
mod logs;
mod records;
mod report;
mod start;
mod tails;

#[derive(Parser)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The bare server.
    Baseline {
        #[arg(long)]
        listen: SocketAddr,
        #[arg(long, default_value_t = 16)]
        connections: u32,
    },
    /// Everything, in turn; then the table.
    Run(Run),
}

#[derive(clap::Args, Clone)]
pub struct Run {
    /// The program.
    #[arg(long)]
    trainyard: PathBuf,
    /// A folder for its data and logs.
    #[arg(long)]
    folder: PathBuf,
    /// The process that all of Postgres's are children of.
    #[arg(long)]
    postgres: u32,
    /// Short rounds, and a hundred thousand jobs instead of a million.
    #[arg(long)]
    quick: bool,
    /// Only these parts.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    Start,
    Records,
    Logs,
    Tails,
}

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("a request can't be written: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("the database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("JSON: {0}")]
    Json(#[from] serde_json::Error),
    #[error("DATABASE_URL is not set")]
    NoDatabase,
    #[error("{0}")]
    Said(String),
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Baseline { listen, connections } => baseline::serve(listen, connections).await,
        Command::Run(run) => report::all(&run).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(fault) => {
            eprintln!("bench: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn database_url() -> Result<String, Fault> {
    std::env::var("DATABASE_URL").map_err(|_| Fault::NoDatabase)
}
