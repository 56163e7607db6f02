//! What is on disk of one replica: the only thing that a shim and a local runtime share.
//!
//! | file | written by | when |
//! |---|---|---|
//! | `spec.json` | runtime | once the working folder is complete; never changed |
//! | `lock` | shim | held (an open file description lock) for the shim's life |
//! | `shim.json` | shim | which process holds the lock |
//! | `started.json` | shim | durable before the program runs; nothing starts again once it is there |
//! | `failed.json` | lock holder | it never ran |
//! | `exit.json` | shim | nobody can write output any more |
//! | `stdout`, `stderr` | replica | append-only |
//! | `stdout.given-back`, ... | runtime | everything before this offset is stored elsewhere |
//! | `stdout.dropped`, ... | lock holder | ranges given up unread; durable before the bytes go |
//! | `*.reserve` | lock holder | disk space for the records that a full disk must not prevent |
//! | `../stop.json` | runtime | the whole attempt was asked to end |
//!
//! Records are replaced whole (write, fsync, rename, fsync of the folder), so a reader sees the old or the new one.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    ops::Range,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use nix::{
    fcntl::{FallocateFlags, FcntlArg, fallocate, fcntl},
    libc,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use trainyard_core::model::{Exit, IncarnationId, LogStream};

use super::{cgroup::Cgroup, process::ProcessId};
use crate::runtimes::ReplicaUsage;

/// Everything that a shim must know, but for the environment, which may hold secrets and so is handed over in memory.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spec {
    pub incarnation: IncarnationId,
    pub command: Vec<String>,
    /// Where the process starts.
    pub directory: PathBuf,
    /// The account that it runs as, if it is another one than ours.
    pub account: Option<Account>,
    pub limits: Limits,
    /// The replica's own control group; `None` where this machine allows none.
    pub cgroup: Option<Cgroup>,
    /// Between SIGTERM and SIGKILL.
    pub grace_ms: u64,
    /// How many bytes of unstored output are kept, both streams together.
    pub output_bound: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub cpu_milli: u64,
    pub memory_bytes: Option<u64>,
    pub processes: u64,
    /// Files that may be open at once, until the program raises it itself. `None`: what we have.
    #[serde(default)]
    pub open_files: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    pub process: ProcessId,
    pub at: DateTime<Utc>,
    /// Limits that could not be set, in words.
    pub unlimited: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    pub reason: String,
    pub message: String,
    pub at: DateTime<Utc>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exited {
    pub exit: Exit,
    /// What it had used in the end, if that could still be read.
    pub usage: Option<ReplicaUsage>,
}

/// The whole attempt was asked to end. The clock of its grace is the machine's and runs on through every restart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRequest {
    pub at: DateTime<Utc>,
    pub since_boot_ms: u64,
    pub grace_ms: u64,
}

impl StopRequest {
    pub fn deadline_ms(&self) -> u64 {
        self.since_boot_ms.saturating_add(self.grace_ms)
    }
}

pub const STREAMS: [LogStream; 2] = [LogStream::Stdout, LogStream::Stderr];

const EXIT: &str = "exit.json";

fn dropped_name(stream: LogStream) -> String {
    format!("{stream}.dropped")
}

#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The working folder of the replica's program.
    pub fn work(&self) -> PathBuf {
        self.path.join("work")
    }

    pub fn output(&self, stream: LogStream) -> PathBuf {
        self.path.join(stream.as_str())
    }

    pub fn spec(&self) -> io::Result<Option<Spec>> {
        read_record(&self.path, "spec.json")
    }

    pub fn write_spec(&self, spec: &Spec) -> io::Result<()> {
        write_record(&self.path, "spec.json", spec)
    }

    pub fn shim(&self) -> io::Result<Option<ProcessId>> {
        read_record(&self.path, "shim.json")
    }

    pub fn write_shim(&self, process: &ProcessId) -> io::Result<()> {
        write_record(&self.path, "shim.json", process)
    }

    pub fn started(&self) -> io::Result<Option<Started>> {
        read_record(&self.path, "started.json")
    }

    pub fn write_started(&self, started: &Started) -> io::Result<()> {
        write_record(&self.path, "started.json", started)
    }

    pub fn failed(&self) -> io::Result<Option<Failed>> {
        read_record(&self.path, "failed.json")
    }

    pub fn write_failed(&self, failed: &Failed) -> io::Result<()> {
        write_record(&self.path, "failed.json", failed)
    }

    /// Whether the program was started, or is known not to start. Neither changes any more.
    pub fn is_begun(&self) -> io::Result<bool> {
        Ok(self.started()?.is_some() || self.failed()?.is_some())
    }

    pub fn exited(&self) -> io::Result<Option<Exited>> {
        read_record(&self.path, EXIT)
    }

    /// Sets disk space aside for the records that a full disk must not prevent: the exit, and what was dropped to
    /// make room.
    pub fn reserve(&self) -> io::Result<()> {
        reserve(&self.path.join(EXIT))?;
        STREAMS.into_iter().try_for_each(|stream| self.reserve_dropped(stream))
    }

    pub fn reserve_dropped(&self, stream: LogStream) -> io::Result<()> {
        reserve(&self.path.join(dropped_name(stream)))
    }

    pub fn write_exited(&self, exited: &Exited) -> io::Result<()> {
        write_reserved(&self.path, EXIT, exited)
    }

    /// The stop of the attempt that this replica belongs to.
    pub fn stop(&self) -> io::Result<Option<StopRequest>> {
        match self.path.parent() {
            Some(attempt) => read_record(attempt, "stop.json"),
            None => Ok(None),
        }
    }

    /// Where everything before is stored elsewhere.
    pub fn given_back(&self, stream: LogStream) -> io::Result<u64> {
        Ok(read_record(&self.path, &format!("{stream}.given-back"))?.unwrap_or(0))
    }

    /// Not synced: losing the newest mark only gives space back later.
    pub fn write_given_back(&self, stream: LogStream, offset: u64) -> io::Result<()> {
        replace(&self.path, &format!("{stream}.given-back"), &offset, false)
    }

    pub fn dropped(&self, stream: LogStream) -> io::Result<Vec<Range<u64>>> {
        Ok(read_record(&self.path, &dropped_name(stream))?.unwrap_or_default())
    }

    pub fn write_dropped(&self, stream: LogStream, dropped: &[Range<u64>]) -> io::Result<()> {
        write_reserved(&self.path, &dropped_name(stream), &dropped)
    }

    /// Takes the replica's lock, or `None` if a living process holds it.
    pub fn lock(&self) -> io::Result<Option<Lock>> {
        lock(&self.path.join("lock"))
    }

    /// The lock, or `None` if another shim started the replica. One that was just killed may hold it for a moment more,
    /// and must not look like one that starts.
    pub fn lock_unless_begun(&self, within: Duration) -> io::Result<Option<Lock>> {
        let deadline = Instant::now() + within;
        loop {
            match self.lock()? {
                None if !self.is_begun()? && Instant::now() < deadline => thread::sleep(Duration::from_millis(5)),
                taken => return Ok(taken),
            }
        }
    }

    /// Whether a living process holds the lock. Asking takes nothing, so that it never gets in a starter's way.
    pub fn is_held(&self) -> io::Result<bool> {
        let file = match File::open(self.path.join("lock")) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let mut wanted = whole_file(libc::F_WRLCK);
        fcntl(&file, FcntlArg::F_OFD_GETLK(&mut wanted))?;
        Ok(i32::from(wanted.l_type) != libc::F_UNLCK)
    }
}

/// A lock on a file that ends with its holder, however that ends.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held, not used")] File);

/// Takes the lock of a file, made if it is missing; `None` if somebody holds it. Two openings of the file in one
/// process exclude each other as well, which classic POSIX locks would not.
pub fn lock(path: &Path) -> io::Result<Option<Lock>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path)?;
    match fcntl(&file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
        Ok(_) => Ok(Some(Lock(file))),
        Err(nix::errno::Errno::EAGAIN | nix::errno::Errno::EACCES) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        // The constants are small and the field is narrow.
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// A record, or `None` if it was never written.
pub fn read_record<T: DeserializeOwned>(folder: &Path, name: &str) -> io::Result<Option<T>> {
    let path = folder.join(name);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text)
            .map(Some)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, format!("{}: {error}", path.display()))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces a record durably.
pub fn write_record<T: Serialize>(folder: &Path, name: &str, record: &T) -> io::Result<()> {
    replace(folder, name, record, true)
}

fn replace<T: Serialize>(folder: &Path, name: &str, record: &T, durable: bool) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let unique = COUNT.fetch_add(1, Ordering::Relaxed);
    let draft = folder.join(format!(".{name}.{}.{unique}", std::process::id()));
    let mut file = create(&draft)?;
    file.write_all(&serde_json::to_vec(record)?)?;
    if durable {
        file.sync_all()?;
    }
    fs::rename(&draft, folder.join(name))?;
    if durable { sync_folder(folder) } else { Ok(()) }
}

fn reserve(record: &Path) -> io::Result<()> {
    let file = create(&reserved_for(record))?;
    fallocate(&file, FallocateFlags::empty(), 0, 4096)?;
    file.sync_all()
}

/// Replaces a record durably, in the space that was set aside for it if some was: the blocks are written in place, and
/// only then does the file get the record's name.
fn write_reserved<T: Serialize>(folder: &Path, name: &str, record: &T) -> io::Result<()> {
    let path = folder.join(name);
    let reserved = reserved_for(&path);
    let text = serde_json::to_vec(record)?;
    let mut options = OpenOptions::new();
    options.create(true).truncate(false).write(true).mode(0o600);
    let mut file = options.open(&reserved)?;
    file.write_all(&text)?;
    file.set_len(text.len() as u64)?;
    file.sync_all()?;
    fs::rename(&reserved, &path)?;
    sync_folder(folder)
}

fn reserved_for(record: &Path) -> PathBuf {
    record.with_added_extension("reserve")
}

fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path)
}

pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
