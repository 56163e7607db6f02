//! Processes of one installation: Postgres, servers and workers, and whatever they started. All of it ends with the
//! world; and if the tests themselves are killed, the kernel ends what they started.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    api::Api,
    postgres::{Postgres, free_port},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_trainyard");

/// A command whose process gets SIGKILL when the thread that starts it is gone: a world's tests start everything on
/// the thread that they run on.
pub fn end_with_us(program: &Path, account: Option<(u32, u32)>) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some((uid, gid)) = account {
        command
            .arg(format!("--reuid={uid}"))
            .arg(format!("--regid={gid}"))
            .arg("--clear-groups");
    }
    command.arg("--").arg(program).stdin(Stdio::null());
    command
}

/// A process of ours, which is killed when this is dropped.
pub struct Process(Child);

impl Process {
    pub fn spawn(mut command: Command) -> Self {
        Self(command.spawn().expect("the program starts"))
    }

    pub fn pid(&self) -> i32 {
        self.0.id() as i32
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("it is there");
    }

    pub fn kill(mut self) {
        self.0.kill().expect("it is there");
        self.0.wait().expect("it ends");
    }

    /// Together with the processes that it started and that are in its session.
    pub fn kill_with_children(mut self) {
        let pid = self.pid();
        let children: Vec<i32> = processes(|other| parent(other) == Some(pid));
        for pid in [pid].into_iter().chain(children.iter().copied()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        self.0.wait().expect("it ends");
        // They still hold its shared memory for a moment, and a new one refuses to start beside them.
        while !processes(|pid| children.contains(&pid)).is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits for its end, and says with which code.
    pub fn wait(mut self, patience: Duration) -> Option<i32> {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(status) = self.0.try_wait().expect("it can be asked") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "process {} does not end", self.pid());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct World {
    // Fields are dropped in this order: first who starts things, then the database, then the folder.
    pub server: Option<Process>,
    pub workers: Vec<Option<Process>>,
    pub postgres: Option<Postgres>,
    pub api: Api,
    port: u16,
    extra: Vec<(String, String)>,
    folder: tempfile::TempDir,
}

impl World {
    /// A Postgres, one server and so many workers; more variables for all of them.
    pub async fn new(workers: usize, extra: &[(&str, &str)]) -> Self {
        let mut world = Self::bare();
        world.extra = extra
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let postgres = Postgres::start(world.data());
        postgres.wait_until_ready();
        world.postgres = Some(postgres);
        // The first start makes the schema, the keys and the first user with a token.
        let first = world.start("up");
        world.settle_in().await;
        first.signal(Signal::SIGTERM);
        first.wait(Duration::from_secs(60));
        world.serve();
        for _ in 0..workers {
            world.workers.push(None);
        }
        for index in 0..workers {
            world.work(index);
        }
        world.api.ready().await;
        world
    }

    /// Nothing but a folder: `up` will bring its own Postgres.
    pub fn bare() -> Self {
        let folder = tempfile::Builder::new().prefix("ty-chaos").tempdir().expect("a folder");
        // The accounts of Postgres and of replicas pass through.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(folder.path(), open).expect("the folder opens");
        let port = free_port();
        Self {
            server: None,
            workers: Vec::new(),
            postgres: None,
            api: Api::new(port),
            port,
            extra: Vec::new(),
            folder,
        }
    }

    /// Waits until the first start is over and takes its token.
    pub async fn settle_in(&mut self) {
        let file = self.data().join("config/trainyard/client.json");
        let deadline = Instant::now() + Duration::from_secs(120);
        let token = loop {
            let text = fs::read_to_string(&file).unwrap_or_default();
            if let Ok(file) = serde_json::from_str::<serde_json::Value>(&text) {
                break file["token"].as_str().expect("a token").to_owned();
            }
            assert!(Instant::now() < deadline, "no first start: {}", self.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        self.api.token = token;
        self.api.ready().await;
    }

    pub fn data(&self) -> &Path {
        self.folder.path()
    }

    /// Starts one of the program's parts.
    pub fn start(&self, part: &str) -> Process {
        Process::spawn(self.command(part))
    }

    pub fn command(&self, part: &str) -> Command {
        let mut command = end_with_us(Path::new(PROGRAM), None);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.data().join("program.log"));
        command
            .arg(part)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.data())
            .env("XDG_CONFIG_HOME", self.data().join("config"))
            .env("TRAINYARD_DATA", self.data().join("data"))
            .env("TRAINYARD_LISTEN", format!("127.0.0.1:{}", self.port))
            .env("TRAINYARD_JOBS_URL", format!("http://127.0.0.1:{}", self.port))
            .env("TRAINYARD_METRICS_LISTEN", "127.0.0.1:0")
            .env("TRAINYARD_LOG_FORMAT", "human")
            .envs(self.extra.clone())
            .stdout(Stdio::null())
            .stderr(log.expect("a log"));
        if let Some(postgres) = &self.postgres {
            command.env("DATABASE_URL", postgres.url());
        }
        command
    }

    pub fn serve(&mut self) {
        self.server = Some(self.start("serve"));
    }

    pub fn work(&mut self, index: usize) {
        self.workers[index] = Some(self.start("work"));
    }

    pub fn kill_server(&mut self) {
        self.server.take().expect("it runs").kill();
        self.serve();
    }

    pub fn kill_worker(&mut self, index: usize) {
        self.workers[index].take().expect("it runs").kill();
        self.work(index);
    }

    pub fn postgres(&mut self) -> &mut Postgres {
        self.postgres.as_mut().expect("this world has a Postgres of its own")
    }

    /// A connection of the test's own, to look at records that the API does not show.
    pub async fn database(&self) -> sqlx::PgConnection {
        let url = self.postgres.as_ref().expect("a Postgres").url();
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            match <sqlx::PgConnection as sqlx::Connection>::connect(&url).await {
                Ok(connection) => return connection,
                Err(error) => assert!(Instant::now() < deadline, "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// The shims that run now, with the attempts that they run for.
    pub fn shims(&self) -> Vec<(i32, String)> {
        let attempts = self.data().join("data/local/attempts/");
        let start = attempts.to_string_lossy().into_owned();
        let mut found = Vec::new();
        for pid in processes(|_| true) {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).into_owned();
            let words: Vec<&str> = line.split('\0').collect();
            if words.get(1) == Some(&"shim")
                && let Some(path) = words.iter().find_map(|word| word.strip_prefix(start.as_str()))
            {
                let attempt = path.split('/').next().unwrap_or_default();
                found.push((pid, attempt.to_owned()));
            }
        }
        found
    }

    /// The first process of a job's rank, by what it was told.
    pub fn replica(&self, job: &str, rank: u32) -> Option<i32> {
        let wanted = [format!("TRAINYARD_JOB_ID={job}"), format!("TRAINYARD_RANK={rank}")];
        let ours = processes(|pid| {
            let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let environ = String::from_utf8_lossy(&environ).into_owned();
            wanted
                .iter()
                .all(|wanted| environ.split('\0').any(|variable| variable == wanted))
        });
        let firsts: Vec<i32> = ours
            .iter()
            .copied()
            .filter(|pid| !parent(*pid).is_some_and(|up| ours.contains(&up)))
            .collect();
        firsts.first().copied()
    }

    /// The last lines that the program's parts wrote, for a failure's message.
    pub fn log(&self) -> String {
        let text = fs::read_to_string(self.data().join("program.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Whatever has our folder in its arguments or its home: shims, replicas, a private Postgres.
    fn leftovers(&self) -> Vec<i32> {
        let folder = self.data().to_string_lossy().into_owned();
        let in_it = |pid: i32, name: &str| {
            let text = fs::read(PathBuf::from(format!("/proc/{pid}")).join(name)).unwrap_or_default();
            text.windows(folder.len()).any(|part| part == folder.as_bytes())
        };
        processes(|pid| pid != std::process::id() as i32 && (in_it(pid, "cmdline") || in_it(pid, "environ")))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the last lines of the program's log\n{}", self.log());
        }
        self.server = None;
        self.workers.clear();
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let left = self.leftovers();
            if left.is_empty() || Instant::now() > deadline {
                break;
            }
            for pid in left {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Live processes that pass.
fn processes(passes: impl Fn(i32) -> bool) -> Vec<i32> {
    let all = trainyard::shim::process::all().unwrap_or_default();
    let live = all
        .into_iter()
        .filter(|(_, stat)| !stat.has_ended())
        .map(|(pid, _)| pid);
    live.filter(|pid| passes(*pid)).collect()
}

fn parent(pid: i32) -> Option<i32> {
    trainyard::shim::process::stat(pid).ok().map(|stat| stat.parent)
}
