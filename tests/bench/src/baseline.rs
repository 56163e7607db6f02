//! The bare server: one statement per request on the same tables, and nothing else. No authentication, no checking of
//! documents, no audit, no events, no tasks.

use std::net::SocketAddr;

use axum::{
    Json, Router,
    extract::{Path, State},
    http::StatusCode,
    routing::get,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::net::TcpListener;
use uuid::Uuid;

use crate::Fault;

pub async fn serve(listen: SocketAddr, connections: u32) -> Result<(), Fault> {
    let pool = PgPoolOptions::new()
        .max_connections(connections)
        .test_before_acquire(false)
        .connect(&crate::database_url()?)
        .await?;
    let (team, owner) = sqlx::query_as("select team_id, user_id from team_members order by created_at limit 1")
        .fetch_one(&pool)
        .await?;
    let app = Router::new()
        .route("/jobs", get(newest).post(create))
        .route("/jobs/{job}", get(one))
        .with_state(Bare { pool, team, owner });
    axum::serve(TcpListener::bind(listen).await?, app).await?;
    Ok(())
}

#[derive(Clone)]
struct Bare {
    pool: PgPool,
    team: Uuid,
    owner: Uuid,
}

#[derive(Deserialize)]
struct Name {
    name: String,
}

#[derive(Serialize)]
struct Made {
    id: Uuid,
}

async fn create(
    State(bare): State<Bare>,
    Json(document): Json<Box<RawValue>>,
) -> Result<(StatusCode, Json<Made>), StatusCode> {
    let name: Name = serde_json::from_str(document.get()).map_err(|_| StatusCode::BAD_REQUEST)?;
    let id = Uuid::now_v7();
    sqlx::query(
        "insert into jobs (id, team_id, owner_id, name, labels, document, retention, wanted, phase, reason, message,
             priority, replicas, cpu_milli, memory_bytes, gpus, event_seq, created_at, queued_at)
         values ($1, $2, $3, $4, '{\"project\": \"bench\"}', $5, 'standard', 'run', 'queued', 'submitted',
             'Submitted; no worker has looked at it yet', 0, 2, 1000, 536870912, 0, 1, $6, $6)",
    )
    .bind(id)
    .bind(bare.team)
    .bind(bare.owner)
    .bind(&name.name)
    .bind(document.get())
    .bind(Utc::now())
    .execute(&bare.pool)
    .await
    .map_err(failed)?;
    Ok((StatusCode::CREATED, Json(Made { id })))
}

/// A job without its document, as wide as the program's own.
#[derive(Serialize, sqlx::FromRow)]
struct Row {
    id: Uuid,
    team_id: Uuid,
    owner_id: Uuid,
    name: String,
    labels: sqlx::types::JsonValue,
    wanted: String,
    phase: String,
    reason: String,
    message: String,
    stale_since: Option<DateTime<Utc>>,
    priority: i32,
    queue: Option<String>,
    cluster_wanted: Option<String>,
    cluster_id: Option<Uuid>,
    replicas: i32,
    cpu_milli: i64,
    memory_bytes: i64,
    gpus: i32,
    generation: i64,
    event_seq: i64,
    attempt: i32,
    step: Option<i64>,
    step_at: Option<DateTime<Utc>>,
    total_steps: Option<i64>,
    created_at: DateTime<Utc>,
    queued_at: DateTime<Utc>,
    queued_seconds: i64,
    not_before: Option<DateTime<Utc>>,
    started_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
}

#[derive(Serialize, sqlx::FromRow)]
struct Whole {
    #[serde(flatten)]
    #[sqlx(flatten)]
    row: Row,
    document: String,
}

async fn one(State(bare): State<Bare>, Path(job): Path<Uuid>) -> Result<Json<Whole>, StatusCode> {
    let job = sqlx::query_as(
        "select id, team_id, owner_id, name, labels, wanted, phase, reason, message, stale_since, priority, queue,
             cluster_wanted, cluster_id, replicas, cpu_milli, memory_bytes, gpus, generation, event_seq, attempt, step,
             step_at, total_steps, created_at, queued_at, queued_seconds, not_before, started_at, ended_at, document
         from jobs where id = $1",
    )
    .bind(job)
    .fetch_one(&bare.pool)
    .await
    .map_err(failed)?;
    Ok(Json(job))
}

async fn newest(State(bare): State<Bare>) -> Result<Json<Vec<Row>>, StatusCode> {
    let jobs = sqlx::query_as(
        "select id, team_id, owner_id, name, labels, wanted, phase, reason, message, stale_since, priority, queue,
             cluster_wanted, cluster_id, replicas, cpu_milli, memory_bytes, gpus, generation, event_seq, attempt, step,
             step_at, total_steps, created_at, queued_at, queued_seconds, not_before, started_at, ended_at
         from jobs where team_id = $1 and deleted_at is null order by id desc limit 50",
    )
    .bind(bare.team)
    .fetch_all(&bare.pool)
    .await
    .map_err(failed)?;
    Ok(Json(jobs))
}

fn failed(error: sqlx::Error) -> StatusCode {
    match error {
        sqlx::Error::RowNotFound => StatusCode::NOT_FOUND,
        other => {
            eprintln!("baseline: {other}");
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}
