//! Processes of this machine.
//!
//! Every replica is a process under a shim of its own ([`crate::shim`]). All truth is on disk ([`layout`]) and in
//! `/proc`; this runtime remembers nothing that another process could not find, so a worker may be killed and replaced
//! at any moment.
//!
//! Deliberately absent: records, policy, and which resources are free; those are the worker's.

use std::{
    collections::BTreeSet,
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use chrono::Utc;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::Instant;
use trainyard_core::{
    document::job::Code,
    model::{AttemptId, JobId, Launch, Observed, ReplicaKey},
};

use super::{OutputRef, OutputState, ReplicaUsage, Runtime, RuntimeError};
use crate::{
    machine::Machine,
    shim::{
        cgroup::{self, Controller, Found},
        folder::{Account, Folder},
    },
};

mod account;
mod environment;
mod git;
mod layout;
mod observe;
mod output;
mod ports;
mod release;
mod secrets;
mod start;
mod stop;
mod tree;
mod usage;
mod watch;

/// Unstored output of one replica that is kept: 2 GiB.
pub const OUTPUT_BOUND: u64 = 2 << 30;

#[derive(Debug, Clone)]
pub struct LocalOptions {
    /// The data folder; everything of this runtime is in `local/` below it.
    pub data: PathBuf,
    /// The program that has the `shim` sub-command. `/proc/self/exe` stays right when the file is replaced.
    pub program: PathBuf,
    /// How many bytes of unstored output each replica may have before the oldest are dropped.
    pub output_bound: u64,
    /// PATH for replicas where they run as ourselves. As root it is ignored, and a fixed one is set.
    pub path: Option<String>,
    /// How many files a replica may have open, where we have raised that for ourselves.
    pub open_files: Option<u64>,
}

impl LocalOptions {
    pub fn new(data: impl Into<PathBuf>) -> Self {
        Self {
            data: data.into(),
            program: "/proc/self/exe".into(),
            output_bound: OUTPUT_BOUND,
            path: None,
            open_files: None,
        }
    }
}

/// What this runtime can and can't do here, for `doctor` and the cluster's page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalFacts {
    /// The dedicated account that replicas run as.
    pub account: Option<String>,
    /// Server, keys, database and replicas run as one person, so a replica can read what the server can.
    pub one_trust_domain: bool,
    pub limits_memory: bool,
    pub limits_cpu: bool,
    /// What can't be limited or counted here, and why.
    pub missing: Vec<String>,
}

pub struct LocalRuntime {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    layout: layout::Layout,
    program: PathBuf,
    output_bound: u64,
    path: Option<String>,
    open_files: Option<u64>,
    account: Option<Account>,
    secrets: secrets::Secrets,
    cgroups: Found,
    watcher: watch::Watcher,
    /// The attempts all of whose replicas are watched.
    watched: Mutex<BTreeSet<AttemptId>>,
    /// When to look for further ones.
    look_for_new_at: Mutex<Instant>,
}

/// Attempts that another process of this machine started are looked for this often.
const LOOK_FOR_NEW: Duration = Duration::from_secs(1);

impl LocalRuntime {
    /// Finds or makes what the runtime needs: its folders, the account, its control groups. Blocking.
    pub fn open(options: LocalOptions) -> Result<Self, RuntimeError> {
        let data = std::path::absolute(&options.data).map_err(retry("the data folder"))?;
        let layout = layout::Layout::make(&data).map_err(retry("the data folder"))?;
        let account = account::find_or_make()?;
        if account.is_some() {
            account::let_through(&data)?;
        }
        layout.sweep().map_err(retry("what removed attempts left behind"))?;
        let present = layout.list().map_err(retry("the attempts"))?;
        ports::sweep(&layout.ports(), &present).map_err(retry("reserved ports"))?;
        let inner = Inner {
            layout,
            program: options.program,
            output_bound: options.output_bound,
            path: options.path,
            open_files: options.open_files,
            account,
            secrets: secrets::Secrets::of(&data),
            cgroups: cgroup::find(),
            watcher: watch::Watcher::new(),
            watched: Mutex::default(),
            look_for_new_at: Mutex::new(Instant::now() + LOOK_FOR_NEW),
        };
        inner.watch_new().map_err(retry("the attempts"))?;
        Ok(Self { inner: Arc::new(inner) })
    }

    pub fn facts(&self) -> LocalFacts {
        let inner = &self.inner;
        LocalFacts {
            account: inner.account.as_ref().map(|account| account.name.clone()),
            one_trust_domain: inner.account.is_none(),
            limits_memory: inner.cgroups.limits(Controller::Memory),
            limits_cpu: inner.cgroups.limits(Controller::Cpu),
            missing: inner.cgroups.missing.clone(),
        }
    }

    /// Runs file work where it holds up nobody.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Inner) -> Result<T, RuntimeError> + Send + 'static,
    ) -> Result<T, RuntimeError> {
        let inner = self.inner.clone();
        tokio::task::spawn_blocking(move || work(&inner))
            .await
            .unwrap_or_else(|error| Err(RuntimeError::Retry(format!("the work was broken off: {error}"))))
    }

    /// Gives every replica whose shim was killed a new one, which sees to its end.
    async fn adopt(&self, orphaned: &[Folder]) -> Result<(), RuntimeError> {
        for folder in orphaned {
            start::run_shim(&self.inner, "adopt", folder, &[]).await?;
        }
        Ok(())
    }
}

impl Inner {
    /// Watches the attempts that are not watched yet, most of them started by another process. What happened before
    /// was missed, so each is news.
    fn watch_new(&self) -> io::Result<()> {
        let present = self.layout.list()?;
        let new: Vec<AttemptId> = {
            let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
            watched.retain(|attempt| present.binary_search(attempt).is_ok());
            present
                .into_iter()
                .filter(|attempt| !watched.contains(attempt))
                .collect()
        };
        for attempt in new {
            if self.watch(attempt)? {
                self.watcher.tell(attempt);
            }
        }
        Ok(())
    }

    /// Watches the replicas of an attempt that have not ended. `false`: some are still being prepared.
    fn watch(&self, attempt: AttemptId) -> io::Result<bool> {
        let folder = self.layout.attempt(attempt);
        let Some(record) = folder.record()? else {
            return Ok(false);
        };
        for replica in record.replicas {
            let place = folder.replica(&replica.key);
            if !place.path().exists() {
                return Ok(false);
            }
            if watch::is_live(&place)? {
                self.watcher.add(attempt, place.path());
            }
        }
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.insert(attempt);
        Ok(true)
    }
}

#[async_trait]
impl Runtime for LocalRuntime {
    async fn start(&self, launch: &Launch) -> Result<(), RuntimeError> {
        start::refuse_what_cannot_be(&self.inner, &launch.document)?;
        let mut launch = launch.clone();
        if let Some(Code::Git { url, commit }) = &launch.document.code {
            launch.code = Some(git::archive(&self.inner, url, commit).await?);
        }
        let prepared = self
            .blocking(move |inner| {
                let prepared = start::prepare(inner, &launch)?;
                inner.watch(launch.attempt).map_err(retry("the attempt's folder"))?;
                Ok(prepared)
            })
            .await?;
        start::spawn(&self.inner, prepared).await
    }

    async fn observe(&self, attempt: AttemptId) -> Result<Observed, RuntimeError> {
        let look =
            move |inner: &Inner| observe::observe(inner, attempt, Utc::now()).map_err(retry("the attempt's folder"));
        let (observed, orphaned) = self.blocking(look).await?;
        if orphaned.is_empty() {
            return Ok(observed);
        }
        self.adopt(&orphaned).await?;
        Ok(self.blocking(look).await?.0)
    }

    async fn signal(&self, attempt: AttemptId, signal: i32) -> Result<(), RuntimeError> {
        self.blocking(move |inner| stop::signal(inner, attempt, signal)).await
    }

    async fn stop(&self, attempt: AttemptId) -> Result<(), RuntimeError> {
        let orphaned = self.blocking(move |inner| stop::stop(inner, attempt)).await?;
        self.adopt(&orphaned).await
    }

    async fn outputs(&self, attempt: AttemptId) -> Result<Vec<OutputState>, RuntimeError> {
        self.blocking(move |inner| output::outputs(inner, attempt).map_err(retry("the output")))
            .await
    }

    async fn read(&self, output: &OutputRef, offset: u64, limit: usize) -> Result<Bytes, RuntimeError> {
        let output = output.clone();
        self.blocking(move |inner| output::read(inner, &output, offset, limit).map_err(retry("the output")))
            .await
    }

    async fn give_back(&self, output: &OutputRef, offset: u64) -> Result<(), RuntimeError> {
        let output = output.clone();
        self.blocking(move |inner| output::give_back(inner, &output, offset).map_err(retry("the output")))
            .await
    }

    async fn release(&self, attempt: AttemptId) -> Result<(), RuntimeError> {
        self.blocking(move |inner| release::attempt(inner, attempt)).await
    }

    async fn attempts(&self) -> Result<Vec<AttemptId>, RuntimeError> {
        self.blocking(|inner| inner.layout.list().map_err(retry("the attempts")))
            .await
    }

    async fn release_job(&self, job: JobId) -> Result<(), RuntimeError> {
        self.blocking(move |inner| release::job(inner, job)).await
    }

    async fn usage(&self, attempt: AttemptId) -> Result<Vec<(ReplicaKey, ReplicaUsage)>, RuntimeError> {
        self.blocking(move |inner| usage::usage(inner, attempt).map_err(retry("the attempt's folder")))
            .await
    }

    async fn look(&self) -> Result<Value, RuntimeError> {
        let facts = self.facts();
        self.blocking(move |_| {
            let machine = Machine::open().map_err(|error| RuntimeError::Retry(format!("this machine: {error}")));
            let mut machine = machine?;
            let now = machine.sample();
            Ok(json!({ "machine": machine.facts(), "now": now, "trust_and_limits": facts }))
        })
        .await
    }

    async fn changed(&self) -> Vec<AttemptId> {
        loop {
            let at = *self
                .inner
                .look_for_new_at
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            // The look comes first when both are due: starts and ends that never stop must not put it off for ever.
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(at) => {}
                changed = self.inner.watcher.changed() => return changed,
            }
            *self
                .inner
                .look_for_new_at
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Instant::now() + LOOK_FOR_NEW;
            if let Err(error) = self
                .blocking(|inner| inner.watch_new().map_err(retry("the attempts")))
                .await
            {
                tracing::debug!(%error, "could not look for attempts that others started");
            }
        }
    }
}

/// An I/O error on something of ours: mending the machine helps, changing the job does not. But for names that no file
/// system takes: those come out of the job.
fn retry(what: &'static str) -> impl Fn(io::Error) -> RuntimeError + Copy {
    move |error| match error.kind() {
        io::ErrorKind::InvalidFilename | io::ErrorKind::InvalidInput => RuntimeError::Refused {
            reason: "invalid_name",
            message: format!("{what}: {error}"),
        },
        _ => RuntimeError::Retry(format!("{what}: {error}")),
    }
}
