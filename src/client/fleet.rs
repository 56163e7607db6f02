//! Clusters and nodes, and the way into the pages.

use chrono::{DateTime, Utc};
use clap::Args;
use reqwest::Method;
use serde_json::Value;
use trainyard_core::{model::NodeId, plan::words};

use super::{
    Done, answer,
    http::{ClientError, Server},
    jobs::pages,
    table::{Align, Table},
};
use crate::config::{ClientArgs, Output};

#[derive(Debug, Args)]
pub struct NodesArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// Only nodes of this cluster
    #[arg(long)]
    pub cluster: Option<String>,
    /// At most so many
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pub limit: u32,
}

#[derive(Debug, Args)]
pub struct GoneArgs {
    #[command(flatten)]
    pub client: ClientArgs,
    /// The node's id, or a name that only one node has
    pub node: String,
}

#[derive(Debug, Args)]
pub struct ClustersArgs {
    #[command(flatten)]
    pub client: ClientArgs,
}

#[derive(Debug, Args)]
pub struct OpenArgs {
    #[command(flatten)]
    pub client: ClientArgs,
}

pub async fn nodes(server: &Server, args: &NodesArgs, output: Output) -> Result<Done, ClientError> {
    let filter: Vec<(&str, String)> = args
        .cluster
        .iter()
        .map(|cluster| ("cluster", cluster.clone()))
        .collect();
    let nodes = pages(server, "/nodes", &filter, args.limit as usize).await?;
    let now = Utc::now();
    let mut table = Table::new(&[
        ("STATE", Align::Left),
        ("NAME", Align::Left),
        ("CLUSTER", Align::Left),
        ("CORES", Align::Right),
        ("MEMORY", Align::Right),
        ("GPUS", Align::Right),
        ("SEEN", Align::Left),
        ("ID", Align::Left),
    ]);
    for node in &nodes {
        let text = |name: &str| node[name].as_str().unwrap_or_default().to_owned();
        let amount = |name: &str| node["allocatable"][name].as_u64();
        let critical = node["critical"].as_i64().unwrap_or(0);
        let state = match (node["phase"].as_str(), node["troubles"].as_i64()) {
            (Some("ready"), Some(0) | None) => "Ready".to_owned(),
            (Some("ready"), Some(_)) if critical > 0 => format!("Ready, but {} critical", words::count(critical)),
            (Some("ready"), Some(troubles)) => format!("Ready, {}", words::counted(troubles.unsigned_abs(), "warning")),
            (Some("not_ready"), _) => format!("Not ready: {}", text("message")),
            (phase, _) => phase.unwrap_or_default().to_owned(),
        };
        let state = if node["stale_since"].is_null() {
            state
        } else {
            format!("{state} (when last seen)")
        };
        table.row([
            state,
            text("name"),
            node["cluster"]["name"].as_str().unwrap_or_default().to_owned(),
            amount("cpu_milli")
                .map(|milli| (milli as f64 / 1000.0).to_string())
                .unwrap_or_default(),
            amount("memory_bytes").map(words::bytes).unwrap_or_default(),
            amount("gpus").map(|gpus| gpus.to_string()).unwrap_or_default(),
            moment(&node["observed_at"])
                .map(|at| words::relative(at, now))
                .unwrap_or_default(),
            text("id"),
        ]);
    }
    answer(output, &Value::Array(nodes), || match table.is_empty() {
        true => "No nodes yet. A cluster's nodes are listed as soon as a worker has looked at it.\n".to_owned(),
        false => table.to_string(),
    })?;
    Ok(Done::Well)
}

pub async fn gone(server: &Server, args: &GoneArgs, output: Output) -> Result<Done, ClientError> {
    let id = find(server, &args.node).await?;
    let node = server
        .json(server.request(Method::POST, &format!("/nodes/{id}/gone")))
        .await?;
    answer(output, &node, || {
        format!(
            "{} is gone. What lived there is lost, and goes on elsewhere where its restart policy says so.\n",
            node["name"].as_str().unwrap_or_default()
        )
    })?;
    Ok(Done::Well)
}

/// The node's id from what was typed: an id, or the name of exactly one node.
async fn find(server: &Server, typed: &str) -> Result<String, ClientError> {
    if typed.parse::<NodeId>().is_ok() {
        return Ok(typed.to_owned());
    }
    let nodes = pages(server, "/nodes", &[], 10_000).await?;
    let ids: Vec<&str> = nodes
        .iter()
        .filter(|node| node["name"] == typed)
        .filter_map(|node| node["id"].as_str())
        .collect();
    match ids.as_slice() {
        [only] => Ok((*only).to_owned()),
        [] => Err(ClientError::NoSuchNode(typed.to_owned())),
        several => Err(ClientError::Usage(format!(
            "several nodes are named {typed}: {}",
            several.join(", ")
        ))),
    }
}

pub async fn clusters(server: &Server, _: &ClustersArgs, output: Output) -> Result<Done, ClientError> {
    let clusters = pages(server, "/clusters", &[], 1_000).await?;
    let now = Utc::now();
    let mut table = Table::new(&[
        ("STATE", Align::Left),
        ("NAME", Align::Left),
        ("PROVIDER", Align::Left),
        ("NODES READY", Align::Right),
        ("ACTIVE", Align::Right),
        ("QUEUED", Align::Right),
        ("SEEN", Align::Left),
        ("ID", Align::Left),
    ]);
    for cluster in &clusters {
        let text = |name: &str| cluster[name].as_str().unwrap_or_default().to_owned();
        let state = if cluster["stale_since"].is_null() {
            text("phase")
        } else {
            format!("{}, not looked after", text("phase"))
        };
        table.row([
            state,
            text("name"),
            text("provider"),
            format!("{} of {}", cluster["nodes_ready"], cluster["nodes"]),
            cluster["jobs_active"].to_string(),
            cluster["jobs_queued"].to_string(),
            moment(&cluster["observed_at"]).map_or_else(|| "never".to_owned(), |at| words::relative(at, now)),
            text("id"),
        ]);
    }
    answer(output, &Value::Array(clusters), || match table.is_empty() {
        true => "No cluster that you may use. `trainyard up` makes one of this machine.\n".to_owned(),
        false => table.to_string(),
    })?;
    Ok(Done::Well)
}

fn moment(value: &Value) -> Option<DateTime<Utc>> {
    value.as_str().and_then(|at| at.parse().ok())
}

pub async fn open(server: &Server, output: Output) -> Result<Done, ClientError> {
    let me = server.get("/me", &[]).await?;
    let user = me["id"].as_str().unwrap_or_default();
    let link = server
        .json(server.request(Method::POST, &format!("/users/{user}/sign-in-link")))
        .await?;
    answer(output, &link, || match link["url"].as_str() {
        Some(url) => format!("{url}\nIt signs you in once, within 15 minutes.\n"),
        None => "The server gave no link.\n".to_owned(),
    })?;
    Ok(Done::Well)
}
