//! A Postgres that can be killed and comes back with its data on the same port.

use std::{
    fs,
    net::TcpListener,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use trainyard::postgres::{Search, binaries};

use crate::world::{Process, end_with_us};

pub struct Postgres {
    bin: PathBuf,
    folder: PathBuf,
    account: Option<(u32, u32)>,
    pub port: u16,
    process: Option<Process>,
}

impl Postgres {
    pub fn start(folder: &Path) -> Self {
        let search = Search {
            only: None,
            path: std::env::var_os("PATH").unwrap_or_default(),
            patterns: binaries::SYSTEM_PATTERNS.iter().map(PathBuf::from).collect(),
        };
        let found = binaries::find(&search).into_iter().next();
        let bin = found
            .expect("a PostgreSQL server is installed (Debian: apt-get install postgresql)")
            .bin;
        let account = nix::unistd::geteuid().is_root().then(|| {
            let named = |name: &&str| nix::unistd::User::from_name(name).ok().flatten();
            let user = ["postgres", "nobody"].iter().find_map(named);
            let user = user.expect("an account for Postgres, which refuses to run as root");
            (user.uid.as_raw(), user.gid.as_raw())
        });
        let folder = folder.join("pg");
        fs::create_dir(&folder).expect("a folder");
        if let Some((uid, gid)) = account {
            std::os::unix::fs::chown(&folder, Some(uid), Some(gid)).expect("the folder changes hands");
        }
        let mut new = Self {
            bin,
            folder,
            account,
            port: free_port(),
            process: None,
        };
        let mut init = Command::new(new.bin.join("initdb"));
        new.as_its_account(&mut init);
        init.args([
            "--auth=trust",
            "-E",
            "UTF8",
            "--locale=C.UTF-8",
            "-U",
            "postgres",
            "--no-sync",
            "-D",
        ]);
        let made = init.arg(new.folder.join("data")).output().expect("initdb runs");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        new.run();
        new
    }

    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/postgres", self.port)
    }

    /// What was acknowledged must be there after a kill, so it commits for real; only the disk is not waited for, since
    /// the machine goes on.
    fn run(&mut self) {
        let mut command = end_with_us(&self.bin.join("postgres"), self.account);
        self.plain(&mut command);
        command.arg("-D").arg(self.folder.join("data"));
        for setting in [
            format!("port={}", self.port),
            "listen_addresses=127.0.0.1".to_owned(),
            format!("unix_socket_directories={}", self.folder.display()),
            "fsync=off".to_owned(),
            "max_connections=200".to_owned(),
        ] {
            command.args(["-c", &setting]);
        }
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("log"));
        command.stdout(Stdio::null()).stderr(log.expect("a log"));
        self.process = Some(Process::spawn(command));
    }

    /// SIGKILL to the postmaster and its children, as when the kernel runs out of memory, and up again.
    pub fn kill_and_restart(&mut self) {
        let process = self.process.take().expect("it runs");
        process.kill_with_children();
        self.run();
    }

    /// A fast shutdown, as an upgrade does, and up again after a pause.
    pub fn restart(&mut self, away: Duration) {
        let process = self.process.take().expect("it runs");
        process.signal(nix::sys::signal::Signal::SIGINT);
        process.wait(Duration::from_secs(30));
        std::thread::sleep(away);
        self.run();
    }

    pub fn wait_until_ready(&self) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let mut ask = Command::new(self.bin.join("pg_isready"));
            ask.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if ask.status().is_ok_and(|status| status.success()) {
                return;
            }
            assert!(Instant::now() < deadline, "Postgres does not come up");
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    fn as_its_account(&self, command: &mut Command) {
        self.plain(command);
        if let Some((uid, gid)) = self.account {
            command.uid(uid).gid(gid);
        }
    }

    fn plain(&self, command: &mut Command) {
        command
            .current_dir("/")
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8");
    }
}

/// Free a moment ago; who takes it meanwhile makes the test fail and not lie.
pub fn free_port() -> u16 {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    free.expect("a free port").port()
}
