//! What is measured on: the programs under test as processes that end with us, and the people who ask them.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::Value;
use sha2::{Digest, Sha256};
use sqlx::{PgPool, postgres::PgPoolOptions};
use tokio::process::{Child, Command};
use uuid::Uuid;

use crate::{
    Fault, Run,
    load::{self, Shot},
};

/// The pool of each server.
pub const CONNECTIONS: u32 = 16;
/// The program limits requests by person, so the load comes from several.
const PEOPLE: usize = 32;

/// A server under test. Killed when dropped; [`Server::stop`] is the kind way.
pub struct Server {
    child: Child,
    pub address: SocketAddr,
}

impl Server {
    /// One of the program's commands that serve: `up` or `serve`.
    pub fn trainyard(run: &Run, command: &str) -> Result<Self, Fault> {
        let address = free_address()?;
        let mut program = Command::new(&run.trainyard);
        program
            .arg(command)
            .arg("--data")
            .arg(run.folder.join("data"))
            .args(["--listen", &address.to_string()])
            .args(["--metrics-listen", &free_address()?.to_string()])
            .args(["--database-connections", &CONNECTIONS.to_string()])
            .args(["--log", "warn", "--log-format", "human"])
            .env("XDG_CONFIG_HOME", run.folder.join("config"));
        Self::start(program, address, &run.folder.join(format!("{command}.log")))
    }

    pub fn baseline(run: &Run) -> Result<Self, Fault> {
        let address = free_address()?;
        let mut program = Command::new(std::env::current_exe()?);
        program
            .args(["baseline", "--listen", &address.to_string()])
            .args(["--connections", &CONNECTIONS.to_string()]);
        Self::start(program, address, &run.folder.join("baseline.log"))
    }

    fn start(mut program: Command, address: SocketAddr, log: &Path) -> Result<Self, Fault> {
        let log = std::fs::File::options().create(true).append(true).open(log)?;
        let child = program
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .kill_on_drop(true)
            .spawn()?;
        Ok(Self { child, address })
    }

    pub fn pid(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// Waits until the path is answered with 200, and says how long that took from now.
    pub async fn ready(&self, path: &str) -> Result<Duration, Fault> {
        let begun = Instant::now();
        let shot = Shot::get(path);
        loop {
            if let Ok((200, _)) = load::once(self.address, &shot).await {
                return Ok(begun.elapsed());
            }
            if begun.elapsed() > Duration::from_secs(60) {
                return Err(Fault::Said(format!("{} does not answer {path}", self.address)));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    pub async fn stop(mut self) -> Result<(), Fault> {
        let killer = Command::new("kill").arg(self.pid().to_string()).status().await?;
        if !killer.success()
            || tokio::time::timeout(Duration::from_secs(15), self.child.wait())
                .await
                .is_err()
        {
            self.child.kill().await?;
        }
        Ok(())
    }
}

fn free_address() -> Result<SocketAddr, Fault> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

/// The records that everything is measured on.
pub struct Ground {
    pub pool: PgPool,
    pub team: Uuid,
    pub owner: Uuid,
    /// Members of the team, by their tokens.
    pub tokens: Vec<String>,
}

impl Ground {
    /// Lets the program make its schema, its first user and this machine's cluster; then adds the people.
    pub async fn make(run: &Run) -> Result<Self, Fault> {
        let up = Server::trainyard(run, "up")?;
        up.ready("/readyz").await?;
        let pool = PgPoolOptions::new()
            .max_connections(2)
            .connect(&crate::database_url()?)
            .await?;
        let deadline = Instant::now() + Duration::from_secs(60);
        while !sqlx::query_scalar("select exists (select from nodes)")
            .fetch_one(&pool)
            .await?
        {
            if Instant::now() > deadline {
                return Err(Fault::Said("the worker made no node of this machine".into()));
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        up.stop().await?;
        let (team, owner): (Uuid, Uuid) =
            sqlx::query_as("select team_id, user_id from team_members order by created_at limit 1")
                .fetch_one(&pool)
                .await?;
        let mut tokens = Vec::new();
        for number in 0..PEOPLE {
            let token = format!("ty_bench{}", Uuid::now_v7().simple());
            let user = Uuid::now_v7();
            sqlx::query(
                "with person as (insert into users (id, name, created_at) values ($1, $2, now())),
                      member as (insert into team_members (team_id, user_id, role, created_at)
                                 values ($3, $1, 'member', now()))
                 insert into tokens (id, hash, user_id, name, role, created_at)
                 values ($4, $5, $1, 'bench', 'member', now())",
            )
            .bind(user)
            .bind(format!("bench {number}"))
            .bind(team)
            .bind(Uuid::now_v7())
            .bind(Sha256::digest(token.as_bytes()).to_vec())
            .execute(&pool)
            .await?;
            tokens.push(token);
        }
        Ok(Self {
            pool,
            team,
            owner,
            tokens,
        })
    }

    /// Stored jobs up to so many, older than all that are made later, ended long ago.
    pub async fn fill(&self, jobs: i64) -> Result<(), Fault> {
        let there: i64 = sqlx::query_scalar("select count(*) from jobs")
            .fetch_one(&self.pool)
            .await?;
        // Ids as UUIDv7 are: 48 bits of time, then what tells apart. A minute lies between two jobs, in the past.
        sqlx::query(
            "insert into jobs (id, team_id, owner_id, name, labels, document, retention, wanted, phase, reason, message,
                 priority, replicas, cpu_milli, memory_bytes, gpus, event_seq, created_at, queued_at, started_at, ended_at)
             select (lpad(to_hex(1700000000000 - n * 60000), 12, '0') || '7000' || '8000' || lpad(to_hex(n), 12, '0'))::uuid,
                 $1, $2, 'stored-' || n, '{\"project\": \"bench\"}', $3, 'standard', 'run', 'succeeded', 'done',
                 'Every replica ended with 0', 0, 2, 1000, 536870912, 0, 1, t, t, t, t + interval '1 hour'
             from generate_series($4::bigint + 1, $5) n,
                 lateral (select to_timestamp(1700000000 - n * 60) as t) at",
        )
        .bind(self.team)
        .bind(self.owner)
        .bind(document().to_string())
        .bind(there)
        .bind(jobs)
        .execute(&self.pool)
        .await?;
        sqlx::query("vacuum analyze jobs").execute(&self.pool).await?;
        Ok(())
    }
}

/// The document that every create sends: two replicas, some environment, as people's are.
pub fn document() -> Value {
    serde_json::json!({
        "apiVersion": "trainyard.dev/v1",
        "kind": "Job",
        "name": "bench",
        "labels": { "project": "bench" },
        "framework": "pytorch",
        "roles": [{
            "name": "worker",
            "replicas": 2,
            "command": ["python3", "train.py", "--epochs", "10", "--batch-size", "256"],
            "resources": { "cpu": "500m", "memory": "256Mi" }
        }],
        "env": { "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "DATA": "/data/imagenet" },
        "restart": { "max": 3 },
        "metrics": { "totalSteps": 1000 }
    })
}
