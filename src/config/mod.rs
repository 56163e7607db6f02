//! Settings, and the only reader of the environment: every other room is handed values. Flags win over variables,
//! variables over files, files over defaults. Secrets are wrapped, so that no log line or error can show them.

use std::{
    ffi::OsString,
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
};

use clap::{Args, ValueEnum};
use nix::{
    sys::resource::{Resource, getrlimit},
    unistd::{User, geteuid},
};
use secrecy::{ExposeSecret, SecretString};
use sqlx::postgres::PgConnectOptions;
use trainyard_core::{
    document::units::{Duration as Span, MemoryQuantity, UnitError},
    model::Retention,
};

use crate::postgres::{self, binaries};

mod client;

pub use client::{ClientArgs, Connection, Output, asks_for_json, has_token_of, write_client_file};

/// Where `up` and `serve` listen unless told otherwise.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:7420";
pub const DEFAULT_METRICS_LISTEN: &str = "127.0.0.1:7421";

/// Settings of the program as a server, worker or keeper of its data.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Settings")]
pub struct ServerArgs {
    /// Folder for all that this installation keeps on this machine [default: /var/lib/trainyard as root, else
    /// ~/.local/share/trainyard]
    #[arg(long, env = "TRAINYARD_DATA", value_name = "FOLDER")]
    pub data: Option<PathBuf>,
    /// Address of the pages and the API
    #[arg(long, env = "TRAINYARD_LISTEN", value_name = "ADDRESS:PORT", default_value = DEFAULT_LISTEN)]
    pub listen: SocketAddr,
    /// Address of /metrics, on loopback
    #[arg(long, env = "TRAINYARD_METRICS_LISTEN", value_name = "ADDRESS:PORT", default_value = DEFAULT_METRICS_LISTEN)]
    pub metrics_listen: SocketAddr,
    /// The address that people's browsers use, when it is not the one listened on (a proxy with TLS, say)
    #[arg(long, env = "TRAINYARD_URL", value_name = "URL")]
    pub public_url: Option<String>,
    /// Where this machine's jobs reach the API, to report with a token of their own [default: --public-url if given,
    /// else the address listened on; `work` alone knows none and gives its jobs no token]
    #[arg(long, env = "TRAINYARD_JOBS_URL", value_name = "URL")]
    pub jobs_url: Option<String>,
    /// The key ring that secrets are encrypted with [default: keys in the data folder]
    #[arg(long, env = "TRAINYARD_KEYS_FILE", value_name = "FILE")]
    pub keys_file: Option<PathBuf>,
    /// Folder with the programs of a PostgreSQL server, instead of searching for one
    #[arg(long, env = "TRAINYARD_POSTGRES_BIN", value_name = "FOLDER")]
    pub postgres_bin: Option<PathBuf>,
    /// Most connections to the database that this process opens
    #[arg(long, env = "TRAINYARD_DATABASE_CONNECTIONS", value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(4..=1000))]
    pub database_connections: u32,
    /// Requests of one caller that are answered per second; twice as many at once after a pause
    #[arg(long, env = "TRAINYARD_REQUEST_RATE", value_name = "N", default_value_t = 2000,
          value_parser = clap::value_parser!(u32).range(1..))]
    pub request_rate: u32,
    #[command(flatten)]
    pub keep: Keep,
    /// What is logged: a level, or levels per module as in "info,sqlx=error,trainyard::worker=debug"
    #[arg(
        long,
        env = "TRAINYARD_LOG",
        value_name = "FILTER",
        default_value = "info,sqlx=error"
    )]
    pub log: String,
    /// How log lines look; auto is for people on a terminal and JSON elsewhere
    #[arg(long, env = "TRAINYARD_LOG_FORMAT", value_name = "FORMAT", default_value = "auto")]
    pub log_format: LogFormat,
}

/// How long what is over is kept. Jobs themselves stay; by the retention class of its document, a job's output, plots
/// and events go so long after its end.
#[derive(Debug, Clone, PartialEq, Args)]
pub struct Keep {
    /// How long output, plots and events of jobs with retention: short are kept after the end
    #[arg(long = "keep-short", env = "TRAINYARD_KEEP_SHORT", value_name = "DURATION", default_value = "7d", value_parser = span)]
    pub short: Span,
    /// The same for retention: standard, which is what documents have that name none
    #[arg(long = "keep-standard", env = "TRAINYARD_KEEP_STANDARD", value_name = "DURATION", default_value = "90d", value_parser = span)]
    pub standard: Span,
    /// The same for retention: long
    #[arg(long = "keep-long", env = "TRAINYARD_KEEP_LONG", value_name = "DURATION", default_value = "730d", value_parser = span)]
    pub long: Span,
    /// How long the audit log and the events of nodes and clusters are kept
    #[arg(long = "keep-audit", env = "TRAINYARD_KEEP_AUDIT", value_name = "DURATION", default_value = "730d", value_parser = span)]
    pub installation: Span,
    /// As much room as all stored output may take; beyond it the oldest output goes, short retention first
    #[arg(
        long = "keep-logs",
        env = "TRAINYARD_KEEP_LOGS",
        value_name = "SIZE",
        default_value = "100Gi"
    )]
    pub logs: MemoryQuantity,
}

impl Keep {
    pub fn of(&self, class: Retention) -> chrono::Duration {
        match class {
            Retention::Short => self.short.as_chrono(),
            Retention::Standard => self.standard.as_chrono(),
            Retention::Long => self.long.as_chrono(),
        }
    }
}

impl Default for Keep {
    fn default() -> Self {
        const DAY: u64 = 86_400;
        Self {
            short: Span::seconds(7 * DAY),
            standard: Span::seconds(90 * DAY),
            long: Span::seconds(730 * DAY),
            installation: Span::seconds(730 * DAY),
            logs: MemoryQuantity::bytes(100 << 30),
        }
    }
}

/// A span that a slip of the pen can't make nothing of.
fn span(text: &str) -> Result<Span, String> {
    let span: Span = text.parse().map_err(|error: UnitError| error.to_string())?;
    if span.as_seconds() < 3600 {
        return Err(format!(
            "'{text}' is less than an hour, the least that anything is kept; write 1h or more"
        ));
    }
    Ok(span)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Auto,
    Human,
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// Never with the value: it has a password in it.
    #[error(
        "DATABASE_URL is not an address of a PostgreSQL database: {0}. \
         It looks like postgres://user:password@host:5432/database"
    )]
    DatabaseUrl(String),
    #[error(
        "--metrics-listen (TRAINYARD_METRICS_LISTEN) is {0}, which other machines can reach; \
         figures are for this machine alone. Use a loopback address such as {DEFAULT_METRICS_LISTEN}"
    )]
    MetricsNotLoopback(SocketAddr),
    #[error("--public-url (TRAINYARD_URL) is '{value}': {why}. It looks like https://trainyard.example.org")]
    PublicUrl { value: String, why: String },
    #[error("--jobs-url (TRAINYARD_JOBS_URL) is '{value}': {why}. It looks like http://{DEFAULT_LISTEN}")]
    JobsUrl { value: String, why: String },
    #[error("no home folder is known, so there is no place for data. Name one in TRAINYARD_DATA")]
    NoHome,
    #[error("no server is known. Name it with --server or TRAINYARD_SERVER, or start one with `trainyard up`")]
    NoServer,
    #[error("--server (TRAINYARD_SERVER) is '{value}': {why}. It looks like http://{DEFAULT_LISTEN}")]
    Server { value: String, why: String },
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
}

/// What the environment says, apart from what flags stand for. Read once by [`Environment::read`]; tests make theirs.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    pub root: bool,
    pub home: Option<PathBuf>,
    pub path: OsString,
    /// How many files the program was allowed to have open when it began.
    pub open_files: Option<u64>,
    pub xdg_data_home: Option<PathBuf>,
    pub xdg_config_home: Option<PathBuf>,
    /// From the environment alone: a flag would show its password in the list of processes.
    pub database_url: Option<SecretString>,
    /// TRAINYARD_UNSAFE_SKIP_FENCES, for the test that shows what fences are good for. A release build ignores it.
    pub unsafe_skip_fences: bool,
}

impl Environment {
    pub fn read() -> Self {
        let folder = |name| {
            std::env::var_os(name)
                .map(PathBuf::from)
                .filter(|path| path.is_absolute())
        };
        let home_by_account = || User::from_uid(geteuid()).ok().flatten().map(|user| user.dir);
        Self {
            root: geteuid().is_root(),
            home: folder("HOME").or_else(home_by_account),
            path: std::env::var_os("PATH").unwrap_or_default(),
            open_files: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(files, _)| files),
            xdg_data_home: folder("XDG_DATA_HOME"),
            xdg_config_home: folder("XDG_CONFIG_HOME"),
            database_url: std::env::var("DATABASE_URL")
                .ok()
                .filter(|url| !url.is_empty())
                .map(SecretString::from),
            unsafe_skip_fences: cfg!(debug_assertions)
                && std::env::var_os("TRAINYARD_UNSAFE_SKIP_FENCES").is_some_and(|value| value == "1"),
        }
    }

    /// The client's own file: the server's address and a token, written by `up` for the person who ran it.
    pub fn client_file(&self) -> Option<PathBuf> {
        let config = self
            .xdg_config_home
            .clone()
            .or_else(|| Some(self.home.as_ref()?.join(".config")))?;
        Some(config.join("trainyard/client.json"))
    }

    fn data(&self) -> Result<PathBuf, ConfigError> {
        if self.root {
            return Ok(PathBuf::from("/var/lib/trainyard"));
        }
        let share = match (&self.xdg_data_home, &self.home) {
            (Some(share), _) => share.clone(),
            (None, Some(home)) => home.join(".local/share"),
            (None, None) => return Err(ConfigError::NoHome),
        };
        Ok(share.join("trainyard"))
    }
}

/// Settings, checked and whole.
#[derive(Debug, Clone)]
pub struct Config {
    /// Runs as root, so replicas can have an account of their own; otherwise all is one trust domain.
    pub root: bool,
    pub data: PathBuf,
    pub database: Database,
    pub database_connections: u32,
    /// Per caller and second.
    pub request_rate: u32,
    pub listen: SocketAddr,
    pub metrics_listen: SocketAddr,
    /// Without a slash at its end.
    pub public_url: String,
    /// Where jobs reach the API, if a setting says so. Without a slash at its end.
    pub jobs_url: Option<String>,
    pub keys_file: PathBuf,
    pub client_file: Option<PathBuf>,
    pub keep: Keep,
    /// Where programs of PostgreSQL may be, its clients included.
    pub search: postgres::Search,
    /// The PATH of the person who started us; replicas of root get another, see the local runtime.
    pub path: OsString,
    /// What replicas may have open: as many files as we were allowed before we raised that for ourselves.
    pub open_files: Option<u64>,
    pub log: String,
    pub log_format: LogFormat,
    /// For tests alone: see [`Environment::unsafe_skip_fences`].
    pub unsafe_skip_fences: bool,
}

#[derive(Debug, Clone)]
pub enum Database {
    /// What DATABASE_URL says. Kept wrapped, since sqlx's own type shows its password when printed for debugging.
    Given(SecretString),
    Private(postgres::Settings),
}

impl ServerArgs {
    pub fn resolve(&self, environment: &Environment) -> Result<Config, ConfigError> {
        if !self.metrics_listen.ip().is_loopback() {
            return Err(ConfigError::MetricsNotLoopback(self.metrics_listen));
        }
        let data = match &self.data {
            Some(folder) if !folder.as_os_str().is_empty() => absolute(folder)?,
            _ => environment.data()?,
        };
        let database = match &environment.database_url {
            Some(url) => {
                database_options(url)?;
                Database::Given(url.clone())
            }
            None => Database::Private(postgres::Settings {
                folder: data.join("postgres"),
                search: self.search(&data, environment),
            }),
        };
        let keys_file = match &self.keys_file {
            Some(file) if !file.as_os_str().is_empty() => absolute(file)?,
            _ => data.join("keys"),
        };
        Ok(Config {
            root: environment.root,
            database,
            database_connections: self.database_connections,
            request_rate: self.request_rate,
            listen: self.listen,
            metrics_listen: self.metrics_listen,
            public_url: public_url(self.public_url.as_deref(), self.listen)?,
            jobs_url: jobs_url(self.jobs_url.as_deref(), self.public_url.as_deref())?,
            keys_file,
            client_file: environment.client_file(),
            keep: self.keep.clone(),
            search: self.search(&data, environment),
            path: environment.path.clone(),
            open_files: environment.open_files,
            log: self.log.clone(),
            log_format: self.log_format,
            unsafe_skip_fences: environment.unsafe_skip_fences,
            data,
        })
    }

    fn search(&self, data: &Path, environment: &Environment) -> postgres::Search {
        let fetched = postgres_package_folder(data);
        let system = binaries::SYSTEM_PATTERNS.iter().map(PathBuf::from);
        postgres::Search {
            only: self
                .postgres_bin
                .clone()
                .filter(|folder| !folder.as_os_str().is_empty()),
            path: environment.path.clone(),
            patterns: system
                .chain(binaries::FETCHED_PATTERNS.iter().map(|pattern| fetched.join(pattern)))
                .collect(),
        }
    }
}

/// Where `./run` puts a package with a PostgreSQL server when the machine has none.
pub fn postgres_package_folder(data: &Path) -> PathBuf {
    data.join("postgres-package")
}

/// How to connect to the database of that URL.
pub fn database_options(url: &SecretString) -> Result<PgConnectOptions, ConfigError> {
    let fault = |error: &dyn std::error::Error| ConfigError::DatabaseUrl(error.to_string());
    let parsed = url::Url::parse(url.expose_secret()).map_err(|error| fault(&error))?;
    if !matches!(parsed.scheme(), "postgres" | "postgresql") {
        return Err(ConfigError::DatabaseUrl(format!(
            "it begins with '{}:'",
            parsed.scheme()
        )));
    }
    url.expose_secret().parse().map_err(|error: sqlx::Error| fault(&error))
}

fn public_url(given: Option<&str>, listen: SocketAddr) -> Result<String, ConfigError> {
    let Some(given) = given.filter(|url| !url.is_empty()) else {
        return Ok(url_here(listen));
    };
    http_url(given).map_err(|why| ConfigError::PublicUrl {
        value: given.to_owned(),
        why,
    })
}

/// What is listened on, as this machine reaches it. Nobody can open 0.0.0.0.
pub fn url_here(listen: SocketAddr) -> String {
    match (listen.ip().is_unspecified(), listen.ip().is_loopback()) {
        (true, _) => format!("http://localhost:{}", listen.port()),
        (_, true) => format!("http://127.0.0.1:{}", listen.port()),
        _ => format!("http://{listen}"),
    }
}

fn jobs_url(given: Option<&str>, public: Option<&str>) -> Result<Option<String>, ConfigError> {
    let named = given
        .filter(|url| !url.is_empty())
        .or(public.filter(|url| !url.is_empty()));
    let Some(named) = named else { return Ok(None) };
    http_url(named).map(Some).map_err(|why| ConfigError::JobsUrl {
        value: named.to_owned(),
        why,
    })
}

/// An absolute http or https address without query, fragment or a slash at its end.
fn http_url(text: &str) -> Result<String, String> {
    let url = url::Url::parse(text).map_err(|error| error.to_string())?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err("it is no http or https address".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("it has a query or a fragment".to_owned());
    }
    Ok(url.as_str().trim_end_matches('/').to_owned())
}

fn absolute(path: &Path) -> Result<PathBuf, ConfigError> {
    std::path::absolute(path).map_err(|error| ConfigError::File {
        path: path.to_path_buf(),
        why: error.to_string(),
    })
}

/// Starts this program again in its place without `PGOPTIONS`, if that is set: sqlx adds it to every connection,
/// whatever it is told, and what was meant for another server must not reach the private one.
/// Returns only if there was nothing to do, or with what went wrong.
pub fn shed_pgoptions() -> std::io::Result<()> {
    const NAME: &str = "PGOPTIONS";
    if std::env::var_os(NAME).is_none() {
        return Ok(());
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.args(std::env::args_os().skip(1)).env_remove(NAME);
    Err(command.exec())
}
