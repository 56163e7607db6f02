//! One installation with one cluster and one worker, driven by a test: time passes when it says so, and then everything
//! that is due is done.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{
    Router,
    body::{Body, to_bytes},
    http::{Request, StatusCode},
};
use chrono::{DateTime, Utc};
use clap::Parser;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use trainyard::{
    actions::bootstrap,
    cli::{Cli, Command},
    clock::{Clock, FakeClock},
    config::{Environment, Keep},
    db::{
        Db, attempts,
        clusters::{self, NodeSight},
        holdings::{self, Holding},
        installation,
        listen::Listener,
        notify, partitions,
        tasks::{self, TaskKind},
        workers,
    },
    keys::KeyFile,
    runtimes::Runtime,
    web::{self, WebState},
    worker::{
        Worker,
        about::FromRecords,
        ingest::{Ingest, Settings},
        post_mortem::{self, Right},
        starts::Starts,
    },
};
use trainyard_core::model::{ClusterId, WorkerId};
use uuid::Uuid;

use crate::{
    simulated::{Manner, Simulated},
    support::postgres::{TestDb, database},
};

const MACHINE: &str = "a-machine";

pub struct World {
    pub db: Db,
    pub clock: Arc<FakeClock>,
    pub runtime: Arc<Simulated>,
    worker: Arc<Worker>,
    cluster: ClusterId,
    router: Router,
    token: String,
    ingest: Ingest,
    /// Whether a worker is there.
    attended: bool,
    manner: Manner,
    stop: CancellationToken,
    _seals: tokio::sync::mpsc::Receiver<trainyard::worker::seal::SealRequest>,
    _folder: tempfile::TempDir,
    _test: TestDb,
}

impl World {
    /// A node of four cores.
    pub async fn new() -> Self {
        Self::in_manner(Manner::Plain).await
    }

    pub async fn in_manner(manner: Manner) -> Self {
        Self::made(manner, Keep::default()).await
    }

    /// With other bounds of what is kept.
    pub async fn keeping(keep: Keep) -> Self {
        Self::made(Manner::Plain, keep).await
    }

    async fn made(manner: Manner, keep: Keep) -> Self {
        let test = database().await;
        let db = test.db.clone();
        let folder = tempfile::tempdir().expect("a folder");
        // Whole milliseconds, as the records keep them.
        let now = DateTime::from_timestamp_millis(Utc::now().timestamp_millis()).expect("a time");
        let clock = Arc::new(FakeClock::at(now));
        partitions::ensure(&db, now).await.expect("partitions");
        let welcome = bootstrap::first_start(&db, now).await.expect("a first start");
        let token = bootstrap::local_token(&db, &welcome, now).await.expect("a token");
        let keys = Arc::new(KeyFile::open_or_create(&folder.path().join("keys"), &mut rand::rng()).expect("keys"));
        let cluster = clusters::ensure_local(&db, MACHINE, "local", ClusterId(Uuid::now_v7()), now)
            .await
            .expect("it");
        let stop = CancellationToken::new();
        let runtime = Arc::new(Simulated::new(clock.clone(), manner));
        let as_runtime: Arc<dyn Runtime> = runtime.clone();
        let ring = keys.clone();
        let worker = Arc::new(Worker {
            db: db.clone(),
            clock: clock.clone(),
            id: WorkerId(Uuid::now_v7()),
            machine_id: MACHINE.to_owned(),
            listener: Listener::start(&db, notify::ALL, stop.clone()),
            keys: Arc::new(move || ring.ring()),
            jobs_url: None,
            runtimes: BTreeMap::from([(cluster, as_runtime.clone())]),
            keep,
            starts: Starts::default(),
        });
        let (seals, _seals) = tokio::sync::mpsc::channel(10_000);
        let about = Arc::new(FromRecords(worker.clone()));
        let ingest = Ingest::new(db.clone(), as_runtime, cluster, about, Settings::default(), seals);
        let data = folder.path().to_string_lossy().into_owned();
        let cli = Cli::try_parse_from(["trainyard", "serve", "--data", &data]).expect("a command line");
        let Command::Serve(args) = cli.command else {
            panic!("another command");
        };
        let config = args.resolve(&Environment::default()).expect("a configuration");
        let router = web::router(WebState::new(db.clone(), clock.clone(), keys, &config, stop.clone()));
        let mut world = Self {
            db,
            clock,
            runtime,
            worker,
            cluster,
            router,
            token: token.expose_secret().to_owned(),
            ingest,
            attended: true,
            manner,
            stop,
            _seals,
            _folder: folder,
            _test: test,
        };
        world.settle().await;
        world
    }

    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The worker and its machine go away, or come back.
    pub fn attend(&mut self, attended: bool) {
        self.attended = attended;
    }

    /// Lets time pass, and does what becomes due on the way.
    pub async fn pass(&mut self, seconds: f64) {
        let until = self.now() + chrono::Duration::milliseconds((seconds * 1e3) as i64);
        while self.now() < until {
            let next: Option<DateTime<Utc>> = sqlx::query_scalar("select min(wake_at) from tasks")
                .fetch_one(self.db.pool())
                .await
                .expect("an answer");
            let left = (until - self.now()).to_std().unwrap_or_default();
            let due = next.map_or(left, |next| (next - self.now()).to_std().unwrap_or_default());
            let step = due
                .max(Duration::from_millis(100))
                .min(Duration::from_secs(4))
                .min(left);
            self.clock.advance(step);
            self.settle().await;
        }
    }

    /// Everything that is due now.
    pub async fn settle(&mut self) {
        let now = self.now();
        clusters::mark_stale(&self.db, chrono::Duration::seconds(20), now)
            .await
            .expect("an answer");
        if !self.attended {
            return;
        }
        let holding = hold(&self.worker, self.cluster, now).await;
        workers::beat(&self.db, self.worker.id, MACHINE, now)
            .await
            .expect("a heartbeat");
        // What the runtime noticed.
        self.poke_open().await;
        self.ingest.flush(&holding, now, true).await.expect("a flush");
        self.worker.perform_due().await.expect("the work is done");
        if self.manner == Manner::Twice {
            // The same again: nothing may come of it.
            self.poke_everything().await;
            self.worker.perform_due().await.expect("the work is done");
        }
        self.ingest.flush(&holding, now, true).await.expect("a flush");
        let ended = attempts::without_post_mortem(&self.db, self.cluster, now, 100)
            .await
            .expect("an answer");
        for (job, number) in ended {
            post_mortem::freeze(&self.worker, Right::Holding(&holding), job, number)
                .await
                .expect("a post-mortem");
        }
        for (attempt, job) in attempts::releasable(&self.db, self.cluster, 100)
            .await
            .expect("an answer")
        {
            let mut tx = self.db.begin().await.expect("a transaction");
            attempts::released(&mut tx, attempt, now).await.expect("released");
            tasks::poke(&mut tx, TaskKind::Job, job.0, Some(MACHINE), now)
                .await
                .expect("a poke");
            tx.commit().await.expect("a commit");
        }
        self.worker.perform_due().await.expect("the work is done");
    }

    /// A long time passes in which nothing happens, and then a worker looks after the installation.
    pub async fn later(&mut self, days: i64) {
        self.clock
            .advance(chrono::Duration::days(days).to_std().expect("not backwards"));
        self.look_after().await;
    }

    /// A round of upkeep, with all that follows.
    pub async fn look_after(&mut self) {
        self.worker.ask_for_upkeep().await.expect("a task");
        self.settle().await;
    }

    /// Further workers of the same installation, on the same machine.
    pub fn colleagues(&self, many: usize) -> Vec<Arc<Worker>> {
        (0..many).map(|_| Arc::new(self.like())).collect()
    }

    async fn poke_open(&self) {
        let open = attempts::open_on(&self.db, self.cluster).await.expect("an answer");
        let jobs: Vec<Uuid> = open.into_iter().map(|(_, job)| job.0).collect();
        let mut tx = self.db.begin().await.expect("a transaction");
        tasks::poke_all(&mut tx, TaskKind::Job, &jobs, Some(MACHINE), self.now())
            .await
            .expect("pokes");
        tx.commit().await.expect("a commit");
    }

    async fn poke_everything(&self) {
        let jobs: Vec<Uuid> = sqlx::query_scalar("select id from jobs")
            .fetch_all(self.db.pool())
            .await
            .expect("jobs");
        let mut tx = self.db.begin().await.expect("a transaction");
        tasks::poke_all(&mut tx, TaskKind::Job, &jobs, None, self.now())
            .await
            .expect("pokes");
        tasks::poke(&mut tx, TaskKind::Queue, self.cluster.0, None, self.now())
            .await
            .expect("a poke");
        tx.commit().await.expect("a commit");
    }

    /// Another machine with a worker of its own.
    pub async fn another_machine(&self, name: &str) -> Another {
        let machine = format!("{name}-machine");
        let cluster = clusters::ensure_local(&self.db, &machine, name, ClusterId(Uuid::now_v7()), self.now())
            .await
            .expect("a cluster");
        let runtime: Arc<dyn Runtime> = self.runtime.clone();
        let worker = Arc::new(Worker {
            machine_id: machine,
            runtimes: BTreeMap::from([(cluster, runtime)]),
            ..self.like()
        });
        let another = Another { worker, cluster };
        self.work_on(&another).await;
        another
    }

    /// A moment passes, and another machine's worker does what is due.
    pub async fn work_on(&self, another: &Another) {
        self.clock.advance(Duration::from_secs(1));
        hold(&another.worker, another.cluster, self.now()).await;
        another.worker.perform_due().await.expect("the work is done");
    }

    fn like(&self) -> Worker {
        Worker {
            jobs_url: None,
            db: self.db.clone(),
            clock: self.clock.clone(),
            id: WorkerId(Uuid::now_v7()),
            machine_id: MACHINE.to_owned(),
            listener: self.worker.listener.clone(),
            keys: self.worker.keys.clone(),
            runtimes: self.worker.runtimes.clone(),
            keep: self.worker.keep.clone(),
            starts: Starts::default(),
        }
    }

    pub async fn send(&self, method: &str, path: &str, body: Option<&Value>) -> (StatusCode, String) {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("authorization", format!("Bearer {}", self.token))
            .header("content-type", "application/json");
        let body = body.map_or(Body::empty(), |body| Body::from(body.to_string()));
        let request = request.body(body).expect("a request");
        let answer = self.router.clone().oneshot(request).await.expect("an answer");
        let status = answer.status();
        let bytes = to_bytes(answer.into_body(), 64 << 20).await.expect("a body");
        (status, String::from_utf8_lossy(&bytes).into_owned())
    }

    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, text) = self.send(method, path, body).await;
        assert!(status.is_success(), "{method} {path}: {status} {text}");
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    pub async fn get(&self, path: &str) -> Value {
        self.ask("GET", path, None).await
    }

    /// Submits, and lets the worker look.
    pub async fn submit(&mut self, document: Value) -> String {
        let job = self.submit_unseen(document).await;
        // The server asks for the job's admission when its create is committed, which may be a moment later than here.
        let mut tx = self.db.begin().await.expect("a transaction");
        let installation = installation::read(&self.db).await.expect("an installation");
        for (kind, subject) in [(TaskKind::Place, installation.id), (TaskKind::Queue, self.cluster.0)] {
            tasks::poke(&mut tx, kind, subject, None, self.now())
                .await
                .expect("a poke");
        }
        tx.commit().await.expect("a commit");
        self.settle().await;
        job
    }

    /// Submits, and no worker looks yet.
    pub async fn submit_unseen(&mut self, document: Value) -> String {
        let job = self.ask("POST", "/api/v1/jobs", Some(&document)).await;
        job["id"].as_str().expect("an id").to_owned()
    }

    /// Waits for what the server sends after a create, and removes it.
    pub async fn forget_the_poke(&mut self) {
        loop {
            let gone = sqlx::query("delete from tasks where kind = 'place'")
                .execute(self.db.pool())
                .await
                .expect("an answer");
            if gone.rows_affected() > 0 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Does something to a job (`cancel`, `suspend`, `resume`), and lets the worker look.
    pub async fn wish(&mut self, job: &str, verb: &str) {
        self.ask("POST", &format!("/api/v1/jobs/{job}/{verb}"), Some(&json!({})))
            .await;
        self.settle().await;
    }

    pub async fn job(&self, job: &str) -> Value {
        self.get(&format!("/api/v1/jobs/{job}")).await
    }

    pub async fn assert_phase(&self, job: &str, phase: &str) {
        let found = self.job(job).await;
        assert_eq!(found["phase"], phase, "{found:#}");
    }

    /// Oldest first.
    pub async fn attempts(&self, job: &str) -> Vec<Value> {
        let page = self.get(&format!("/api/v1/jobs/{job}/attempts")).await;
        let mut items = page["items"].as_array().expect("items").clone();
        items.reverse();
        items
    }

    pub async fn why(&self, job: &str) -> Value {
        self.get(&format!("/api/v1/jobs/{job}/why")).await
    }

    pub async fn conditions(&self, job: &str) -> Vec<Value> {
        let page = self.get(&format!("/api/v1/jobs/{job}/conditions")).await;
        let items = page["items"].as_array().or(page.as_array());
        items.unwrap_or_else(|| panic!("{page:#}")).clone()
    }

    pub async fn replicas(&self, job: &str, attempt: i64) -> Vec<Value> {
        let page = self
            .get(&format!("/api/v1/jobs/{job}/replicas?attempt={attempt}"))
            .await;
        page["items"].as_array().expect("items").clone()
    }

    pub async fn events(&self, job: &str) -> Vec<Value> {
        let page = self.get(&format!("/api/v1/jobs/{job}/events?limit=200")).await;
        page["items"].as_array().expect("items").clone()
    }
}

/// Holds the cluster and looks at its node, as the long-lived loops do.
async fn hold(worker: &Worker, cluster: ClusterId, now: DateTime<Utc>) -> Holding {
    let term = Duration::from_secs(15);
    let holding = holdings::acquire(&worker.db, holdings::CLUSTER, cluster.0, 0, worker.id, term, now)
        .await
        .expect("an answer")
        .expect("nobody else holds it");
    let capacity = json!({ "cpu_milli": 4000, "memory_bytes": 8u64 << 30, "gpus": 0 });
    let sight = NodeSight {
        name: "node",
        identity: &worker.machine_id,
        ready: true,
        reason: "looked_at",
        message: "It is there",
        labels: json!({}),
        capacity: capacity.clone(),
        allocatable: capacity,
        facts: json!({}),
        usage: json!({}),
    };
    let mut tx = worker.db.begin().await.expect("a transaction");
    let (_, appeared) = clusters::see_node(&mut tx, cluster, Uuid::now_v7(), &sight, now)
        .await
        .expect("a node");
    clusters::see_cluster(&mut tx, cluster, &json!({}), now)
        .await
        .expect("the cluster");
    if appeared {
        tasks::poke(&mut tx, TaskKind::Queue, cluster.0, None, now)
            .await
            .expect("a poke");
    }
    tx.commit().await.expect("a commit");
    holding
}

/// A further machine of the installation, which is a cluster.
pub struct Another {
    pub worker: Arc<Worker>,
    pub cluster: ClusterId,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A document of one role with so many ranks, each with one core or less.
pub fn document(name: &str, ranks: u32, cpu: &str, more: Value) -> Value {
    let mut document = json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": name, "framework": "pytorch",
        "roles": [{ "name": "worker", "replicas": ranks, "command": ["train"], "resources": { "cpu": cpu } }],
        "stop": { "grace": "10s" },
    });
    for (key, value) in more.as_object().expect("an object") {
        document[key] = value.clone();
    }
    document
}
