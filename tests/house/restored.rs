//! After a restore the program looks and does nothing, with real processes: what runs goes on, whether the records know
//! it or not, until a person says that workers may act.

use std::{
    fs,
    process::{Command, Output},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::{
    ground::{Ground, alive, until},
    up::Up,
};

fn trainyard(ground: &Ground, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trainyard"))
        .args(words)
        .env_remove("DATABASE_URL")
        .env("TRAINYARD_DATA", &ground.folder)
        .env("XDG_CONFIG_HOME", ground.folder.join("config"))
        .output()
        .unwrap()
}

/// A person at the server, with the token that `up` left for them.
struct Person {
    server: String,
    token: String,
}

impl Person {
    async fn of(ground: &Ground, up: &Up) -> Self {
        let read = || fs::read(ground.folder.join("config/trainyard/client.json"));
        until("`up` left a token", async || read().is_ok_and(|file| !file.is_empty())).await;
        let file: Value = serde_json::from_slice(&read().unwrap()).unwrap();
        Self {
            server: format!("http://{}", up.pages),
            token: file["token"].as_str().unwrap().to_owned(),
        }
    }

    async fn send(&self, method: &str, path: &str, body: Option<Value>) -> String {
        let client = trainyard::tls::client().build().unwrap();
        let mut request = client
            .request(method.parse().unwrap(), format!("{}{path}", self.server))
            .bearer_auth(&self.token)
            .header("accept", if path.starts_with("/api") { "*/*" } else { "text/html" });
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.unwrap();
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status.is_success(), "{method} {path}: {status} {text}");
        text
    }

    async fn ask(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        serde_json::from_str(&self.send(method, path, body).await).unwrap()
    }

    async fn submit(&self, name: &str, command: Value, cpu: &str, priority: i32) -> String {
        let document = json!({
            "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": name, "priority": priority,
            "roles": [{ "name": "worker", "replicas": 1, "command": command, "resources": { "cpu": cpu, "memory": "16Mi" } }],
            "stop": { "grace": "1s" },
        });
        let job = self.ask("POST", "/api/v1/jobs", Some(document)).await;
        job["id"].as_str().unwrap().to_owned()
    }

    async fn phase(&self, job: &str) -> String {
        let job = self.ask("GET", &format!("/api/v1/jobs/{job}"), None).await;
        job["phase"].as_str().unwrap().to_owned()
    }

    async fn is(&self, job: &str, phase: &str) {
        until(&format!("{job} is {phase}"), async || self.phase(job).await == phase).await;
    }
}

/// A program that runs until it is ended, and that the watchman knows.
fn forever(ground: &Ground, name: &str) -> Value {
    let file = ground.folder.join(name);
    fs::write(&file, "").unwrap();
    json!(["tail", "-f", file])
}

fn pid_of(ground: &Ground, name: &str) -> i32 {
    let file = ground.folder.join(name).display().to_string();
    let runs = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .is_ok_and(|line| line.starts_with("tail\0") && line.contains(&file))
    };
    let pids = fs::read_dir("/proc").unwrap().flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .find(runs)
        .unwrap_or_else(|| panic!("{name} does not run"))
}

#[tokio::test]
async fn restored_records_are_looked_at_and_nothing_is_done_until_a_person_confirms() {
    let mut ground = Ground::new();
    let mut up = Up::start(&mut ground);
    up.answers("/readyz").await;
    let person = Person::of(&ground, &up).await;
    until("the machine is known", async || {
        let nodes = person.ask("GET", "/api/v1/nodes", None).await;
        nodes["items"][0]["allocatable"]["cpu_milli"].is_u64()
    })
    .await;
    let nodes = person.ask("GET", "/api/v1/nodes", None).await;
    let cores = nodes["items"][0]["allocatable"]["cpu_milli"].as_u64().unwrap();

    let known = person.submit("known", forever(&ground, "known"), "300m", 0).await;
    person.is(&known, "running").await;
    let waits = person
        .submit("waits", json!(["sh", "-c", "ulimit -Sn"]), &format!("{cores}m"), 0)
        .await;
    let backup = ground.folder.join("yard.backup").display().to_string();
    let made = trainyard(&ground, &["backup", &backup]);
    assert!(made.status.success(), "{made:?}");
    let lost = person.submit("lost", forever(&ground, "lost"), "300m", 10).await;
    person.is(&lost, "running").await;
    let (known_pid, lost_pid) = (pid_of(&ground, "known"), pid_of(&ground, "lost"));
    ground.watch(known_pid.unsigned_abs());
    ground.watch(lost_pid.unsigned_abs());
    up.signal(Signal::SIGINT);
    assert!(up.process.wait().unwrap().success());

    let restored = trainyard(&ground, &["restore", "--replace", &backup]);
    assert!(restored.status.success(), "{restored:?}");
    let mut up = Up::start(&mut ground);
    // It is as ready as ever.
    up.answers("/readyz").await;
    let person = Person::of(&ground, &up).await;
    until("`up` tells", async || {
        let said = fs::read_to_string(ground.folder.join(format!("up-{}.out", up.pages.port())));
        said.is_ok_and(|said| said.contains("Workers only observe"))
    })
    .await;
    let told = trainyard(&ground, &["doctor", "-o", "json"]);
    assert!(
        String::from_utf8_lossy(&told.stdout).contains("workers only observe"),
        "{told:?}"
    );
    // A wish is taken down, and waits with the rest.
    person
        .ask("POST", &format!("/api/v1/jobs/{known}/cancel"), Some(json!({})))
        .await;
    // The worker is there: it looks at its machine, time and again.
    let mut looks = std::collections::BTreeSet::new();
    let since = person.ask("GET", "/api/v1/installation", None).await["restored_at"].clone();
    until("the machine was looked at three times", async || {
        let nodes = person.ask("GET", "/api/v1/nodes", None).await;
        let at = nodes["items"][0]["observed_at"].as_str().unwrap().to_owned();
        if at.as_str() > since.as_str().unwrap() {
            looks.insert(at);
        }
        looks.len() == 3
    })
    .await;
    assert!(alive(known_pid) && alive(lost_pid), "what ran goes on");
    assert_eq!(person.phase(&known).await, "running");
    let why = person.ask("GET", &format!("/api/v1/jobs/{waits}/why"), None).await;
    assert_eq!(why["why"]["reasons"][0]["code"], "restored", "{why:#}");
    let page = person.send("GET", "/jobs", None).await;
    assert!(
        page.contains("restored from a backup at") && page.contains("/restored/confirm"),
        "{page}"
    );

    let confirmed = trainyard(&ground, &["restore", "--confirm"]);
    assert!(confirmed.status.success(), "{confirmed:?}");
    person.is(&known, "cancelled").await;
    person.is(&waits, "succeeded").await;
    until("its output is stored", async || {
        let lines = person.ask("GET", &format!("/api/v1/jobs/{waits}/logs"), None).await;
        lines["items"][0]["text"] == "555"
    })
    .await;
    let raised = fs::read_to_string(format!("/proc/{}/limits", up.process.id())).unwrap();
    let files = raised.lines().find(|line| line.starts_with("Max open files")).unwrap();
    assert!(!files.contains(" 555 "), "{files}");
    until("what no record knows was ended", async || !alive(lost_pid)).await;
    assert!(!alive(known_pid));
    until("no page tells of it any more", async || {
        !person.send("GET", "/jobs", None).await.contains("/restored/confirm")
    })
    .await;
    let audit = person
        .ask("GET", "/api/v1/audit?action=installation.confirm_restore", None)
        .await;
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "{audit:#}");
    up.signal(Signal::SIGINT);
    assert!(up.process.wait().unwrap().success());
}
