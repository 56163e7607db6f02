//! A real server with a real worker: `trainyard up` on a database and a folder of its own, all of which goes with the
//! test, however that ends.

use std::{
    io::{BufRead, BufReader},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use crate::support::postgres::{self, TestDb};

pub struct Site {
    pub address: String,
    /// A link that signs in once.
    pub link: String,
    process: Child,
    watchman: Child,
    _database: TestDb,
}

/// Waits for the end of a pipe; then ends whatever runs from the folder or in it, jobs too, and clears it away.
const WATCH: &str = r#"
read -r _
for round in 1 2 3; do
    for process in /proc/[0-9]*; do
        pid=${process#/proc/}
        [ "$pid" = $$ ] && continue
        case "$(readlink "$process/cwd" 2>/dev/null) $(tr '\0' ' ' <"$process/cmdline" 2>/dev/null)" in
            *"$1"*) kill -KILL "$pid" 2>/dev/null ;;
        esac
    done
done
for _ in 1 2 3 4 5; do rm -rf "$1" && break; sleep 0.2; done
"#;

impl Site {
    pub async fn start() -> Self {
        let database = postgres::database().await;
        let url = database.url().to_owned();
        Self::on(database, &url)
    }

    /// On a database, by the way that the URL names.
    pub fn on(database: TestDb, url: &str) -> Self {
        let folder = tempfile::Builder::new().prefix("site-").tempdir().unwrap().keep();
        let folder: PathBuf = folder.canonicalize().unwrap();
        // The account of jobs has to walk through it.
        std::fs::set_permissions(&folder, PermissionsExt::from_mode(0o755)).unwrap();
        let watchman = Command::new("sh")
            .args(["-c", WATCH, "watchman"])
            .arg(&folder)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C in the terminal is not for him.
            .process_group(0)
            .spawn()
            .unwrap();
        let mut process = Command::new(env!("CARGO_BIN_EXE_trainyard"))
            .arg("up")
            .arg("--data")
            .arg(folder.join("data"))
            .args(["--listen", &free(), "--metrics-listen", &free(), "--log", "warn"])
            .env("DATABASE_URL", url)
            // The person's own file is not the test's.
            .env("XDG_CONFIG_HOME", folder.join("config"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(process.stdout.take().unwrap()).lines();
        let link = loop {
            let line = said.next().expect("`up` ended before it gave a link").unwrap();
            if let Some((_, rest)) = line.split_once("http")
                && rest.contains("/sign-in/")
            {
                break format!("http{}", rest.trim());
            }
        };
        // What it prints later must not fill the pipe.
        std::thread::spawn(move || said.for_each(drop));
        let address = link.split("/sign-in/").next().unwrap_or_default().to_owned();
        Self {
            address,
            link,
            process,
            watchman,
            _database: database,
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        drop(self.watchman.stdin.take());
        let _ = self.watchman.wait();
        let _ = self.process.wait();
    }
}

fn free() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}
