//! A job with replicas in the records, and a runtime whose output a test writes.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::{DateTime, Utc};
use tokio::sync::mpsc;
use trainyard::{
    db::{
        Db,
        holdings::{self, Holding},
        logs::{JobKey, StreamRow, read, write::OpenAttempt},
    },
    runtimes::{OutputRef, OutputState, Runtime, RuntimeError},
    worker::{
        ingest::{
            About, AboutAttempts, Ingest, Settings,
            catch::{Caught, CaughtCheckpoint, CaughtMetric},
        },
        seal::SealRequest,
    },
};
use trainyard_core::model::{
    AttemptId, ClusterId, IncarnationId, JobId, Launch, LogStream, Observed, ReplicaKey, Retention, SecretValue,
    WorkerId,
};
use uuid::Uuid;

use crate::support::postgres::{TestDb, database};

pub fn at(millis: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(1_764_504_000_000 + millis).expect("a time")
}

/// The id of a job that was submitted then.
fn submitted(at: DateTime<Utc>) -> JobId {
    let seconds = u64::try_from(at.timestamp()).expect("after 1970");
    let moment = uuid::Timestamp::from_unix(uuid::NoContext, seconds, 0);
    JobId(Uuid::new_v7(moment))
}

/// One stream of the runtime in memory.
#[derive(Default)]
pub struct Source {
    pub bytes: Vec<u8>,
    pub ended: bool,
    pub dropped: Vec<Range<u64>>,
    pub given_back: u64,
}

/// By attempt, replica and stream.
pub type Sources = BTreeMap<(AttemptId, String, LogStreamOrd), (OutputRef, Source)>;

/// Serves what a test wrote. Bytes that were given up read as zeros, as holes do.
#[derive(Default)]
pub struct Memory {
    pub sources: Mutex<Sources>,
    /// Reads answer at most so many bytes, if set.
    pub short: Mutex<Option<usize>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct LogStreamOrd(pub LogStream);

impl Memory {
    fn key(output: &OutputRef) -> (AttemptId, String, LogStreamOrd) {
        (
            output.attempt,
            format!("{}/{}", output.key, output.incarnation),
            LogStreamOrd(output.stream),
        )
    }

    pub fn add(&self, output: &OutputRef) {
        let mut sources = self.sources.lock().expect("no panic");
        sources
            .entry(Self::key(output))
            .or_insert_with(|| (output.clone(), Source::default()));
    }

    pub fn with<T>(&self, output: &OutputRef, change: impl FnOnce(&mut Source) -> T) -> T {
        let mut sources = self.sources.lock().expect("no panic");
        change(&mut sources.get_mut(&Self::key(output)).expect("the stream was added").1)
    }

    pub fn write(&self, output: &OutputRef, bytes: &[u8]) {
        self.with(output, |source| source.bytes.extend_from_slice(bytes));
    }

    pub fn end(&self, output: &OutputRef) {
        self.with(output, |source| source.ended = true);
    }
}

#[async_trait]
impl Runtime for Memory {
    async fn start(&self, _: &Launch) -> Result<(), RuntimeError> {
        Ok(())
    }
    async fn observe(&self, _: AttemptId) -> Result<Observed, RuntimeError> {
        Err(RuntimeError::Retry("this runtime only serves output".to_owned()))
    }
    async fn signal(&self, _: AttemptId, _: i32) -> Result<(), RuntimeError> {
        Ok(())
    }
    async fn stop(&self, _: AttemptId) -> Result<(), RuntimeError> {
        Ok(())
    }
    async fn outputs(&self, attempt: AttemptId) -> Result<Vec<OutputState>, RuntimeError> {
        let sources = self.sources.lock().expect("no panic");
        Ok(sources
            .iter()
            .filter(|((of, _, _), _)| *of == attempt)
            .map(|(_, (output, source))| OutputState {
                output: output.clone(),
                length: source.bytes.len() as u64,
                ended: source.ended,
                dropped: source.dropped.clone(),
            })
            .collect())
    }
    async fn read(&self, output: &OutputRef, offset: u64, limit: usize) -> Result<Bytes, RuntimeError> {
        let limit = self
            .short
            .lock()
            .expect("no panic")
            .map_or(limit, |short| short.min(limit));
        Ok(self.with(output, |source| {
            let start = (offset as usize).min(source.bytes.len());
            let end = (start + limit).min(source.bytes.len());
            assert!(offset >= source.given_back, "what was given back is read again");
            let mut bytes = source.bytes[start..end].to_vec();
            for range in &source.dropped {
                for at in range.start.max(start as u64)..range.end.min(end as u64) {
                    bytes[at as usize - start] = 0;
                }
            }
            Bytes::from(bytes)
        }))
    }
    async fn give_back(&self, output: &OutputRef, offset: u64) -> Result<(), RuntimeError> {
        self.with(output, |source| source.given_back = source.given_back.max(offset));
        Ok(())
    }
    async fn release(&self, _: AttemptId) -> Result<(), RuntimeError> {
        Ok(())
    }
    async fn attempts(&self) -> Result<Vec<AttemptId>, RuntimeError> {
        Ok(Vec::new())
    }
}

/// `step=N loss=X` and `checkpoint step=N path=P`: enough to see what becomes of what is caught.
pub fn catch(line: &[u8]) -> Caught {
    let text = String::from_utf8_lossy(line);
    let pairs: HashMap<&str, &str> = text.split(' ').filter_map(|pair| pair.split_once('=')).collect();
    let step = pairs.get("step").and_then(|step| step.parse().ok());
    let mut caught = Caught::default();
    if let (Some(step), Some(path)) = (step, pairs.get("path")) {
        caught.checkpoint = Some(CaughtCheckpoint {
            step,
            path: (*path).to_owned(),
        });
    } else if let Some(loss) = pairs.get("loss").and_then(|loss| loss.parse().ok()) {
        caught.metric = Some(CaughtMetric {
            step,
            total: None,
            values: vec![("loss".to_owned(), loss)],
        });
    }
    caught
}

pub struct Secrets(pub Vec<String>);

#[async_trait]
impl AboutAttempts for Secrets {
    async fn about(&self, _: &OpenAttempt) -> Result<About, String> {
        Ok(About {
            secrets: self.0.iter().cloned().map(SecretValue).collect(),
            catch: Arc::new(|line, found| found(catch(line))),
            ranks: Arc::new(|_| None),
        })
    }
}

/// One job on one cluster, with attempts as the test makes them.
pub struct World {
    /// Dropped with the world.
    _test: TestDb,
    pub db: Db,
    pub cluster: ClusterId,
    pub job: JobId,
    pub key: JobKey,
    pub runtime: Arc<Memory>,
    pub secrets: Vec<String>,
    pub seals: mpsc::Sender<SealRequest>,
    /// Nobody answers them here: tests seal when they like.
    _seal_requests: mpsc::Receiver<SealRequest>,
}

impl World {
    pub async fn new() -> Self {
        Self::with_secrets(&[]).await
    }

    pub async fn with_secrets(secrets: &[&str]) -> Self {
        let test = database().await;
        let db = test.db.clone();
        let (cluster, team, user, job) = (Uuid::now_v7(), Uuid::now_v7(), Uuid::now_v7(), submitted(at(0)));
        let statements: [(&str, Vec<Uuid>); 5] = [
            ("insert into installation (id, created_at) values ($1, '2026-01-01')", vec![Uuid::now_v7()]),
            ("insert into users (id, name, created_at) values ($1, 'u', '2026-01-01')", vec![user]),
            ("insert into teams (id, name, created_at) values ($1, 't', '2026-01-01')", vec![team]),
            (
                "insert into clusters (id, name, provider, machine_id, phase, reason, message, created_at, updated_at)
                 values ($1, 'here', 'local', 'm', 'active', '', '', '2026-01-01', '2026-01-01')",
                vec![cluster],
            ),
            (
                "insert into jobs (id, team_id, owner_id, cluster_id, name, document, retention, wanted, phase, reason,
                    message, priority, replicas, cpu_milli, memory_bytes, gpus, event_seq, attempt, created_at, queued_at)
                 values ($1, $2, $3, $4, 'j', '{}', 'standard', 'run', 'running', '', '', 0, 1, 0, 0, 0, 0, 1,
                    '2026-01-01', '2026-01-01')",
                vec![job.0, team, user, cluster],
            ),
        ];
        for (statement, ids) in statements {
            let mut query = sqlx::query(statement);
            for id in ids {
                query = query.bind(id);
            }
            query.execute(db.pool()).await.expect(statement);
        }
        let (seals, seal_requests) = mpsc::channel(10_000);
        Self {
            db,
            _test: test,
            cluster: ClusterId(cluster),
            job,
            key: JobKey::of_worker(job, Retention::Standard),
            runtime: Arc::default(),
            secrets: secrets.iter().map(|&secret| secret.to_owned()).collect(),
            seals,
            _seal_requests: seal_requests,
        }
    }

    /// An attempt of `replicas` workers; answers stdout and stderr of each.
    pub async fn attempt(&self, number: i32, replicas: u32) -> Vec<OutputRef> {
        self.attempt_of(number, "worker", replicas).await
    }

    pub async fn attempt_of(&self, number: i32, role: &str, replicas: u32) -> Vec<OutputRef> {
        let attempt = AttemptId(Uuid::now_v7());
        sqlx::query(
            "insert into attempts (id, job_id, number, cluster_id, phase, restart_owner, reason, message, admitted_at)
             values ($1, $2, $3, $4, 'running', 'trainyard', '', '', '2026-01-01')",
        )
        .bind(attempt.0)
        .bind(self.job.0)
        .bind(number)
        .bind(self.cluster.0)
        .execute(self.db.pool())
        .await
        .expect("an attempt");
        sqlx::query("update jobs set attempt = $2 where id = $1")
            .bind(self.job.0)
            .bind(number)
            .execute(self.db.pool())
            .await
            .expect("the job's attempt");
        let mut outputs = Vec::new();
        for index in 0..replicas {
            sqlx::query(
                "insert into replicas (attempt_id, role, index, rank, job_id, phase, reason, message)
                 values ($1, $4, $2, $2, $3, 'running', '', '')",
            )
            .bind(attempt.0)
            .bind(index as i32)
            .bind(self.job.0)
            .bind(role)
            .execute(self.db.pool())
            .await
            .expect("a replica");
            let incarnation = IncarnationId(Uuid::now_v7());
            for stream in [LogStream::Stdout, LogStream::Stderr] {
                let output = OutputRef {
                    attempt,
                    key: ReplicaKey {
                        role: role.to_owned(),
                        index,
                    },
                    incarnation,
                    stream,
                };
                self.runtime.add(&output);
                outputs.push(output);
            }
        }
        outputs
    }

    pub async fn end_attempt(&self, attempt: AttemptId) {
        sqlx::query("update attempts set phase = 'ended', outcome = 'succeeded', ended_at = $2 where id = $1")
            .bind(attempt.0)
            .bind(at(0))
            .execute(self.db.pool())
            .await
            .expect("the attempt ends");
    }

    pub async fn end_job(&self) {
        sqlx::query("update jobs set phase = 'succeeded', ended_at = $2 where id = $1")
            .bind(self.job.0)
            .bind(at(0))
            .execute(self.db.pool())
            .await
            .expect("the job ends");
    }

    /// A worker that holds the cluster; the one before it is fenced.
    pub async fn worker(&self) -> (Ingest, Holding) {
        self.worker_with(self.runtime.clone(), Settings::default()).await
    }

    pub async fn worker_with(&self, runtime: Arc<dyn Runtime>, settings: Settings) -> (Ingest, Holding) {
        sqlx::query("update holdings set expires_at = '2000-01-01'")
            .execute(self.db.pool())
            .await
            .expect("it expires");
        let worker = WorkerId(Uuid::now_v7());
        let term = Duration::from_secs(1_000_000_000);
        let holding = holdings::acquire(&self.db, holdings::CLUSTER, self.cluster.0, 0, worker, term, at(0))
            .await
            .expect("an answer")
            .expect("nobody holds it");
        let about = Arc::new(Secrets(self.secrets.clone()));
        let ingest = Ingest::new(
            self.db.clone(),
            runtime,
            self.cluster,
            about,
            settings,
            self.seals.clone(),
        );
        (ingest, holding)
    }

    pub async fn streams(&self) -> Vec<StreamRow> {
        read::streams(&self.db, self.key).await.expect("the streams")
    }

    pub async fn stream(&self, output: &OutputRef) -> StreamRow {
        let streams = self.streams().await;
        let found = streams
            .into_iter()
            .find(|row| row.incarnation == output.incarnation && row.stream == output.stream);
        found.expect("the stream has a row")
    }
}
