//! The database in one file, and back. The file is a tar of a manifest and what `pg_dump` wrote.
//!
//! The key ring is never in it: who finds a backup must not find the secrets. A restore is one transaction, which also
//! marks the records as restored: until a person confirms, workers only observe, since what ran when the backup was
//! made is not what runs now.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    process::Stdio,
};

use chrono::{DateTime, SubsecRound, Utc};
use tokio::io::AsyncWriteExt;

use crate::{
    actions::restored,
    config::{Config, ConfigError, Database},
    db::{
        Db, DbError,
        installation::{self, Schema},
    },
    packages,
    postgres::{self, PostgresError, Private, Reached},
    private_file,
};

mod file;
mod target;

pub use file::Manifest;
use file::{Staged, check, digest, feed};
use target::Target;

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Postgres(#[from] PostgresError),
    #[error("{}", with_source(.0))]
    Database(#[from] DbError),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("`{name}` for PostgreSQL {major} was not found. Get it: {}", packages::line_here(&packages::POSTGRES_CLIENT))]
    NoTool { name: &'static str, major: u32 },
    #[error("{name} failed and said: {words}. Nothing was changed")]
    Tool { name: &'static str, words: String },
    #[error("the database has no records of Trainyard, so there is nothing to back up")]
    Nothing,
    #[error("{} is no backup that this program can read: {why}", path.display())]
    NotABackup { path: PathBuf, why: String },
    #[error(
        "the backup has schema {found}, made by a newer Trainyard ({version}); this one knows {needed}. Use the newer one"
    )]
    Newer { found: i64, needed: i64, version: String },
    #[error(
        "the database already has {0} tables. To drop them and everything in them: `trainyard restore --replace FILE`"
    )]
    NotEmpty(i64),
    #[error(
        "{0} connections of running Trainyard processes are open on the database. Stop every `serve`, `work` and `up` first"
    )]
    InUse(i64),
}

fn with_source(error: &DbError) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

/// Writes a backup, and returns words about it.
pub async fn backup(config: &Config, file: Option<&Path>, now: DateTime<Utc>) -> Result<String, BackupError> {
    let path = match file {
        Some(file) => file.to_path_buf(),
        None => PathBuf::from(format!("trainyard-{}.backup", now.format("%Y%m%dT%H%M%SZ"))),
    };
    let reached = match &config.database {
        Database::Given(_) => None,
        Database::Private(settings) => Some(postgres::reach(settings).await?),
    };
    let written = write(config, reached.as_ref(), &path, now).await;
    if let Some(reached) = reached {
        reached.leave().await?;
    }
    let manifest = written?;
    Ok(format!(
        "Wrote {}: {} bytes of database, schema {}, installation {}.\n\
         The keys in {} are not in it. Keep a copy of them apart: without it, the backup's secrets can't be read.\n",
        path.display(),
        manifest.dump_bytes,
        manifest.schema,
        manifest.installation,
        config.keys_file.display()
    ))
}

async fn write(
    config: &Config,
    reached: Option<&Reached>,
    path: &Path,
    now: DateTime<Utc>,
) -> Result<Manifest, BackupError> {
    let fault = |source| BackupError::File {
        path: path.to_path_buf(),
        source,
    };
    if path.exists() {
        return Err(fault(io::ErrorKind::AlreadyExists.into()));
    }
    let target = Target::of(config, reached)?;
    let db = Db::lazy(target.options.clone(), 1);
    let schema = match installation::schema(&db).await? {
        Schema::Absent => return Err(BackupError::Nothing),
        Schema::Older { found, .. } | Schema::Newer { found, .. } | Schema::Current(found) => found,
        Schema::Broken { version } => version,
    };
    let major = installation::server_major(&db).await?;
    let installation = match installation::read(&db).await {
        Err(DbError::NotFound) => return Err(BackupError::Nothing),
        other => other?.id,
    };
    db.close().await;

    let staged_dump = Staged(private_file::staged(path));
    let dump = private_file::create(&staged_dump.0).map_err(fault)?;
    let mut pg_dump = target.tool(config, "pg_dump", major)?;
    pg_dump
        .args(["--format=custom", "--no-owner", "--no-privileges"])
        .stdout(dump)
        .kill_on_drop(true);
    // Not `output()`, which would take the dump into memory.
    let running = pg_dump.spawn().map_err(|error| failed("pg_dump", error.to_string()))?;
    finish("pg_dump", running.wait_with_output().await)?;

    let (dump_bytes, dump_sha256) = digest(&mut File::open(&staged_dump.0).map_err(fault)?).map_err(fault)?;
    let manifest = Manifest {
        format: 1,
        trainyard: env!("CARGO_PKG_VERSION").to_owned(),
        schema,
        postgres: major,
        installation,
        taken_at: now.trunc_subsecs(0),
        dump_bytes,
        dump_sha256,
        keys: "The key file is not in this backup; without a copy of it, its secrets can't be read.".to_owned(),
    };
    file::pack(path, &manifest, &staged_dump.0).map_err(fault)?;
    Ok(manifest)
}

/// Brings a backup back, and returns words about it.
pub async fn restore(config: &Config, path: &Path, replace: bool, now: DateTime<Utc>) -> Result<String, BackupError> {
    let manifest = check(path)?;
    let private = match &config.database {
        Database::Given(_) => None,
        // Not merely reached: nobody else may use it meanwhile, and the lock says so.
        Database::Private(settings) => Some(Private::start(settings).await?),
    };
    let reached = private.map(Reached::Started);
    let done = bring_back(config, reached.as_ref(), path, &manifest, replace, now).await;
    if let Some(reached) = reached {
        reached.leave().await?;
    }
    done?;
    Ok(format!(
        "Restored installation {} as of {}.\n\
         Secrets need the key file of that time as {}.\n\
         People, roles and tokens are as of then, too; a token that was revoked since holds again: trainyard token list\n\
         Every browser has to sign in anew: trainyard open\n\
         Workers only observe now. Have a look at the jobs, then let them act: trainyard restore --confirm\n",
        manifest.installation,
        manifest.taken_at,
        config.keys_file.display()
    ))
}

/// Lets workers act on restored records.
pub async fn confirm(config: &Config, now: DateTime<Utc>) -> Result<String, BackupError> {
    let reached = match &config.database {
        Database::Given(_) => None,
        Database::Private(settings) => Some(postgres::reach(settings).await?),
    };
    let target = Target::of(config, reached.as_ref())?;
    let db = Db::lazy(target.options, 1);
    let done = restored::confirm_here(&db, now).await;
    db.close().await;
    if let Some(reached) = reached {
        reached.leave().await?;
    }
    Ok(match done? {
        true => {
            "Confirmed: workers act on these records from now on, and end what runs and is not in them.\n".to_owned()
        }
        false => "There was nothing to confirm: no restore is waiting.\n".to_owned(),
    })
}

async fn bring_back(
    config: &Config,
    reached: Option<&Reached>,
    path: &Path,
    manifest: &Manifest,
    replace: bool,
    now: DateTime<Utc>,
) -> Result<(), BackupError> {
    let target = Target::of(config, reached)?;
    let db = Db::lazy(target.options.clone(), 1);
    let others = installation::others(&db).await?;
    if others > 0 {
        return Err(BackupError::InUse(others));
    }
    let tables = installation::tables(&db).await?;
    if tables > 0 && !replace {
        return Err(BackupError::NotEmpty(tables));
    }
    let major = installation::server_major(&db).await?;
    db.close().await;

    let mut pg_restore = target.tool(config, "pg_restore", manifest.postgres)?;
    let mut reader = pg_restore
        .args(["--file=-", "--no-owner", "--no-privileges"])
        .env_remove("PGDATABASE")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed("pg_restore", error.to_string()))?;
    let mut psql = target.tool(config, "psql", major)?;
    let mut writer = psql
        .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--file=-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| failed("psql", error.to_string()))?;
    // Both were asked for above.
    let (Some(archive), Some(mut statements), Some(mut sink)) =
        (reader.stdin.take(), reader.stdout.take(), writer.stdin.take())
    else {
        return Err(failed("pg_restore", "its streams are missing".to_owned()));
    };

    let feeding = feed(path.to_path_buf(), archive);
    let joining = async move {
        let begin = format!(
            "begin;\nset local client_min_messages = warning;\n{}",
            installation::BEFORE_RESTORE
        );
        sink.write_all(begin.as_bytes()).await?;
        tokio::io::copy(&mut statements, &mut sink).await?;
        Ok::<_, io::Error>(sink)
    };
    let (fed, joined, read) = tokio::join!(feeding, joining, reader.wait_with_output());
    // Whatever failed, psql goes without having read `commit`, and Postgres takes everything back. What psql itself
    // has to say comes first, since its end is why the others' pipes broke.
    let sink = match (joined, fed, finish("pg_restore", read)) {
        (Ok(sink), Ok(()), Ok(())) => Ok(sink),
        (Ok(_), Err(error), _) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(failed("reading the backup", error.to_string()));
        }
        (Ok(_), _, Err(error)) => return Err(error),
        (Ok(_), Err(error), Ok(())) | (Err(error), ..) => Err(error),
    };
    let committed = async {
        let end = format!("{}commit;\n", installation::after_restore(now));
        let mut sink = sink?;
        sink.write_all(end.as_bytes()).await?;
        sink.shutdown().await
    };
    let committed = committed.await;
    finish("psql", writer.wait_with_output().await)?;
    committed.map_err(|error| failed("psql", error.to_string()))
}

fn finish(name: &'static str, ended: io::Result<std::process::Output>) -> Result<(), BackupError> {
    match ended {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(failed(name, String::from_utf8_lossy(&output.stderr).trim().to_owned())),
        Err(error) => Err(failed(name, error.to_string())),
    }
}

fn failed(name: &'static str, words: String) -> BackupError {
    BackupError::Tool { name, words }
}
