//! The only place that joins concrete parts: database, runtimes, router, worker, and the order in which they stop.

use std::{collections::BTreeMap, io, sync::Arc, time::Duration};

use chrono::Utc;
use tokio::{net::TcpListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use trainyard_core::model::{ClusterId, WorkerId};
use uuid::Uuid;

use crate::{
    actions::bootstrap::{self, Welcome},
    clock::{Clock, SystemClock},
    config::{self, Config, ConfigError, Database},
    db::{
        Db, DbError, clusters,
        installation::{self, Schema},
        listen::Listener,
        notify, partitions,
    },
    examples,
    keys::{KeyError, KeyFile},
    machine::{self, MachineError},
    postgres::{PostgresError, Private},
    runtimes::{
        Runtime, RuntimeError,
        local::{LocalOptions, LocalRuntime},
    },
    telemetry::{self, TelemetryError},
    web::{self, WebState},
    worker::{self, Worker, local::Local, starts::Starts},
};

/// How long open requests may take to end once a stop was asked for. Live views are ended at once.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

#[derive(Debug, thiserror::Error)]
pub enum AppError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    #[error(transparent)]
    Keys(#[from] KeyError),
    #[error(transparent)]
    Telemetry(#[from] TelemetryError),
    #[error("the database: {}", chain(.0))]
    Db(#[from] DbError),
    #[error("the schema can't be brought up to date: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error("the database can't be reached: {0}")]
    Unreachable(#[source] sqlx::Error),
    #[error("this machine can't run jobs: {0}")]
    Runtime(#[from] RuntimeError),
    #[error("this machine can't be told from others: {0}")]
    Machine(#[from] MachineError),
    #[error("{what}: {source}")]
    Io { what: String, source: io::Error },
    #[error("the database has schema {found:?} and this program needs {needed}. Run `trainyard migrate` first")]
    Schema { found: Option<i64>, needed: i64 },
}

fn chain(error: &DbError) -> String {
    let mut words = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        words.push_str(": ");
        words.push_str(&inner.to_string());
        source = inner.source();
    }
    words
}

/// What the program does in this process.
#[derive(Debug, Clone, Copy)]
struct Parts {
    serve: bool,
    work: bool,
    /// Migrate, make the first user, write the client's file, print the way in.
    all_in_one: bool,
    examples: bool,
}

/// Everything in one process, with a private Postgres unless a database was named.
pub async fn up(config: Config, examples: bool) -> Result<(), AppError> {
    run(
        config,
        Parts {
            serve: true,
            work: true,
            all_in_one: true,
            examples,
        },
    )
    .await
}

/// The pages and the API.
pub async fn serve(config: Config) -> Result<(), AppError> {
    run(
        config,
        Parts {
            serve: true,
            work: false,
            all_in_one: false,
            examples: false,
        },
    )
    .await
}

/// The work in the background, this machine's processes included.
pub async fn work(config: Config) -> Result<(), AppError> {
    run(
        config,
        Parts {
            serve: false,
            work: true,
            all_in_one: false,
            examples: false,
        },
    )
    .await
}

async fn run(config: Config, parts: Parts) -> Result<(), AppError> {
    #[cfg(debug_assertions)]
    if config.unsafe_skip_fences {
        tracing::warn!("writers prove nothing in this process: TRAINYARD_UNSAFE_SKIP_FENCES is for tests alone");
        crate::db::fences::skip();
    }
    let stop = stop_on_signal()?;
    // Addresses first: they are what a second `up` finds taken, and nothing else was touched by then.
    let listener = match parts.serve {
        true => Some(TcpListener::bind(config.listen).await.map_err(|source| AppError::Io {
            what: format!("{} can't be listened on; name another with --listen", config.listen),
            source,
        })?),
        false => None,
    };
    let metrics = match telemetry::listen_metrics(config.metrics_listen).await {
        Ok(listener) => Some(listener),
        // Of several processes on one machine, the first one shows its figures unless the others name ports.
        Err(error) if !parts.all_in_one => {
            tracing::warn!(%error, "no /metrics from this process");
            None
        }
        Err(error) => return Err(error.into()),
    };
    let private = match &config.database {
        Database::Private(settings) if parts.all_in_one => Some(Arc::new(Private::start(settings).await?)),
        _ => None,
    };
    // Replicas outlive the loops in there and the database outlives both, so that the last words can be written.
    let database_stop = CancellationToken::new();
    let supervisor = private.clone().map(|private| {
        let stop = database_stop.clone();
        tokio::spawn(async move { private.supervise(&stop).await })
    });
    let done = until_stopped(&config, parts, private.as_deref(), listener, metrics, &stop).await;
    // Also when it could not begin: a database that nobody asked for must not stay behind.
    stop.cancel();
    database_stop.cancel();
    if let Some(supervisor) = supervisor {
        let _ = supervisor.await;
    }
    let stopped = match private.and_then(|shared| Arc::try_unwrap(shared).ok()) {
        Some(private) => private.stop().await,
        None => Ok(()),
    };
    done?;
    Ok(stopped?)
}

/// Everything but the private database: begins it, and returns when it was told to stop and has.
async fn until_stopped(
    config: &Config,
    parts: Parts,
    private: Option<&Private>,
    listener: Option<TcpListener>,
    metrics: Option<TcpListener>,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let handle = telemetry::start_metrics()?;
    let db = open_database(config, private, parts.all_in_one, stop).await?;
    let keys = Arc::new(if parts.all_in_one {
        KeyFile::open_or_create(&config.keys_file, &mut rand::rng())?
    } else {
        KeyFile::open(&config.keys_file)?
    });

    let clock = Arc::new(SystemClock::new());
    follow_clock(&clock, &db).await;
    let mut loops = JoinSet::new();
    let wakes = Listener::start(&db, notify::ALL, stop.clone());
    let welcome = match parts.all_in_one {
        true => Some(when_it_is_there(stop, || bootstrap::first_start(&db, clock.now())).await?),
        false => None,
    };
    if let Some(metrics) = metrics {
        loops.spawn(telemetry::serve_metrics(metrics, handle, stop.clone()));
    }
    {
        let (clock, db, stop) = (clock.clone(), db.clone(), stop.clone());
        loops.spawn(async move {
            while stop
                .run_until_cancelled(tokio::time::sleep(Duration::from_secs(30)))
                .await
                .is_some()
            {
                follow_clock(&clock, &db).await;
            }
        });
    }
    if parts.serve && !parts.work {
        loops.spawn(mark_stale(db.clone(), clock.clone(), stop.clone()));
    }
    if parts.work {
        let jobs_url = match &config.jobs_url {
            None if parts.serve => Some(config::url_here(config.listen)),
            given => given.clone(),
        };
        if jobs_url.is_none() {
            tracing::info!("jobs get no token of their own: TRAINYARD_JOBS_URL does not say where they reach the API");
        }
        let (worker, local) = open_worker(config, jobs_url, &db, &wakes, clock.clone(), keys.clone(), stop).await?;
        loops.spawn(worker.clone().run(stop.clone()));
        loops.spawn(local.run(stop.clone()));
    }
    let mut server = None;
    if let Some(listener) = listener {
        let state = WebState::new(db.clone(), clock.clone(), keys.clone(), config, stop.clone());
        loops.spawn(state.clone().run(stop.clone()));
        let app = web::router(state);
        server = Some(tokio::spawn(web::serve::serve(listener, app, stop.clone())));
    }
    if let Some(welcome) = &welcome {
        greet(config, &db, welcome, clock.now(), stop).await?;
    }
    if parts.examples
        && let Some(welcome) = &welcome
    {
        loops.spawn(examples::show(config.clone(), db.clone(), welcome.first, stop.clone()));
    }

    stop.cancelled().await;
    tracing::info!("stopping; jobs go on");
    if let Some(server) = server
        && tokio::time::timeout(LAST_REQUESTS, server).await.is_err()
    {
        tracing::info!("some requests did not end in time and were cut off");
    }
    while loops.join_next().await.is_some() {}
    db.close().await;
    Ok(())
}

/// Cancelled by the first Ctrl-C, SIGTERM or SIGHUP (a terminal that was closed); a second one ends the process by the
/// system's default.
fn stop_on_signal() -> Result<CancellationToken, AppError> {
    use tokio::signal::unix::{SignalKind, signal};
    let fault = |source| AppError::Io {
        what: "signals can't be listened to".into(),
        source,
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(fault)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(fault)?;
    let mut hang_up = signal(SignalKind::hangup()).map_err(fault)?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hang_up.recv() => {}
        }
        token.cancel();
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        tracing::warn!("stopped at once; nothing that was acknowledged is lost");
        std::process::exit(130);
    });
    Ok(stop)
}

async fn open_database(
    config: &Config,
    private: Option<&Private>,
    migrate: bool,
    stop: &CancellationToken,
) -> Result<Db, AppError> {
    let options = match (&config.database, private) {
        (Database::Given(url), _) => config::database_options(url)?,
        (Database::Private(_), Some(private)) => private.connect_options(),
        (Database::Private(settings), None) => crate::postgres::attach(settings).ok_or_else(|| AppError::Io {
            what: "no database is known: set DATABASE_URL, or start `trainyard up` first".into(),
            source: io::ErrorKind::NotFound.into(),
        })?,
    };
    let db = Db::lazy(options, config.database_connections);
    if migrate {
        if let Err(error) = db.migrate().await {
            // The pool keeps to itself why it has no connection.
            db.connect().await.map_err(AppError::Unreachable)?;
            return Err(error.into());
        }
    } else {
        let needed = installation::needed_schema();
        match when_it_is_there(stop, || installation::schema(&db)).await? {
            Schema::Current(_) | Schema::Newer { .. } => {}
            Schema::Absent => return Err(AppError::Schema { found: None, needed }),
            Schema::Older { found, .. } | Schema::Broken { version: found } => {
                return Err(AppError::Schema {
                    found: Some(found),
                    needed,
                });
            }
        }
    }
    when_it_is_there(stop, || partitions::ensure(&db, Utc::now())).await?;
    Ok(db)
}

/// A server that is started while the database restarts must not give up: it waits, and says so once.
async fn when_it_is_there<T, F>(stop: &CancellationToken, ask: impl Fn() -> F) -> Result<T, DbError>
where
    F: Future<Output = Result<T, DbError>>,
{
    let mut told = false;
    loop {
        match ask().await {
            Err(error) if error.is_passing() && !stop.is_cancelled() => {
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "waiting for the database; Ctrl-C ends this"
                    );
                }
            }
            answer => return answer,
        }
        stop.run_until_cancelled(tokio::time::sleep(Duration::from_millis(500)))
            .await;
    }
}

/// The database's clock counts; a slow answer says little and is asked for again the next time.
async fn follow_clock(clock: &SystemClock, db: &Db) {
    let asked = Utc::now();
    match installation::clock(db).await {
        Ok(database) => clock.follow(database, asked, Utc::now()),
        Err(error) => tracing::debug!(%error, "the database's clock could not be read"),
    }
}

/// Workers do this too; but once the last of them is gone, only a server can still say that what we know is old.
async fn mark_stale(db: Db, clock: Arc<SystemClock>, stop: CancellationToken) {
    const OFTEN: Duration = Duration::from_secs(5);
    while stop.run_until_cancelled(tokio::time::sleep(OFTEN)).await.is_some() {
        if let Err(error) = clusters::mark_stale(&db, worker::STALE_AFTER, clock.now()).await {
            tracing::debug!(%error, "could not mark what is stale");
        }
    }
}

async fn open_worker(
    config: &Config,
    jobs_url: Option<String>,
    db: &Db,
    wakes: &Listener,
    clock: Arc<dyn Clock>,
    keys: Arc<KeyFile>,
    stop: &CancellationToken,
) -> Result<(Arc<Worker>, Arc<Local>), AppError> {
    let options = LocalOptions {
        path: Some(config.path.to_string_lossy().into_owned()),
        open_files: config.open_files,
        ..LocalOptions::new(&config.data)
    };
    let runtime = tokio::task::spawn_blocking(move || LocalRuntime::open(options))
        .await
        .map_err(|error| RuntimeError::Retry(error.to_string()))??;
    let runtime = Arc::new(runtime);
    let machine_id = machine::id(&config.data)?;
    let host = machine::host_name();
    let cluster = when_it_is_there(stop, || {
        clusters::ensure_local(db, &machine_id, &host, ClusterId(Uuid::now_v7()), clock.now())
    })
    .await?;
    let as_runtime: Arc<dyn Runtime> = runtime.clone();
    let worker = Arc::new(Worker {
        db: db.clone(),
        clock,
        id: WorkerId(Uuid::now_v7()),
        machine_id,
        listener: wakes.clone(),
        keys: Arc::new(move || keys.ring()),
        jobs_url,
        runtimes: BTreeMap::from([(cluster, as_runtime)]),
        keep: config.keep.clone(),
        starts: Starts::default(),
    });
    let local = Arc::new(Local {
        worker: worker.clone(),
        runtime,
        cluster,
        data: config.data.clone(),
    });
    Ok((worker, local))
}

/// Tells the person where to go, and leaves their commands a way in.
async fn greet(
    config: &Config,
    db: &Db,
    welcome: &Welcome,
    now: chrono::DateTime<Utc>,
    stop: &CancellationToken,
) -> Result<(), AppError> {
    let mut before = None;
    if let Some(path) = &config.client_file {
        // A token of another installation at this address would lock its owner out; a fresh start makes its own.
        let token = match !welcome.first && config::has_token_of(path, &config.public_url) {
            true => None,
            false => Some(when_it_is_there(stop, || bootstrap::local_token(db, welcome, now)).await?),
        };
        before =
            config::write_client_file(path, &config.public_url, token.as_ref()).map_err(|source| AppError::Io {
                what: format!("{} can't be written", path.display()),
                source,
            })?;
    }
    let link = when_it_is_there(stop, || bootstrap::signin_link(db, welcome.user, now)).await?;
    println!("\nTrainyard runs at {}\n", config.public_url);
    println!(
        "  Sign in (once, within 15 minutes): {}/sign-in/{link}",
        config.public_url
    );
    println!("  Another link later:                trainyard open");
    println!("  Stop it with Ctrl-C; jobs go on.\n");
    if let Some(before) = before {
        println!("  Commands that name no server go here now, and not to {before} as before.");
        println!("  For that one:                      TRAINYARD_SERVER={before}\n");
    }
    if let Some(at) = when_it_is_there(stop, || installation::read(db)).await?.restored_at {
        println!("  These records were restored at {}.", at.format("%Y-%m-%d %H:%M UTC"));
        println!("  Workers only observe. Have a look at the jobs, then: trainyard restore --confirm\n");
    }
    Ok(())
}
