//! The ground that a test stands on: a folder of its own, and a watchman who ends what runs there and clears it away,
//! also when the test itself is killed, since his signal is the end of a pipe.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use trainyard::postgres::{self, Search, binaries};

pub struct Ground {
    pub folder: PathBuf,
    watchman: Child,
}

const WATCH: &str = r#"
ours() { case "$(tr '\0' ' ' < "/proc/$2/cmdline" 2>/dev/null)" in *"$1"*) ;; *) false ;; esac; }
while read -r pid; do pids="$pids $pid"; done
for pid in $pids; do ours "$1" "$pid" && kill -KILL "$pid"; done
for file in "$1"/postgres/data/postmaster.pid "$1"/*/postgres/data/postmaster.pid; do
    pid=$(head -n 1 "$file" 2>/dev/null) || continue
    ours "$1" "$pid" || continue
    kill -QUIT "$pid"
    for _ in $(seq 100); do [ -d "/proc/$pid" ] || break; sleep 0.1; done
    kill -KILL "$pid" 2>/dev/null
done
mountpoint -q "$1/disk" && umount -l "$1/disk"
for _ in $(seq 20); do rm -rf "$1" && break; sleep 0.2; done
"#;

impl Ground {
    pub fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("house-").tempdir().unwrap().keep();
        let folder = folder.canonicalize().unwrap();
        // Postgres's account has to walk through it.
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        let watchman = Command::new("sh")
            .args(["-c", WATCH, "watchman"])
            .arg(&folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in the terminal is not for him.
            .process_group(0)
            .spawn()
            .unwrap();
        Self { folder, watchman }
    }

    /// Has the watchman end this process as well; the folder must be in its command line, so that he knows it again.
    pub fn watch(&mut self, pid: u32) {
        let stdin = self.watchman.stdin.as_mut().unwrap();
        writeln!(stdin, "{pid}").unwrap();
    }

    pub fn settings(&self) -> postgres::Settings {
        settings(self.folder.join("postgres"))
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        drop(self.watchman.stdin.take());
        let _ = self.watchman.wait();
    }
}

/// A private Postgres in that folder, from the programs of this machine.
pub fn settings(folder: PathBuf) -> postgres::Settings {
    postgres::Settings {
        folder,
        search: Search {
            only: None,
            path: std::env::var_os("PATH").unwrap_or_default(),
            patterns: binaries::SYSTEM_PATTERNS.iter().map(PathBuf::from).collect(),
        },
    }
}

/// Writes a row that must still be there later; it is acknowledged when this returns.
pub async fn write(options: &PgConnectOptions, text: &str) {
    let mut connection = PgConnection::connect_with(options).await.unwrap();
    sqlx::query("create table if not exists kept (text text)")
        .execute(&mut connection)
        .await
        .unwrap();
    sqlx::query("insert into kept values ($1)")
        .bind(text)
        .execute(&mut connection)
        .await
        .unwrap();
}

pub async fn rows(options: &PgConnectOptions) -> Vec<String> {
    let mut connection = PgConnection::connect_with(options).await.unwrap();
    sqlx::query_scalar("select text from kept order by text")
        .fetch_all(&mut connection)
        .await
        .unwrap()
}

/// Looks until it is so, for a minute at most.
pub async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < patience, "still not so after a minute: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

pub fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // A zombie is dead; its state stands after the name in brackets.
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !rest.trim_start().starts_with('Z'))
}

pub fn kill(pid: i32) {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL).unwrap();
}

pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Another process that keeps a private Postgres, to be killed: this test program, asked for [`keep`] alone.
pub struct Keeper {
    process: Child,
    out: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Keeper {
    pub fn start(folder: &Path) -> Self {
        Self::spawn(Command::new(std::env::current_exe().unwrap()), folder)
    }

    /// The same as another account, which has to be able to reach the program.
    pub fn start_as(account: &str, program: &Path, folder: &Path) -> Self {
        let user = nix::unistd::User::from_name(account).unwrap().unwrap();
        let mut command = Command::new(program);
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).current_dir("/");
        Self::spawn(command, folder)
    }

    fn spawn(mut command: Command, folder: &Path) -> Self {
        let mut process = command
            .args(["--exact", "ground::keep", "--ignored", "--nocapture"])
            .env("HOUSE_KEEP", folder)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, out }
    }

    /// The server's pid once it is ready, or why it is not.
    pub fn ready(&mut self) -> Result<i32, String> {
        for line in &mut self.out {
            let line = line.unwrap();
            if let Some((_, pid)) = line.split_once("KEPT ") {
                return Ok(pid.trim().parse().unwrap());
            }
            if let Some((_, error)) = line.split_once("FAILED ") {
                return Err(error.to_owned());
            }
        }
        Err("it ended without a word".to_owned())
    }

    /// kill -9.
    pub fn kill(mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// No test: what a [`Keeper`] process does.
#[test]
#[ignore = "the body of a keeper process"]
fn keep() {
    let Some(folder) = std::env::var_os("HOUSE_KEEP") else {
        return;
    };
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        match postgres::Private::start(&settings(folder.into())).await {
            Ok(private) => {
                println!("KEPT {}", private.pid().await);
                private.supervise(&tokio_util::sync::CancellationToken::new()).await;
            }
            Err(error) => println!("FAILED {error}"),
        }
    });
}
