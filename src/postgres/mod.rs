//! A private Postgres: an installed server that this program initialises, starts, watches and stops, when nobody named
//! a database. It listens on a socket in a closed folder and nowhere else.
//!
//! What must never happen is damage. So: one keeper per folder (a file lock that a kill releases); a server whose
//! keeper was killed is taken over as it runs; `postmaster.pid` is Postgres's own and never removed here, however stale
//! it looks, since its shared-memory line guards the data; `fsync` stays on; nothing is ever killed with SIGKILL.
//!
//! Deliberately absent: downloads (see [`binaries`]), SQL, several servers, upgrades from one major version to another.

use std::{
    fs::File,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::fcntl::Flock;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::{
    process::Child,
    sync::Mutex,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

mod account;
pub mod binaries;
mod error;
mod place;
mod postmaster;

pub use account::Account;
pub use binaries::{Binaries, Search};
pub use error::PostgresError;
use place::Place;
use postmaster::{PidFile, Status};

/// What the tests run on, and the oldest that the schema is written for.
pub const MINIMUM_MAJOR: u32 = 15;
/// The one role and the one database in it. The database is the one that every new Postgres has.
const SUPERUSER: &str = "trainyard";
const DATABASE: &str = "postgres";
const PORT: u16 = 5432;

/// Given on the command line, where they win over whatever the data folder's own files say.
const SETTINGS: [(&str, &str); 24] = [
    // The only way in is the socket.
    ("listen_addresses", ""),
    ("unix_socket_permissions", "0700"),
    ("ssl", "off"),
    // What was acknowledged stays.
    ("fsync", "on"),
    ("full_page_writes", "on"),
    ("synchronous_commit", "on"),
    // Quick on small rows; small when idle, since shared memory counts only where it was touched.
    ("max_connections", "100"),
    ("shared_buffers", "128MB"),
    ("jit", "off"),
    ("wal_compression", "on"),
    ("max_wal_size", "1GB"),
    ("checkpoint_timeout", "15min"),
    // Nothing is replicated from here, which saves log and a process.
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("max_logical_replication_workers", "0"),
    ("timezone", "UTC"),
    // The log tells what happens to the server. A client's mistakes are the client's to tell, and a statement's text
    // or values could hold what nobody should read there.
    ("logging_collector", "off"),
    ("log_destination", "stderr"),
    ("log_timezone", "UTC"),
    ("log_min_messages", "log"),
    ("log_min_error_statement", "panic"),
    ("log_checkpoints", "off"),
    ("log_autovacuum_min_duration", "-1"),
    ("log_statement", "none"),
];

/// Where a private Postgres lives and where its programs may be found.
#[derive(Debug, Clone)]
pub struct Settings {
    pub folder: PathBuf,
    pub search: Search,
}

impl Settings {
    /// The folder of the data itself, for telling a person.
    pub fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Somebody has started it before.
    pub fn is_made(&self) -> bool {
        self.data().join("PG_VERSION").exists()
    }
}

/// A running private Postgres and the right to look after it. Dropping it gives up the right and leaves the server
/// running, for the next keeper to take over; [`Private::stop`] stops it.
pub struct Private {
    place: Place,
    binaries: Binaries,
    running: Mutex<Running>,
    _lock: Flock<File>,
}

struct Running {
    pid: i32,
    /// None when it was taken over from a keeper that was killed.
    child: Option<Child>,
}

impl Private {
    /// Takes over the server of that folder, or starts it, or makes it first. Returns when it can be connected to.
    pub async fn start(settings: &Settings) -> Result<Self, PostgresError> {
        let (place, lock) = Place::prepare(&settings.folder)?;
        let major = place.data_major()?;
        let found = binaries::find(&settings.search);
        let binaries = binaries::choose(&settings.search, &found, major, &place.data)?;
        place.check_reach(&binaries).await?;
        if major.is_none() {
            tracing::info!(folder = %place.data.display(), version = binaries.version, "making a new database");
            place.initialise(&binaries).await?;
        }
        let running = launch(&place, &binaries).await?;
        Ok(Self {
            place,
            binaries,
            running: Mutex::new(running),
            _lock: lock,
        })
    }

    pub fn connect_options(&self) -> PgConnectOptions {
        connect_options(&self.place.socket_folder)
    }

    /// The programs that it runs with; `pg_dump` and others may stand beside them.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    pub async fn pid(&self) -> i32 {
        self.running.lock().await.pid
    }

    /// Starts it again whenever it ends, until told to let go. Clients meanwhile see a database that is away.
    pub async fn supervise(&self, let_go: &CancellationToken) {
        let work = async {
            let mut running = self.running.lock().await;
            loop {
                running.ended(&self.place).await;
                tracing::warn!(pid = running.pid, "Postgres ended; starting it again");
                let mut pause = Duration::from_millis(100);
                *running = loop {
                    match launch(&self.place, &self.binaries).await {
                        Ok(running) => break running,
                        Err(error) => tracing::error!(%error, "Postgres does not start; trying again"),
                    }
                    sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_secs(5));
                };
                tracing::info!(pid = running.pid, "Postgres is back");
            }
        };
        let_go.run_until_cancelled(work).await;
    }

    /// Fast shutdown, and waits for it: everything acknowledged is on disk and no process is left.
    pub async fn stop(self) -> Result<(), PostgresError> {
        let mut running = self.running.into_inner();
        if postmaster::is_of(running.pid, &self.place.data) {
            // It may end by itself between the look and the signal, which is as good.
            let _ = postmaster::ask_to_stop(running.pid);
        }
        let patience = Instant::now() + Duration::from_secs(120);
        let gone = async {
            running.ended(&self.place).await;
            while PidFile::read(&self.place.data).is_some_and(|file| file.pid == running.pid) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        match tokio::time::timeout_at(patience, gone).await {
            Ok(()) => Ok(()),
            Err(_) => Err(PostgresError::StillStopping { pid: running.pid }),
        }
    }
}

/// A private Postgres for a command that needs it for a moment: the one that runs, or one started for the purpose.
pub enum Reached {
    /// Somebody else keeps it, `trainyard up` most likely.
    Running(PgConnectOptions),
    Started(Private),
}

pub async fn reach(settings: &Settings) -> Result<Reached, PostgresError> {
    match attach(settings) {
        Some(options) => Ok(Reached::Running(options)),
        None => Ok(Reached::Started(Private::start(settings).await?)),
    }
}

impl Reached {
    pub fn connect_options(&self) -> PgConnectOptions {
        match self {
            Reached::Running(options) => options.clone(),
            Reached::Started(private) => private.connect_options(),
        }
    }

    /// Stops it if it was started for the purpose.
    pub async fn leave(self) -> Result<(), PostgresError> {
        match self {
            Reached::Running(_) => Ok(()),
            Reached::Started(private) => private.stop().await,
        }
    }
}

/// How to reach the server of that folder if one runs and is ready, whoever keeps it. Makes and starts nothing.
pub fn attach(settings: &Settings) -> Option<PgConnectOptions> {
    let data = settings.data().canonicalize().ok()?;
    let file = PidFile::read(&data)?;
    let live = file.status == Status::Ready && postmaster::is_of(file.pid, &data) && postmaster::answers(&file);
    live.then(|| connect_options(&file.socket_folder))
}

fn connect_options(socket_folder: &Path) -> PgConnectOptions {
    // Every field that sqlx would take from a PG* variable is set. PGOPTIONS can't be unset here, see config.
    PgConnectOptions::new_without_pgpass()
        .host("localhost")
        .socket(socket_folder)
        .port(PORT)
        .username(SUPERUSER)
        .database(DATABASE)
        .ssl_mode(PgSslMode::Disable)
        .application_name("trainyard")
}

async fn launch(place: &Place, binaries: &Binaries) -> Result<Running, PostgresError> {
    // After a kill -9 of the server, one of its children can hold the shared memory for seconds.
    let patience = Instant::now() + Duration::from_secs(15);
    loop {
        if let Some(running) = take_over(place).await? {
            return Ok(running);
        }
        match spawn(place, binaries).await {
            Err(PostgresError::MemoryInUse { .. }) if Instant::now() < patience => {}
            // Killed, but its parent has not taken note yet; until then Postgres takes the pid for a running server.
            Err(PostgresError::PidReused { pid, .. }) if !postmaster::is_alive(pid) && Instant::now() < patience => {}
            other => return other,
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// A server that is already there, once it can be talked to. None: there is none, or it went while we waited.
async fn take_over(place: &Place) -> Result<Option<Running>, PostgresError> {
    let mut silent_since = None;
    let mut waiting = Waiting::new("waiting for a Postgres that is already there");
    loop {
        let Some(file) = PidFile::read(&place.data).filter(|file| postmaster::is_of(file.pid, &place.data)) else {
            return Ok(None);
        };
        if file.socket_folder != place.socket_folder || file.port != PORT {
            return Err(PostgresError::Foreign {
                pid: file.pid,
                data: place.data.clone(),
            });
        }
        if file.status == Status::Ready {
            if postmaster::answers(&file) {
                tracing::info!(pid = file.pid, "took over a running Postgres");
                return Ok(Some(Running {
                    pid: file.pid,
                    child: None,
                }));
            }
            let since = *silent_since.get_or_insert_with(Instant::now);
            if since.elapsed() > Duration::from_secs(10) {
                return Err(PostgresError::Silent { pid: file.pid });
            }
        }
        waiting.pause().await;
    }
}

async fn spawn(place: &Place, binaries: &Binaries) -> Result<Running, PostgresError> {
    let (log, length) = place.open_log()?;
    let log_again = log
        .try_clone()
        .map_err(|error| PostgresError::file(&place.log_path(), error))?;
    let mut command = place.command(&binaries.postgres());
    command.arg("-D").arg(&place.data).arg("-k").arg(&place.socket_folder);
    command.args(["-p", &PORT.to_string()]);
    for (name, value) in SETTINGS {
        command.arg("-c").arg(format!("{name}={value}"));
    }
    // A file and not a pipe: nobody has to read it, and the server outlives us.
    let mut child = command
        .stdout(log)
        .stderr(log_again)
        .spawn()
        .map_err(|error| place.unreachable(binaries, error))?;
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).unwrap_or(0);
    let mut waiting = Waiting::new("waiting for Postgres to be ready");
    loop {
        if let Ok(Some(_)) = child.try_wait() {
            return Err(PostgresError::from_words("Postgres", &place.log_since(length), place));
        }
        let ready = PidFile::read(&place.data).is_some_and(|file| file.pid == pid && file.status == Status::Ready);
        if ready {
            return Ok(Running {
                pid,
                child: Some(child),
            });
        }
        waiting.pause().await;
    }
}

impl Running {
    /// Returns when the server is no more.
    async fn ended(&mut self, place: &Place) {
        match &mut self.child {
            Some(child) => {
                let _ = child.wait().await;
            }
            // Not our child, so nobody tells us.
            None => {
                while postmaster::is_of(self.pid, &place.data) {
                    sleep(Duration::from_millis(250)).await;
                }
            }
        }
    }
}

/// Looks often at first and seldom later, and says now and then what it is that takes so long.
struct Waiting {
    what: &'static str,
    started: Instant,
    said: Instant,
}

impl Waiting {
    fn new(what: &'static str) -> Self {
        let now = Instant::now();
        Self {
            what,
            started: now,
            said: now,
        }
    }

    async fn pause(&mut self) {
        if self.said.elapsed() > Duration::from_secs(5) {
            self.said = Instant::now();
            let seconds = self.started.elapsed().as_secs();
            tracing::info!(seconds, "{}; after a crash it first reads its log", self.what);
        }
        let millis = (self.started.elapsed().as_millis() / 10).clamp(2, 100) as u64;
        sleep(Duration::from_millis(millis)).await;
    }
}
