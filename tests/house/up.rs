//! `trainyard up` as a person has it: a second one, a kill -9, Ctrl-C, and what answers meanwhile.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    process::{Child, Command, Stdio},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::ground::{Ground, alive, until};

/// A running `trainyard up` on ports of its own.
pub struct Up {
    pub process: Child,
    pub pages: SocketAddr,
    figures: SocketAddr,
}

async fn get(url: &str) -> reqwest::Result<reqwest::Response> {
    trainyard::tls::client().build()?.get(url).send().await
}

impl Up {
    pub fn start(ground: &mut Ground) -> Self {
        let (pages, figures) = (free(), free());
        // With few open files at first, so that it is seen what it raises for itself and what it hands on.
        let process = Command::new("sh")
            .args([
                "-c",
                r#"ulimit -Sn 555; exec "$0" "$@""#,
                env!("CARGO_BIN_EXE_trainyard"),
                "up",
            ])
            .arg("--data")
            .arg(&ground.folder)
            .args(["--listen", &pages.to_string(), "--metrics-listen", &figures.to_string()])
            .env_remove("DATABASE_URL")
            // The person's own file is not the test's.
            .env("XDG_CONFIG_HOME", ground.folder.join("config"))
            .stdin(Stdio::null())
            .stdout(fs::File::create(ground.folder.join(format!("up-{}.out", pages.port()))).unwrap())
            .stderr(fs::File::create(ground.folder.join(format!("up-{}.log", pages.port()))).unwrap())
            .spawn()
            .unwrap();
        ground.watch(process.id());
        Self {
            process,
            pages,
            figures,
        }
    }

    pub async fn answers(&mut self, path: &str) {
        let url = format!("http://{}{path}", self.pages);
        until(&url, async || {
            assert!(self.process.try_wait().unwrap().is_none(), "`up` ended");
            get(&url).await.is_ok_and(|response| response.status() == 200)
        })
        .await;
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.process.id()).unwrap()), signal).unwrap();
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn server(ground: &Ground) -> Option<i32> {
    let file = fs::read_to_string(ground.folder.join("postgres/data/postmaster.pid")).ok()?;
    file.lines().next()?.parse().ok()
}

#[tokio::test]
async fn up_is_taken_over_after_a_kill_refused_twice_and_stopped_cleanly() {
    let mut ground = Ground::new();
    let mut first = Up::start(&mut ground);
    first.answers("/readyz").await;
    let figures = get(&format!("http://{}/metrics", first.figures))
        .await
        .unwrap()
        .text()
        .await
        .unwrap();
    assert!(figures.contains("# TYPE trainyard_"), "{figures}");
    let elsewhere = get(&format!("http://{}/metrics", first.pages)).await.unwrap();
    assert_eq!(elsewhere.status(), 404, "figures are not shown where the pages are");
    let postgres = server(&ground).unwrap();

    let mut second = Up::start(&mut ground);
    let ended = tokio::task::spawn_blocking(move || {
        let status = second.process.wait().unwrap();
        (status, second.pages.port())
    });
    let (status, port) = ended.await.unwrap();
    assert_eq!(status.code(), Some(1));
    let words = fs::read_to_string(ground.folder.join(format!("up-{port}.log"))).unwrap();
    assert!(words.contains("already runs"), "{words}");

    first.signal(Signal::SIGKILL);
    drop(first);
    assert!(alive(postgres), "Postgres outlives a killed `up`");
    let mut third = Up::start(&mut ground);
    third.answers("/readyz").await;
    assert_eq!(server(&ground), Some(postgres), "and the next one takes it over");

    third.signal(Signal::SIGINT);
    let status = third.process.wait().unwrap();
    assert!(status.success(), "{status}");
    assert!(!alive(postgres));
    assert_eq!(server(&ground), None);
}

#[tokio::test]
async fn health_needs_no_database_and_readiness_asks_it() {
    let mut ground = Ground::new();
    let mut up = Up::start(&mut ground);
    up.answers("/readyz").await;
    let postgres = server(&ground).unwrap();
    kill(Pid::from_raw(postgres), Signal::SIGKILL).unwrap();
    up.answers("/healthz").await;
    // It comes back by itself.
    until("another Postgres is there", async || {
        server(&ground).is_some_and(|pid| pid != postgres)
    })
    .await;
    up.answers("/readyz").await;
    up.signal(Signal::SIGTERM);
    let status = up.process.wait().unwrap();
    assert!(status.success(), "{status}");
    assert_eq!(server(&ground), None);
}

#[tokio::test]
async fn an_up_that_fails_half_way_leaves_no_database_behind() {
    use std::os::unix::fs::PermissionsExt;
    let mut ground = Ground::new();
    // Seen only once the database runs.
    let keys = ground.folder.join("keys");
    fs::write(&keys, "0123456789abcdef AAAA\n").unwrap();
    fs::set_permissions(&keys, PermissionsExt::from_mode(0o644)).unwrap();
    let mut up = Up::start(&mut ground);
    let ended = tokio::task::spawn_blocking(move || (up.process.wait().unwrap(), up.pages.port()));
    let (status, port) = ended.await.unwrap();
    assert_eq!(status.code(), Some(1));
    let words = fs::read_to_string(ground.folder.join(format!("up-{port}.log"))).unwrap();
    assert!(words.contains("chmod 600"), "{words}");
    assert!(
        ground.folder.join("postgres/data/PG_VERSION").exists(),
        "it had a database"
    );
    assert_eq!(server(&ground), None, "and stopped it again");
}
