//! A database per test, made from a template that has the schema.
//!
//! The server is the one that `TEST_DATABASE_URL` names (its user may create databases), or one that is started from
//! installed binaries on the first use and is gone with the test process, however that ends.

use std::{
    io::{Read, Write},
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{ChildStdin, Command, Stdio},
    str::FromStr,
    sync::OnceLock,
    time::{Duration, Instant},
};

use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};
use trainyard::db::{Db, MIGRATOR, PgConnectOptions};
use uuid::Uuid;

/// A database that is dropped with this value.
pub struct TestDb {
    #[allow(dead_code, reason = "not every suite opens it itself")]
    pub db: Db,
    url: String,
    name: String,
}

/// Makes a database with the schema and no rows.
pub async fn database() -> TestDb {
    let server = tokio::task::spawn_blocking(server).await.expect("the server starts");
    let template = template(server).await;
    let name = format!("test_{}", Uuid::now_v7().simple());
    let mut admin = connect(server, "postgres").await;
    // A template can't be copied while somebody else copies it: whoever is second tries again.
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let statement = AssertSqlSafe(format!("create database {name} template {template}"));
        match admin.execute(sqlx::raw_sql(statement)).await {
            Ok(_) => break,
            Err(error) if Instant::now() > deadline => panic!("no database can be made: {error}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    let options = options(server).database(&name);
    TestDb {
        url: options.to_url_lossy().to_string(),
        db: Db::lazy(options, 16),
        name,
    }
}

impl TestDb {
    /// For programs that open it themselves.
    #[allow(dead_code, reason = "not every suite starts such a program")]
    pub fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for TestDb {
    fn drop(&mut self) {
        let name = self.name.clone();
        let drop = async move {
            let mut admin = connect(server(), "postgres").await;
            let statement = AssertSqlSafe(format!("drop database if exists {name} with (force)"));
            admin.execute(sqlx::raw_sql(statement)).await.ok();
        };
        let dropper = std::thread::spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .expect("a runtime");
            runtime.block_on(drop);
        });
        dropper.join().ok();
    }
}

fn options(server: &str) -> PgConnectOptions {
    PgConnectOptions::from_str(server).expect("TEST_DATABASE_URL is a connection URL")
}

async fn connect(server: &str, database: &str) -> PgConnection {
    let options = options(server).database(database);
    // Its port is open a moment before it answers.
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match PgConnection::connect_with(&options).await {
            Ok(connection) => return connection,
            Err(error) => assert!(Instant::now() < deadline, "the server does not answer: {error}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The template's name holds a digest of the schema, so that a change of the schema makes another.
async fn template(server: &str) -> &'static str {
    static NAME: tokio::sync::OnceCell<String> = tokio::sync::OnceCell::const_new();
    NAME.get_or_init(|| async {
        let mut digest = Sha256::new();
        for migration in MIGRATOR.iter() {
            digest.update(&migration.checksum);
        }
        let digest: String = digest
            .finalize()
            .iter()
            .take(6)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = format!("trainyard_template_{digest}");
        let mut admin = connect(server, "postgres").await;
        // One test process at a time makes it; the lock goes with the connection.
        admin
            .execute("select pg_advisory_lock(7463001)")
            .await
            .expect("the lock");
        let query =
            sqlx::query_scalar("select exists (select 1 from pg_database where datname = $1 and datistemplate)");
        let made: bool = query.bind(&name).fetch_one(&mut admin).await.expect("an answer");
        if !made {
            for statement in [
                format!("drop database if exists {name} with (force)"),
                format!("create database {name}"),
            ] {
                admin
                    .execute(sqlx::raw_sql(AssertSqlSafe(statement)))
                    .await
                    .expect("the template is made");
            }
            let mut inside = connect(server, &name).await;
            MIGRATOR.run(&mut inside).await.expect("the migrations run");
            inside.close().await.expect("the connection closes");
            let statement = AssertSqlSafe(format!("alter database {name} is_template true"));
            admin
                .execute(sqlx::raw_sql(statement))
                .await
                .expect("it becomes a template");
        }
        name
    })
    .await
}

/// The server's URL; started on the first use.
fn server() -> &'static str {
    static SERVER: OnceLock<(String, Option<ChildStdin>)> = OnceLock::new();
    let (url, _) = SERVER.get_or_init(|| match std::env::var("TEST_DATABASE_URL") {
        Ok(url) => (url, None),
        Err(_) => {
            let (url, alive) = start();
            (url, Some(alive))
        }
    });
    url
}

/// Starts a server in a folder that goes with it. A shell waits on our end of a pipe, and when that closes, because we
/// ended in whatever way, stops the server and removes the folder.
fn start() -> (String, ChildStdin) {
    let bin = binaries().expect("PostgreSQL's server programs are installed (Debian: apt-get install postgresql)");
    let folder = tempfile::Builder::new()
        .prefix("trainyard-test-pg")
        .tempdir()
        .expect("a folder")
        .keep();
    let account = account();
    if let Some((uid, gid)) = account {
        let (uid, gid) = (nix::unistd::Uid::from_raw(uid), nix::unistd::Gid::from_raw(gid));
        nix::unistd::chown(&folder, Some(uid), Some(gid)).expect("the folder changes hands");
    }
    let run_as = |command: &mut Command| {
        command
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8");
        if let Some((uid, gid)) = account {
            command.uid(uid).gid(gid);
        }
    };
    let data = folder.join("data");
    let mut init = Command::new(bin.join("initdb"));
    run_as(&mut init);
    let made = init
        .args([
            "--auth=trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "-U",
            "postgres",
            "--no-sync",
            "-D",
        ])
        .arg(&data)
        .output()
        .expect("initdb runs");
    assert!(
        made.status.success(),
        "initdb: {}",
        String::from_utf8_lossy(&made.stderr)
    );
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|free| free.local_addr())
        .expect("a free port")
        .port();
    let mut keeper = Command::new("/bin/sh");
    run_as(&mut keeper);
    keeper.process_group(0);
    let script = r#"
        "$1" -D "$2" -p "$3" -c listen_addresses=127.0.0.1 -c unix_socket_directories="$4" -c fsync=off \
            -c synchronous_commit=off -c full_page_writes=off -c max_connections=300 >"$4/log" 2>&1 </dev/null &
        server=$!
        echo started
        read -r _
        kill -QUIT "$server"
        wait "$server"
        rm -rf "$4"
    "#;
    // It ends by itself when this process does, whoever waits for it.
    #[expect(clippy::zombie_processes, reason = "it outlives every test of this process")]
    let mut child = keeper
        .args(["-c", script, "keeper"])
        .arg(bin.join("postgres"))
        .arg(&data)
        .arg(port.to_string())
        .arg(&folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut alive = child.stdin.take().expect("a pipe");
    alive.flush().expect("the pipe is open");
    let mut started = [0; 1];
    child
        .stdout
        .take()
        .expect("a pipe")
        .read_exact(&mut started)
        .expect("the shell runs");
    let deadline = Instant::now() + Duration::from_secs(30);
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        let log = || std::fs::read_to_string(folder.join("log")).unwrap_or_default();
        assert!(Instant::now() < deadline, "the server does not answer: {}", log());
        std::thread::sleep(Duration::from_millis(20));
    }
    (format!("postgres://postgres@127.0.0.1:{port}/postgres"), alive)
}

/// Postgres refuses to run as root.
fn account() -> Option<(u32, u32)> {
    if !nix::unistd::geteuid().is_root() {
        return None;
    }
    ["postgres", "nobody"]
        .iter()
        .find_map(|name| nix::unistd::User::from_name(name).ok().flatten())
        .map(|user| (user.uid.as_raw(), user.gid.as_raw()))
}

/// The newest installed server programs.
fn binaries() -> Option<PathBuf> {
    let here = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&here).find(|folder| is_whole(folder));
    let mut versions: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(_, folder)| is_whole(folder))
        .collect();
    versions.sort();
    in_path.or(versions.pop().map(|(_, folder)| folder))
}

fn is_whole(folder: &Path) -> bool {
    folder.join("postgres").exists() && folder.join("initdb").exists()
}
