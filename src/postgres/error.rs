//! Why there is no private Postgres, in words for the person at the terminal: what is wrong, and the way out.

use std::{
    io,
    path::{Path, PathBuf},
};

use super::place::Place;
use crate::packages;

#[derive(Debug, thiserror::Error)]
pub enum PostgresError {
    #[error(
        "no PostgreSQL server is installed. Install it ({}), \
         or name a database of your own in DATABASE_URL; `trainyard doctor` shows a way without root",
        packages::line_here(&packages::POSTGRES)
    )]
    NoBinaries,
    #[error(
        "--postgres-bin (TRAINYARD_POSTGRES_BIN) is {}, and {why}. Name the folder that has postgres and initdb in it, \
         such as /usr/lib/postgresql/15/bin, or leave it out and this machine is searched",
        folder.display()
    )]
    WrongFolder { folder: PathBuf, why: String },
    #[error(
        "PostgreSQL {} or newer is needed; here is {installed}. Install a newer one, \
         or name a database of your own in DATABASE_URL",
        super::MINIMUM_MAJOR
    )]
    TooOld { installed: String },
    #[error(
        "the data in {} were made by Postgres {major}, and only that version can read them; here is {installed}. \
         Install Postgres {major} beside it, or point TRAINYARD_DATA at another folder. \
         To move to a newer version: `trainyard backup` with the old one, `trainyard restore` with the new one",
        data.display()
    )]
    OtherMajor {
        data: PathBuf,
        major: u32,
        installed: String,
    },
    #[error(
        "another trainyard{} already runs with {}. Use that one, stop it first, or point TRAINYARD_DATA at another folder",
        pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(),
        folder.display()
    )]
    InUse { folder: PathBuf, pid: Option<i32> },
    #[error(
        "a Postgres that trainyard did not start runs on {} (pid {pid}). Stop it: kill -INT {pid}",
        data.display()
    )]
    Foreign { pid: i32, data: PathBuf },
    #[error("the Postgres with pid {pid} says that it is ready, but does not answer. Stop it: kill -INT {pid}")]
    Silent { pid: i32 },
    #[error(
        "processes of a Postgres that was killed still hold its memory{}. They end by themselves; try again in a minute",
        pid.map(|pid| format!(" (its pid was {pid})")).unwrap_or_default()
    )]
    MemoryInUse { pid: Option<i32> },
    /// After a reboot, for instance. Postgres can't tell and refuses; we don't decide it either.
    #[error(
        "{} names pid {pid}, which another program has now, so Postgres takes it for a running server and refuses. \
         If no Postgres runs on that folder (`ps {pid}` shows), remove the file",
        file.display()
    )]
    PidReused { pid: i32, file: PathBuf },
    #[error("Postgres (pid {pid}) is still stopping; it is left to finish by itself")]
    StillStopping { pid: i32 },
    #[error(
        "the disk that holds {} is full{}. Free some space (Postgres needs about 100 MB to start), \
         or point TRAINYARD_DATA at a folder on another disk",
        folder.display(),
        free.map(|bytes| format!(" ({} MB free)", bytes >> 20)).unwrap_or_default()
    )]
    DiskFull { folder: PathBuf, free: Option<u64> },
    #[error("{what}. Nothing was changed. If it held anything, restore it from a backup; if not, move the folder away")]
    Damaged { what: String },
    #[error("{0}")]
    Account(String),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{program} failed and said: {words}\nIts log is {}", log.display())]
    Failed {
        program: &'static str,
        words: String,
        log: PathBuf,
    },
}

impl PostgresError {
    pub(super) fn file(path: &Path, source: io::Error) -> Self {
        if source.kind() == io::ErrorKind::StorageFull {
            return Self::full(path);
        }
        Self::File {
            path: path.to_path_buf(),
            source,
        }
    }

    fn full(path: &Path) -> Self {
        Self::DiskFull {
            folder: path.to_path_buf(),
            free: free_bytes(path.parent().unwrap_or(path)),
        }
    }

    /// Tells from what a program of Postgres said why it ended.
    pub(super) fn from_words(program: &'static str, words: &str, place: &Place) -> Self {
        // On a disk that is quite full, the log could not even take these words.
        if words.contains("No space left on device") || free_bytes(&place.folder).is_some_and(|free| free < 64 << 10) {
            return Self::full(&place.folder);
        }
        if words.contains("shared memory block") && words.contains("still in use") {
            return Self::MemoryInUse {
                pid: super::PidFile::read(&place.data).map(|file| file.pid),
            };
        }
        let file = place.data.join("postmaster.pid");
        if words.contains("lock file \"postmaster.pid\" already exists")
            && let Some(pid) = super::PidFile::read(&place.data).map(|file| file.pid)
        {
            return Self::PidReused { pid, file };
        }
        // The last lines hold the reason; those before are the settings it came up with.
        let lines: Vec<&str> = words.lines().filter(|line| !line.trim().is_empty()).collect();
        Self::Failed {
            program,
            words: lines[lines.len().saturating_sub(8)..].join("\n"),
            log: place.log_path(),
        }
    }
}

fn free_bytes(folder: &Path) -> Option<u64> {
    let disk = nix::sys::statvfs::statvfs(folder).ok()?;
    Some(disk.blocks_available() * disk.fragment_size())
}
