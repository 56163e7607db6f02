//! A data folder of its own per test, a runtime on it, and the certain end of all that was started there.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use trainyard::{
    runtimes::{
        OutputState, Runtime,
        local::{LocalOptions, LocalRuntime},
    },
    shim::folder::Folder,
};
use trainyard_core::{
    document::job::JobDocument,
    model::{
        AttemptId, Exit, IncarnationId, JobId, Launch, LaunchReplica, LogStream, Observed, ReplicaKey, ReplicaState,
    },
};
use uuid::Uuid;

pub struct World {
    _folder: tempfile::TempDir,
    options: LocalOptions,
    pub runtime: LocalRuntime,
}

impl World {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut LocalOptions)) -> Self {
        let folder = tempfile::Builder::new().prefix("ty").tempdir().expect("a folder");
        let mut options = LocalOptions::new(folder.path());
        options.program = env!("CARGO_BIN_EXE_trainyard").into();
        options.path = std::env::var("PATH").ok();
        change(&mut options);
        let runtime = LocalRuntime::open(options.clone()).expect("the runtime opens");
        Self {
            _folder: folder,
            options,
            runtime,
        }
    }

    /// As if the worker had been killed and another one had started.
    pub fn restart(&mut self) {
        self.runtime = self.another();
    }

    /// What another worker of this machine has.
    pub fn another(&self) -> LocalRuntime {
        LocalRuntime::open(self.options.clone()).expect("the runtime opens again")
    }

    /// As if a worker with another program had started.
    pub fn reopen(&mut self, program: impl Into<PathBuf>) {
        self.options.program = program.into();
        self.restart();
    }

    pub fn data(&self) -> &Path {
        &self.options.data
    }

    pub fn replica(&self, attempt: AttemptId, name: &str) -> Folder {
        Folder::new(self.data().join("local/attempts").join(attempt.to_string()).join(name))
    }

    pub async fn observe(&self, attempt: AttemptId) -> Observed {
        self.runtime.observe(attempt).await.expect("observed")
    }

    /// Looks again until `wanted` finds what it looks for.
    pub async fn until<T>(&self, attempt: AttemptId, wanted: impl Fn(&Observed) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            let observed = self.observe(attempt).await;
            if let Some(found) = wanted(&observed) {
                return found;
            }
            assert!(Instant::now() < deadline, "it never came: {observed:#?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Waits until every replica has ended, and says how, in rank order. One that is missing has not ended.
    pub async fn ends(&self, attempt: AttemptId) -> Vec<Exit> {
        self.until(attempt, |observed| {
            let ended = observed.replicas.iter().map(|replica| match &replica.state {
                ReplicaState::Ended(exit) => Some(exit.clone()),
                _ => None,
            });
            let all_there = !observed.replicas.is_empty() && observed.replicas.len() == self.members(attempt);
            all_there.then(|| ended.collect::<Option<Vec<_>>>()).flatten()
        })
        .await
    }

    /// How many replicas the attempt was started with, slots included.
    fn members(&self, attempt: AttemptId) -> usize {
        let path = self
            .data()
            .join("local/attempts")
            .join(attempt.to_string())
            .join("attempt.json");
        let record: Value = serde_json::from_str(&fs::read_to_string(path).unwrap_or_default()).unwrap_or_default();
        ["replicas", "slots"]
            .iter()
            .filter_map(|list| Some(record[list].as_array()?.len()))
            .sum()
    }

    pub async fn running(&self, attempt: AttemptId) {
        self.until(attempt, |observed| {
            let running = |replica: &trainyard_core::model::ObservedReplica| replica.state == ReplicaState::Running;
            (!observed.replicas.is_empty() && observed.replicas.iter().all(running)).then_some(())
        })
        .await;
    }

    pub async fn output_states(&self, attempt: AttemptId) -> Vec<OutputState> {
        self.runtime.outputs(attempt).await.expect("outputs")
    }

    /// The whole of one stream.
    pub async fn output(&self, attempt: AttemptId, replica: &str, stream: LogStream) -> String {
        let state = self
            .output_states(attempt)
            .await
            .into_iter()
            .find(|state| state.output.key.to_string() == replica && state.output.stream == stream)
            .expect("the stream is there");
        let mut text = Vec::new();
        loop {
            let part = self
                .runtime
                .read(&state.output, text.len() as u64, 1 << 16)
                .await
                .expect("read");
            if part.is_empty() {
                return String::from_utf8_lossy(&text).into_owned();
            }
            text.extend_from_slice(&part);
        }
    }

    pub async fn stdout(&self, attempt: AttemptId, replica: &str) -> String {
        self.output(attempt, replica, LogStream::Stdout).await
    }

    /// Waits until a stream holds a text.
    pub async fn says(&self, attempt: AttemptId, replica: &str, text: &str) {
        let deadline = Instant::now() + Duration::from_secs(90);
        loop {
            let said = self.stdout(attempt, replica).await;
            if said.contains(text) {
                return;
            }
            assert!(Instant::now() < deadline, "{replica} never said {text:?}, but: {said}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// As [`World::says`], for a replica that another process starts.
    pub async fn says_once_there(&self, attempt: AttemptId, replica: &str, text: &str) {
        self.until(attempt, |_| {
            self.replica(attempt, replica)
                .output(LogStream::Stdout)
                .exists()
                .then_some(())
        })
        .await;
        self.says(attempt, replica, text).await;
    }

    /// Every process that was started from this data folder and still runs, shims included.
    pub fn processes(&self) -> Vec<(i32, String)> {
        processes_of(self.data())
    }

    /// Waits until nothing runs any more.
    pub fn assert_nothing_runs(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.processes().is_empty() {
            assert!(Instant::now() < deadline, "still there: {:?}", self.processes());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The groups that replicas have now, over all hierarchies.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        cgroups_of(self.data())
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !self.processes().is_empty() && Instant::now() < deadline {
            for (pid, _) in self.processes() {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for folder in cgroups_of(self.data()) {
            let _ = fs::remove_dir(&folder);
            let _ = folder.parent().map(fs::remove_dir);
        }
    }
}

/// Shims are known by the folder that they were told, replicas by their home in it.
fn processes_of(data: &Path) -> Vec<(i32, String)> {
    let shim = format!("{}/", data.display());
    let home = format!("HOME={}/", data.display());
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        let has = |name: &str, start: &str| {
            read(name)
                .split(|&byte| byte == 0)
                .any(|part| part.starts_with(start.as_bytes()))
        };
        let ended = trainyard::shim::process::stat(pid).map_or(true, |stat| stat.has_ended());
        let own = pid == std::process::id() as i32;
        if !own && !ended && (has("cmdline", &shim) || has("environ", &home)) {
            found.push((pid, String::from_utf8_lossy(&read("cmdline")).replace('\0', " ")));
        }
    }
    found
}

fn cgroups_of(data: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let attempts = fs::read_dir(data.join("local/attempts"))
        .into_iter()
        .flatten()
        .flatten();
    for replica in attempts.flat_map(|attempt| fs::read_dir(attempt.path()).into_iter().flatten().flatten()) {
        let spec = fs::read_to_string(replica.path().join("spec.json")).unwrap_or_default();
        let spec: Value = serde_json::from_str(&spec).unwrap_or_default();
        let folders = spec["cgroup"]["folders"].as_object().cloned().unwrap_or_default();
        found.extend(
            folders
                .values()
                .filter_map(Value::as_str)
                .map(PathBuf::from)
                .filter(|path| path.exists()),
        );
    }
    found
}

pub fn id() -> Uuid {
    Uuid::now_v7()
}

/// A launch of a document whose common part is filled in.
pub fn launch(document: Value) -> Launch {
    let mut whole = json!({ "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "test" });
    for (key, value) in document.as_object().expect("an object") {
        whole[key] = value.clone();
    }
    let document: JobDocument = serde_json::from_value(whole).expect("a clean document");
    let keys = document.roles.iter().flat_map(|role| {
        (0..role.replicas).map(|index| ReplicaKey {
            role: role.name.clone(),
            index,
        })
    });
    let replicas = keys
        .zip(0..)
        .map(|(key, rank)| LaunchReplica {
            key,
            rank,
            incarnation: IncarnationId(id()),
            gpus: Vec::new(),
        })
        .collect();
    Launch {
        job: JobId(id()),
        job_name: document.name.clone(),
        team_name: "testers".into(),
        attempt: AttemptId(id()),
        number: 1,
        replicas,
        document,
        resume_from: None,
        resume_step: None,
        secrets: BTreeMap::new(),
        code: None,
        report: None,
    }
}

/// One role `worker` that runs a shell script.
pub fn script(replicas: u32, script: &str) -> Launch {
    launch(json!({
        "roles": [{ "name": "worker", "replicas": replicas, "command": ["sh", "-c", script] }],
        "stop": { "grace": "20s" },
    }))
}
