//! Create, get and newest 50, of both servers in turn.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use bytes::Bytes;
use serde_json::Value;
use trainyard_core::model::JobId;

use crate::{
    Fault, Run,
    cpu::{self, Group},
    ground::{Ground, Server, document},
    load::{self, Round, Shot},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    Create,
    Get,
    Newest,
}

impl Deed {
    pub fn words(self) -> &'static str {
        match self {
            Deed::Create => "create",
            Deed::Get => "get",
            Deed::Newest => "newest 50",
        }
    }
}

/// One server's rounds of one deed, in the middle.
#[derive(Debug, Clone)]
pub struct Measured {
    pub rate: f64,
    pub p50: f64,
    pub p99: f64,
    /// Processor milliseconds per good answer.
    pub server: f64,
    pub postgres: f64,
    /// Refused with 503 or 429, and broken off or anything else, over all rounds.
    pub refused: u64,
    pub failed: u64,
}

#[derive(Debug, Clone)]
pub struct Line {
    pub deed: Deed,
    pub jobs: i64,
    pub connections: usize,
    pub bare: Measured,
    pub ours: Measured,
}

impl Line {
    pub fn ratio(&self) -> f64 {
        self.ours.rate / self.bare.rate
    }
}

pub struct Both<'a> {
    pub run: &'a Run,
    pub ground: &'a Ground,
    pub bare: Server,
    pub ours: Server,
}

impl Both<'_> {
    /// Rounds of one deed at so many connections: one server, then the other, in the same minute.
    pub async fn compare(&self, deed: Deed, jobs: i64, connections: usize) -> Result<Line, Fault> {
        let (rounds, lasting) = match self.run.quick {
            true => (1, Duration::from_millis(1500)),
            false => (3, Duration::from_secs(3)),
        };
        let (bare_shots, our_shots) = self.shots(deed).await?;
        for (server, shots) in [(&self.bare, &bare_shots), (&self.ours, &our_shots)] {
            warm(server.address, shots).await?;
        }
        let (mut bare, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            bare.push(self.round(&self.bare, &bare_shots, connections, lasting).await?);
            ours.push(self.round(&self.ours, &our_shots, connections, lasting).await?);
        }
        let line = Line {
            deed,
            jobs,
            connections,
            bare: middle(bare),
            ours: middle(ours),
        };
        println!("{}", crate::report::line(&line));
        Ok(line)
    }

    async fn shots(&self, deed: Deed) -> Result<(Arc<Vec<Shot>>, Arc<Vec<Shot>>), Fault> {
        let ours = |path: String, method: &'static str, body: Bytes| -> Vec<Shot> {
            let each = |token: &String| Shot {
                method,
                path: path.clone(),
                token: Some(token.clone()),
                body: body.clone(),
            };
            self.ground.tokens.iter().map(each).collect()
        };
        let body = Bytes::from(document().to_string());
        let (bare, ours) = match deed {
            Deed::Create => {
                let bare = Shot {
                    method: "POST",
                    body: body.clone(),
                    ..Shot::get("/jobs")
                };
                (vec![bare], ours("/api/v1/jobs".into(), "POST", body))
            }
            Deed::Newest => (
                vec![Shot::get("/jobs")],
                ours("/api/v1/jobs?limit=50".into(), "GET", Bytes::new()),
            ),
            Deed::Get => {
                let ids: Vec<uuid::Uuid> = sqlx::query_scalar("select id from jobs order by md5(id::text) limit 1000")
                    .fetch_all(&self.ground.pool)
                    .await?;
                let bare = ids.iter().map(|id| Shot::get(format!("/jobs/{id}"))).collect();
                let tokens = self.ground.tokens.iter().cycle();
                let ours = ids.iter().zip(tokens);
                let ours = ours.map(|(id, token)| Shot::get(format!("/api/v1/jobs/{}", JobId(*id))).with(token));
                (bare, ours.collect())
            }
        };
        Ok((Arc::new(bare), Arc::new(ours)))
    }

    async fn round(
        &self,
        server: &Server,
        shots: &Arc<Vec<Shot>>,
        connections: usize,
        lasting: Duration,
    ) -> Result<(Round, f64, f64), Fault> {
        let (program, postgres) = (Group::One(server.pid()), Group::Tree(self.run.postgres));
        let before = (cpu::used(program), cpu::used(postgres));
        let round = load::fire(server.address, shots.clone(), connections, lasting).await?;
        let each = |used: Duration| used.as_secs_f64() * 1000.0 / (round.good.max(1) as f64);
        let server_ms = each(cpu::used(program).saturating_sub(before.0));
        let postgres_ms = each(cpu::used(postgres).saturating_sub(before.1));
        Ok((round, server_ms, postgres_ms))
    }
}

/// Connections of the pool, caches and plans are there before anything counts; and the answers are what they should be.
async fn warm(address: SocketAddr, shots: &Arc<Vec<Shot>>) -> Result<(), Fault> {
    let Some(first) = shots.first() else {
        return Err(Fault::Said("there is nothing to ask for".into()));
    };
    let (status, body) = load::once(address, first).await?;
    let known: Value = serde_json::from_slice(&body).unwrap_or_default();
    let listed = known.as_array().or(known.get("items").and_then(Value::as_array));
    if !(200..300).contains(&status) || listed.is_some_and(|items| items.len() != 50) {
        let body = String::from_utf8_lossy(&body);
        return Err(Fault::Said(format!("{} {}: {status} {body}", first.method, first.path)));
    }
    load::fire(address, shots.clone(), 16, Duration::from_millis(500)).await?;
    Ok(())
}

fn middle(rounds: Vec<(Round, f64, f64)>) -> Measured {
    let statuses = rounds.iter().flat_map(|(round, _, _)| &round.statuses);
    let refused = statuses.filter(|(status, _)| matches!(status, 429 | 503));
    let refused: u64 = refused.map(|(_, count)| count).sum();
    let answered: u64 = rounds.iter().flat_map(|(round, _, _)| round.statuses.values()).sum();
    let good: u64 = rounds.iter().map(|(round, _, _)| round.good).sum();
    let broken: u64 = rounds.iter().map(|(round, _, _)| round.broken).sum();
    Measured {
        rate: median(rounds.iter().map(|(round, _, _)| round.rate())),
        p50: median(rounds.iter().map(|(round, _, _)| round.quantile(0.5))),
        p99: median(rounds.iter().map(|(round, _, _)| round.quantile(0.99))),
        server: median(rounds.iter().map(|(_, server, _)| *server)),
        postgres: median(rounds.iter().map(|(_, _, postgres)| *postgres)),
        refused,
        failed: answered - good - refused + broken,
    }
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
