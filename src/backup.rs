//! The database in one file, and back. The file is a tar of a manifest and what `pg_dump` wrote.
//!
//! The key ring is never in it: who finds a backup must not find the secrets. A restore is one transaction, which also
//! marks the records as restored: until a person confirms, workers only observe, since what ran when the backup was
//! made is not what runs now.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    process::Stdio,
};

use chrono::{DateTime, SubsecRound, Utc};
use data_encoding::HEXLOWER;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::{io::AsyncWriteExt, process::Command};
use uuid::Uuid;

use crate::{
    config::{self, Config, ConfigError, Database},
    db::{
        Db, DbError,
        installation::{self, Schema},
    },
    packages,
    postgres::{self, PostgresError, Private, Reached, binaries},
    private_file,
};

const MANIFEST: &str = "manifest.json";
const DUMP: &str = "database.dump";

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

/// What a backup says about itself, readable without a database: `tar -xOf FILE manifest.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub trainyard: String,
    pub schema: i64,
    pub postgres: u32,
    pub installation: Uuid,
    pub taken_at: DateTime<Utc>,
    pub dump_bytes: u64,
    pub dump_sha256: String,
    /// For whoever opens the file and wonders.
    pub keys: String,
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
    let staged = Staged(private_file::staged(path));
    let pack = || -> io::Result<()> {
        let mut tar = tar::Builder::new(private_file::create(&staged.0)?);
        let text = serde_json::to_vec_pretty(&manifest)?;
        append(&mut tar, MANIFEST, text.len() as u64, now, text.as_slice())?;
        append(&mut tar, DUMP, dump_bytes, now, File::open(&staged_dump.0)?)?;
        tar.into_inner()?.sync_all()?;
        // Unlike a rename, a link never takes another file's place.
        std::fs::hard_link(&staged.0, path)?;
        private_file::sync_parent(path)
    };
    pack().map_err(fault)?;
    Ok(manifest)
}

fn append(tar: &mut tar::Builder<File>, name: &str, bytes: u64, at: DateTime<Utc>, from: impl Read) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(u64::try_from(at.timestamp()).unwrap_or(0));
    tar.append_data(&mut header, name, from)
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
         Workers only observe now. Have a look at the jobs, then let them act: trainyard restore --confirm\n",
        manifest.installation,
        manifest.taken_at,
        config.keys_file.display()
    ))
}

/// Lets workers act on restored records.
pub async fn confirm(config: &Config) -> Result<String, BackupError> {
    let reached = match &config.database {
        Database::Given(_) => None,
        Database::Private(settings) => Some(postgres::reach(settings).await?),
    };
    let target = Target::of(config, reached.as_ref())?;
    let db = Db::lazy(target.options, 1);
    let done = installation::confirm_restore(&db).await;
    db.close().await;
    if let Some(reached) = reached {
        reached.leave().await?;
    }
    Ok(match done? {
        true => "Confirmed: workers act on these records from now on.\n".to_owned(),
        false => "There was nothing to confirm: no restore is waiting.\n".to_owned(),
    })
}

/// Reads the whole file once before anything is touched.
fn check(path: &Path) -> Result<Manifest, BackupError> {
    let refuse = |why: String| BackupError::NotABackup {
        path: path.to_path_buf(),
        why,
    };
    let mut tar = open(path)?;
    let mut entries = tar.entries().map_err(|error| refuse(error.to_string()))?;
    let mut next = |name: &str| match entries.next() {
        Some(Ok(entry)) if entry.path().is_ok_and(|path| path.as_os_str() == name) => Ok(entry),
        Some(Err(error)) => Err(refuse(error.to_string())),
        _ => Err(refuse(format!("it has no {name} where one belongs"))),
    };
    let manifest: Manifest = serde_json::from_reader(next(MANIFEST)?.take(1 << 20))
        .map_err(|error| refuse(format!("{MANIFEST}: {error}")))?;
    if manifest.format != 1 {
        return Err(refuse(format!(
            "its format is {}, and this program knows 1",
            manifest.format
        )));
    }
    let needed = installation::needed_schema();
    if manifest.schema > needed {
        return Err(BackupError::Newer {
            found: manifest.schema,
            needed,
            version: manifest.trainyard,
        });
    }
    let (bytes, sha256) = digest(&mut next(DUMP)?).map_err(|error| refuse(error.to_string()))?;
    if (bytes, &sha256) != (manifest.dump_bytes, &manifest.dump_sha256) {
        return Err(refuse(format!(
            "{DUMP} is cut off or was changed ({bytes} bytes, sha256 {sha256})"
        )));
    }
    Ok(manifest)
}

fn open(path: &Path) -> Result<tar::Archive<File>, BackupError> {
    let file = File::open(path).map_err(|source| BackupError::File {
        path: path.to_path_buf(),
        source,
    })?;
    Ok(tar::Archive::new(file))
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

/// Hands the dump out of the backup to `pg_restore`. The tar is read on a thread of its own, since it knows no async.
async fn feed(path: PathBuf, mut archive: tokio::process::ChildStdin) -> io::Result<()> {
    let (send, mut receive) = tokio::sync::mpsc::channel::<Vec<u8>>(4);
    let reading = tokio::task::spawn_blocking(move || -> io::Result<()> {
        let mut tar = tar::Archive::new(File::open(path)?);
        for entry in tar.entries()? {
            let mut entry = entry?;
            if entry.path()?.as_os_str() != DUMP {
                continue;
            }
            loop {
                let mut part = vec![0; 256 << 10];
                let length = entry.read(&mut part)?;
                part.truncate(length);
                if length == 0 || send.blocking_send(part).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    });
    while let Some(part) = receive.recv().await {
        archive.write_all(&part).await?;
    }
    archive.shutdown().await?;
    drop(archive);
    reading.await.map_err(io::Error::other)?
}

/// The database and how Postgres's own programs reach it.
struct Target {
    options: sqlx::postgres::PgConnectOptions,
    environment: Vec<(&'static str, String)>,
    /// Names the database on the command line, without its password.
    url: Option<String>,
}

impl Target {
    fn of(config: &Config, reached: Option<&Reached>) -> Result<Self, BackupError> {
        match (&config.database, reached) {
            (Database::Private(_), Some(reached)) => {
                let options = reached.connect_options();
                let socket = options
                    .get_socket()
                    .map(|folder| folder.display().to_string())
                    .unwrap_or_default();
                Ok(Self {
                    environment: vec![
                        ("PGHOST", socket),
                        ("PGPORT", options.get_port().to_string()),
                        ("PGUSER", options.get_username().to_owned()),
                        ("PGDATABASE", options.get_database().unwrap_or_default().to_owned()),
                    ],
                    options,
                    url: None,
                })
            }
            (Database::Private(_), None) => Err(PostgresError::NoBinaries.into()),
            (Database::Given(url), _) => {
                let (plain, password) = apart(url.expose_secret());
                Ok(Self {
                    options: config::database_options(url)?,
                    environment: password.map(|password| ("PGPASSWORD", password)).into_iter().collect(),
                    url: Some(plain),
                })
            }
        }
    }

    fn tool(&self, config: &Config, name: &'static str, major: u32) -> Result<Command, BackupError> {
        let path = binaries::tool(&config.search, name, major).ok_or(BackupError::NoTool { name, major })?;
        let mut command = Command::new(path);
        command.env_clear().env("LC_ALL", "C.UTF-8").env("PATH", &config.path);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        if let Some(url) = self.url.as_ref().filter(|_| name != "pg_restore") {
            command.arg("--dbname").arg(url);
        }
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        Ok(command)
    }
}

/// The URL without its password, which the list of processes would show, and without what only sqlx understands.
fn apart(url: &str) -> (String, Option<String>) {
    let Ok(mut parsed) = url::Url::parse(url) else {
        return (String::new(), None);
    };
    let decode = |text: &str| {
        percent_encoding::percent_decode_str(text)
            .decode_utf8_lossy()
            .into_owned()
    };
    let mut password = parsed.password().map(decode);
    let _ = parsed.set_password(None);
    let mut kept = Vec::new();
    for (name, value) in parsed.query_pairs() {
        match name.as_ref() {
            "password" => password = Some(value.into_owned()),
            "statement-cache-capacity" => {}
            _ => kept.push((name.into_owned(), value.into_owned())),
        }
    }
    parsed.set_query(None);
    if !kept.is_empty() {
        parsed.query_pairs_mut().extend_pairs(kept);
    }
    (parsed.into(), password)
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

fn digest(from: &mut impl Read) -> io::Result<(u64, String)> {
    struct Hasher(Sha256);
    impl Write for Hasher {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            self.0.update(part);
            Ok(part.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hasher = Hasher(Sha256::new());
    let bytes = io::copy(from, &mut hasher)?;
    Ok((bytes, HEXLOWER.encode(&hasher.0.finalize())))
}

/// Removes a half-made file, whatever happened to it.
struct Staged(PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_leaves_the_url_and_arrives_whole() {
        let (url, password) = apart("postgres://yard:p%40ss+w@db:5433/yard?sslmode=require&statement-cache-capacity=5");
        assert_eq!(url, "postgres://yard@db:5433/yard?sslmode=require");
        assert_eq!(password.as_deref(), Some("p@ss+w"));
        assert_eq!(apart("postgres://db/yard"), ("postgres://db/yard".to_owned(), None));
    }
}
