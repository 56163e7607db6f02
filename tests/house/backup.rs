//! A backup brings everything back but the keys, whole or not at all, and workers wait for a person afterwards.

use std::{fs, path::Path};

use chrono::{DateTime, Utc};
use clap::Parser;
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use trainyard::{
    backup::{self, BackupError},
    cli::{Cli, Command},
    config::{Config, Database, Environment},
    db::{Db, installation},
    keys::KeyFile,
    postgres::{PostgresError, Private},
};
use uuid::Uuid;

use crate::ground::Ground;

fn noon() -> DateTime<Utc> {
    DateTime::from_timestamp(1_796_040_000, 0).unwrap()
}

fn config(data: &Path) -> Config {
    let Command::Migrate(args) = Cli::parse_from(["trainyard", "migrate"]).command else {
        unreachable!();
    };
    let mut args = args;
    args.data = Some(data.to_path_buf());
    let environment = Environment {
        root: crate::ground::is_root(),
        path: std::env::var_os("PATH").unwrap_or_default(),
        ..Environment::default()
    };
    args.resolve(&environment).unwrap()
}

async fn start(config: &Config) -> Private {
    let Database::Private(settings) = &config.database else {
        panic!("no DATABASE_URL was given");
    };
    Private::start(settings).await.unwrap()
}

/// The rows of every table, as text in order.
async fn everything(options: &PgConnectOptions) -> Vec<(String, i64, Option<String>)> {
    let mut connection = PgConnection::connect_with(options).await.unwrap();
    let tables: Vec<String> = sqlx::query_scalar(
        "select format('%I', relname) from pg_class
         where relkind = 'r' and relnamespace = 'public'::regnamespace order by relname",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    let mut found = Vec::new();
    for table in tables {
        // What a restore changes on purpose is looked at apart.
        let row = if table == "installation" {
            "t.id::text"
        } else {
            "t::text"
        };
        let text = format!("select count(*), md5(string_agg({row}, '|' order by {row})) from {table} t");
        let (count, digest) = sqlx::query_as(sqlx::AssertSqlSafe(text))
            .fetch_one(&mut connection)
            .await
            .unwrap();
        found.push((table, count, digest));
    }
    found
}

async fn furnish(config: &Config) -> Vec<(String, i64, Option<String>)> {
    let private = start(config).await;
    let db = Db::lazy(private.connect_options(), 2);
    db.migrate().await.unwrap();
    installation::ensure(&db, Uuid::from_u128(42), noon()).await.unwrap();
    for (number, name) in ["zoë", "a\\b\tc\n", "'; drop table users; --"].into_iter().enumerate() {
        sqlx::query("insert into users (id, name, created_at) values ($1, $2, $3)")
            .bind(Uuid::from_u128(number as u128))
            .bind(name)
            .bind(noon())
            .execute(db.pool())
            .await
            .unwrap();
    }
    db.pool().close().await;
    let all = everything(&private.connect_options()).await;
    private.stop().await.unwrap();
    all
}

#[tokio::test]
async fn a_backup_comes_back_whole_and_waits_for_a_person() {
    let (here, there) = (Ground::new(), Ground::new());
    let (old, new) = (config(&here.folder), config(&there.folder));
    let before = furnish(&old).await;
    assert!(
        before.iter().any(|(table, rows, _)| table == "users" && *rows == 3),
        "{before:?}"
    );
    let file = here.folder.join("yard.backup");
    let words = backup::backup(&old, Some(&file), noon()).await.unwrap();
    assert!(words.contains("keys"), "{words}");

    let words = backup::restore(&new, &file, false, noon()).await.unwrap();
    assert!(words.contains("only observe"), "{words}");
    let private = start(&new).await;
    assert_eq!(everything(&private.connect_options()).await, before);
    let db = Db::lazy(private.connect_options(), 1);
    let restored = installation::read(&db).await.unwrap();
    assert_eq!((restored.id, restored.restored_at), (Uuid::from_u128(42), Some(noon())));
    db.migrate().await.unwrap();
    db.pool().close().await;
    private.stop().await.unwrap();

    backup::confirm(&new, noon()).await.unwrap();
    let again = backup::confirm(&new, noon()).await.unwrap();
    assert!(again.contains("nothing to confirm"), "{again}");

    // A backup of what was restored is as good as the first, over the same database too.
    let second = there.folder.join("again.backup");
    backup::backup(&new, Some(&second), noon()).await.unwrap();
    backup::restore(&new, &second, true, noon()).await.unwrap();
    let private = start(&new).await;
    let mut after = everything(&private.connect_options()).await;
    let audited = |(table, ..): &mut (String, i64, Option<String>)| table == "audit_installation_default";
    // That somebody confirmed is written down, and nothing else was changed by it.
    assert_eq!(after.extract_if(.., audited).map(|(_, rows, _)| rows).sum::<i64>(), 1);
    let mut expected = before;
    expected.retain_mut(|row| !audited(row));
    assert_eq!(after, expected);
    private.stop().await.unwrap();
}

#[tokio::test]
async fn a_restore_never_writes_over_records_or_half_way() {
    let ground = Ground::new();
    let config = config(&ground.folder);
    let before = furnish(&config).await;
    let file = ground.folder.join("yard.backup");
    backup::backup(&config, Some(&file), noon()).await.unwrap();

    let error = backup::restore(&config, &file, false, noon()).await.unwrap_err();
    assert!(matches!(error, BackupError::NotEmpty(_)), "{error}");
    assert!(error.to_string().contains("--replace"), "{error}");
    let error = backup::backup(&config, Some(&file), noon()).await.unwrap_err();
    assert!(
        matches!(error, BackupError::File { .. }),
        "a file is never written over: {error}"
    );

    let whole = fs::read(&file).unwrap();
    let bad = ground.folder.join("bad.backup");
    fs::write(&bad, &whole[..whole.len() * 2 / 3]).unwrap();
    let error = backup::restore(&config, &bad, true, noon()).await.unwrap_err();
    assert!(matches!(error, BackupError::NotABackup { .. }), "{error}");
    let mut changed = whole.clone();
    let middle = whole.len() / 2;
    changed[middle] ^= 0x40;
    fs::write(&bad, &changed).unwrap();
    let error = backup::restore(&config, &bad, true, noon()).await.unwrap_err();
    assert!(matches!(error, BackupError::NotABackup { .. }), "{error}");

    // A dump whose digest is right and whose end is missing: refused by Postgres's own programs, in the transaction.
    fs::write(&bad, with_cut_dump(&whole)).unwrap();
    let error = backup::restore(&config, &bad, true, noon()).await.unwrap_err();
    assert!(matches!(error, BackupError::Tool { .. }), "{error}");

    let private = start(&config).await;
    assert_eq!(everything(&private.connect_options()).await, before);
    let db = Db::lazy(private.connect_options(), 1);
    assert_eq!(installation::read(&db).await.unwrap().restored_at, None);
    private.stop().await.unwrap();
}

/// The same backup with half a dump, and a manifest that says so.
fn with_cut_dump(whole: &[u8]) -> Vec<u8> {
    use sha2::Digest;
    let mut parts = Vec::new();
    for entry in tar::Archive::new(whole).entries().unwrap() {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry.unwrap(), &mut bytes).unwrap();
        parts.push(bytes);
    }
    let mut manifest: backup::Manifest = serde_json::from_slice(&parts[0]).unwrap();
    let dump = &parts[1][..parts[1].len() * 3 / 4];
    manifest.dump_bytes = dump.len() as u64;
    manifest.dump_sha256 = data_encoding::HEXLOWER.encode(&sha2::Sha256::digest(dump));
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in [
        ("manifest.json", serde_json::to_vec(&manifest).unwrap().as_slice()),
        ("database.dump", dump),
    ] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes).unwrap();
    }
    tar.into_inner().unwrap()
}

#[tokio::test]
async fn no_key_is_in_a_backup_and_nobody_else_may_read_it() {
    use std::os::unix::fs::MetadataExt;
    let ground = Ground::new();
    let config = config(&ground.folder);
    KeyFile::open_or_create(&config.keys_file, &mut rand::rng()).unwrap();
    furnish(&config).await;
    let file = ground.folder.join("yard.backup");
    backup::backup(&config, Some(&file), noon()).await.unwrap();
    assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o600);
    let ring = fs::read_to_string(&config.keys_file).unwrap();
    let key = ring
        .lines()
        .find(|line| !line.starts_with('#'))
        .unwrap()
        .split(' ')
        .nth(1)
        .unwrap();
    let bytes = fs::read(&file).unwrap();
    assert!(!bytes.windows(key.len()).any(|window| window == key.as_bytes()));
    let mut names = Vec::new();
    for entry in tar::Archive::new(bytes.as_slice()).entries().unwrap() {
        names.push(entry.unwrap().path().unwrap().display().to_string());
    }
    assert_eq!(names, ["manifest.json", "database.dump"]);
    let left: Vec<String> = fs::read_dir(&ground.folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(left, Vec::<String>::new(), "nothing staged is left");
}

#[tokio::test]
async fn nothing_is_restored_under_a_running_trainyard() {
    let ground = Ground::new();
    let config = config(&ground.folder);
    furnish(&config).await;
    let file = ground.folder.join("yard.backup");
    let running = start(&config).await;
    // A backup may be taken meanwhile.
    backup::backup(&config, Some(&file), noon()).await.unwrap();
    let error = backup::restore(&config, &file, true, noon()).await.unwrap_err();
    assert!(
        matches!(error, BackupError::Postgres(PostgresError::InUse { .. })),
        "{error}"
    );
    running.stop().await.unwrap();
}
