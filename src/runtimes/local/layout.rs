//! Where everything of this runtime lies. All names derive from ids, so every process finds the same things.
//!
//! ```text
//! DATA/local/
//!   attempts/att_.../           attempt.json, stop.json, lock, hostfile
//!     worker-0/                 one replica (see the shim's folder)
//!       work/                   where its program starts
//!   volumes/job_.../NAME/       folders that a job's attempts share
//!   code/ADDRESS-COMMIT.tar     commits that were fetched
//!   ports/PORT                  which attempt a port is reserved for
//!   t/SHORT                     links to the replicas' TMPDIRs, since socket paths must be short
//! ```

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use trainyard_core::model::{AttemptId, IncarnationId, JobId, ReplicaKey};

use super::retry;
use crate::{
    runtimes::RuntimeError,
    shim::folder::{Folder, Lock, StopRequest, lock, read_record, write_record},
};

/// The account of the replicas may pass through a folder of ours, and not list it.
const PASS_THROUGH: u32 = 0o711;

/// What an attempt was started as. Later starts of the same attempt go by it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptRecord {
    pub job: JobId,
    pub grace_ms: u64,
    pub replicas: Vec<ReplicaRecord>,
    /// Replicas of an MPI job that the launcher's ranks fill, without a process of their own.
    pub slots: Vec<SlotRecord>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlotRecord {
    pub key: ReplicaKey,
    pub incarnation: IncarnationId,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaRecord {
    pub key: ReplicaKey,
    pub rank: u32,
    pub incarnation: IncarnationId,
    pub gpus: Vec<u32>,
    pub port: u16,
}

#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the folders that everything else lies in.
    pub fn make(data: &Path) -> io::Result<Self> {
        let layout = Self {
            root: data.join("local"),
        };
        for folder in [
            &layout.root,
            &layout.attempts(),
            &layout.volumes(),
            &layout.ports(),
            &layout.code(),
            &layout.short(),
        ] {
            make_folder(folder)?;
        }
        Ok(layout)
    }

    pub fn attempts(&self) -> PathBuf {
        self.root.join("attempts")
    }

    pub fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    pub fn ports(&self) -> PathBuf {
        self.root.join("ports")
    }

    pub fn code(&self) -> PathBuf {
        self.root.join("code")
    }

    fn short(&self) -> PathBuf {
        self.root.join("t")
    }

    pub fn attempt(&self, attempt: AttemptId) -> AttemptFolder {
        AttemptFolder {
            path: self.attempts().join(attempt.to_string()),
        }
    }

    /// The attempts that have a folder.
    pub fn list(&self) -> io::Result<Vec<AttemptId>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.attempts())? {
            if let Some(attempt) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) {
                found.push(attempt);
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    pub fn volume(&self, job: JobId, name: &str) -> PathBuf {
        self.volumes().join(job.to_string()).join(name)
    }

    /// A short name for a replica's TMPDIR: the random end of its incarnation's id.
    pub fn short_tmp(&self, incarnation: IncarnationId) -> PathBuf {
        let id = incarnation.to_string();
        self.short().join(&id[id.len() - 10..])
    }

    /// Takes a folder out of sight at once and then removes it. What a kill leaves behind, [`Layout::sweep`] removes.
    pub fn remove(&self, folder: &Path) -> io::Result<()> {
        let Some(name) = folder.file_name().and_then(|name| name.to_str()) else {
            return Ok(());
        };
        let gone = folder.with_file_name(format!(".gone-{name}"));
        match fs::rename(folder, &gone) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        match remove_all(&gone) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// What can't be removed is told and left: nothing else waits for it.
    pub fn sweep(&self) -> io::Result<()> {
        for place in [self.attempts(), self.volumes()] {
            for entry in fs::read_dir(place)? {
                let path = entry?.path();
                let gone = path
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with(".gone-"));
                if gone && let Err(error) = remove_all(&path) {
                    tracing::warn!(path = %path.display(), %error, "what a removed attempt left behind stays");
                }
            }
        }
        Ok(())
    }
}

/// Removes a folder with all that is in it. What a job made read-only (Go's module cache is) is made writable first.
fn remove_all(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            let mut folders = vec![folder.to_path_buf()];
            while let Some(folder) = folders.pop() {
                fs::set_permissions(&folder, Permissions::from_mode(0o700))?;
                for entry in fs::read_dir(&folder)? {
                    let entry = entry?;
                    if entry.file_type()?.is_dir() {
                        folders.push(entry.path());
                    }
                }
            }
            fs::remove_dir_all(folder)
        }
        other => other,
    }
}

#[derive(Debug, Clone)]
pub struct AttemptFolder {
    path: PathBuf,
}

impl AttemptFolder {
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn replica(&self, key: &ReplicaKey) -> Folder {
        Folder::new(self.path.join(key.to_string()))
    }

    /// Excludes other starts and releases of this attempt, which take moments. A lock may also look held for a moment
    /// longer, since a process that somebody starts elsewhere has our open files until it becomes its program.
    pub fn lock(&self) -> Result<Lock, RuntimeError> {
        for _ in 0..500 {
            match lock(&self.path.join("lock")) {
                Ok(Some(lock)) => return Ok(lock),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(error) => return Err(retry("the attempt's lock")(error)),
            }
        }
        Err(RuntimeError::Retry(
            "another start or release of this attempt is under way".into(),
        ))
    }

    pub fn record(&self) -> io::Result<Option<AttemptRecord>> {
        read_record(&self.path, "attempt.json")
    }

    pub fn write_record(&self, record: &AttemptRecord) -> io::Result<()> {
        write_record(&self.path, "attempt.json", record)
    }

    pub fn stop(&self) -> io::Result<Option<StopRequest>> {
        read_record(&self.path, "stop.json")
    }

    pub fn write_stop(&self, stop: &StopRequest) -> io::Result<()> {
        write_record(&self.path, "stop.json", stop)
    }

    pub fn hostfile(&self) -> PathBuf {
        self.path.join("hostfile")
    }
}

/// Makes a folder that the replicas' account may pass through.
pub fn make_folder(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(PASS_THROUGH).create(path)?;
    // A mask of the process must not close it.
    fs::set_permissions(path, Permissions::from_mode(PASS_THROUGH))
}
