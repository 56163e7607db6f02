//! What the program tells about itself: log lines on stderr, and figures on `/metrics`.
//!
//! Fields have one name everywhere: `job`, `attempt`, `cluster`, `node`, `task`, `request`, `error`. Metrics begin with
//! `trainyard_`, carry their unit, and are listed in [`METRICS`]; labels come from closed sets, never from people.

use std::{io::IsTerminal, net::SocketAddr, time::Duration};

use axum::{Router, extract::State, http::header, routing::get};
use metrics_exporter_prometheus::{BuildError, PrometheusBuilder, PrometheusHandle};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::{EnvFilter, filter::ParseError};

use crate::config::LogFormat;

#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    #[error("--log (TRAINYARD_LOG) is '{value}': {source}. It looks like \"info\" or \"info,trainyard::worker=debug\"")]
    Filter { value: String, source: ParseError },
    #[error("log lines or figures were set up twice in this process")]
    Twice,
    #[error("figures can't be set up: {0}")]
    Metrics(#[from] BuildError),
    #[error(
        "{address} is taken, so figures can't be served there: {source}. Choose another address in TRAINYARD_METRICS_LISTEN"
    )]
    Listen {
        address: SocketAddr,
        source: std::io::Error,
    },
}

/// Log lines go to stderr: for people on a terminal, as JSON to a collector.
pub fn start_logs(filter: &str, format: LogFormat) -> Result<(), TelemetryError> {
    let parsed = EnvFilter::try_new(filter).map_err(|source| TelemetryError::Filter {
        value: filter.to_owned(),
        source,
    })?;
    let terminal = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr)
        .with_ansi(terminal);
    let started = match format {
        LogFormat::Human => lines.try_init(),
        LogFormat::Auto if terminal => lines.try_init(),
        LogFormat::Auto | LogFormat::Json => lines.json().flatten_event(true).try_init(),
    };
    started.map_err(|_| TelemetryError::Twice)
}

/// Every metric, its kind and its meaning.
pub const METRICS: [(&str, Kind, &str); 11] = [
    (
        "trainyard_http_request_seconds",
        Kind::Seconds,
        "Time from request to response, by route, method and status",
    ),
    (
        "trainyard_http_refused_total",
        Kind::Counter,
        "Requests refused early, by reason: rate, size, overload, live",
    ),
    ("trainyard_tails", Kind::Gauge, "Clients that follow logs or events now"),
    (
        "trainyard_database_connections",
        Kind::Gauge,
        "Connections of the pool, by state: idle, used",
    ),
    (
        "trainyard_database_wait_seconds",
        Kind::Seconds,
        "Time spent waiting for a connection of the pool",
    ),
    (
        "trainyard_tasks_waiting",
        Kind::Gauge,
        "Tasks that are due and not claimed, by task",
    ),
    (
        "trainyard_task_age_seconds",
        Kind::Gauge,
        "How long the oldest due task has waited, by task",
    ),
    (
        "trainyard_task_seconds",
        Kind::Seconds,
        "Time that a task took, by task and outcome",
    ),
    ("trainyard_log_bytes_total", Kind::Counter, "Bytes of output stored"),
    (
        "trainyard_log_lag_seconds",
        Kind::Gauge,
        "Age of the oldest output that is not stored yet",
    ),
    (
        "trainyard_watch_stale_seconds",
        Kind::Gauge,
        "How long ago a cluster was last heard from, by cluster",
    ),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    /// A histogram of durations.
    Seconds,
}

const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0,
];

/// From here on the `metrics` macros count. Once per process.
pub fn start_metrics() -> Result<PrometheusHandle, TelemetryError> {
    let recorder = PrometheusBuilder::new().set_buckets(&BUCKETS)?.build_recorder();
    let handle = recorder.handle();
    metrics::set_global_recorder(recorder).map_err(|_| TelemetryError::Twice)?;
    for (name, kind, meaning) in METRICS {
        match kind {
            Kind::Counter => metrics::describe_counter!(name, meaning),
            Kind::Gauge => metrics::describe_gauge!(name, meaning),
            Kind::Seconds => metrics::describe_histogram!(name, metrics::Unit::Seconds, meaning),
        }
    }
    Ok(handle)
}

/// Takes the address for figures; a port of its own, so that a proxy in front of the pages never shows them.
pub async fn listen_metrics(address: SocketAddr) -> Result<TcpListener, TelemetryError> {
    TcpListener::bind(address)
        .await
        .map_err(|source| TelemetryError::Listen { address, source })
}

/// Serves `/metrics` until told to stop.
pub async fn serve_metrics(listener: TcpListener, handle: PrometheusHandle, stop: CancellationToken) {
    let upkeep = async {
        let mut every = tokio::time::interval(Duration::from_secs(5));
        loop {
            every.tick().await;
            // Moves what histograms gathered into their buckets, which would grow without bound otherwise.
            handle.run_upkeep();
        }
    };
    let router = metrics_router(handle.clone());
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone().cancelled_owned());
    tokio::select! {
        result = serving => if let Err(error) = result {
            tracing::error!(%error, "figures are no longer served");
        },
        () = upkeep => {}
    }
}

fn metrics_router(handle: PrometheusHandle) -> Router {
    async fn metrics(State(handle): State<PrometheusHandle>) -> impl axum::response::IntoResponse {
        (
            [(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
            handle.render(),
        )
    }
    Router::new().route("/metrics", get(metrics)).with_state(handle)
}
