//! Secrets that a replica reads from files: one file per value, in memory where this machine has a place for that, for
//! the replica's account alone. The shim removes them at the replica's end, and the attempt's release once more.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use nix::{
    sys::statfs::{TMPFS_MAGIC, statfs},
    unistd::geteuid,
};
use sha2::{Digest, Sha256};
use trainyard_core::model::IncarnationId;

use super::{account, layout::make_folder};
use crate::shim::folder::Account;

/// Where Linux has files in memory that every account may make.
const MEMORY: &str = "/dev/shm";

/// The folders of all replicas of this data folder: in memory, and on disk where that can't be.
#[derive(Debug, Clone)]
pub struct Secrets {
    memory: PathBuf,
    disk: PathBuf,
}

impl Secrets {
    pub fn of(data: &Path) -> Self {
        let digest = Sha256::digest(data.as_os_str().as_encoded_bytes());
        let name = data_encoding::HEXLOWER.encode(&digest[..8]);
        Self {
            memory: Path::new(MEMORY).join(format!("trainyard-{name}")),
            disk: data.join("local/secrets"),
        }
    }

    /// An empty folder for one replica's secrets, that nobody but us can enter so far.
    pub fn make(&self, incarnation: IncarnationId) -> io::Result<PathBuf> {
        self.remove(incarnation)?;
        let place = self.place()?.join(incarnation.to_string());
        fs::DirBuilder::new().mode(0o700).create(&place)?;
        Ok(place)
    }

    pub fn remove(&self, incarnation: IncarnationId) -> io::Result<()> {
        for place in [&self.memory, &self.disk] {
            match fs::remove_dir_all(place.join(incarnation.to_string())) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn place(&self) -> io::Result<&Path> {
        let in_memory = statfs(MEMORY).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC);
        if in_memory && make_folder(&self.memory).is_ok() && is_ours(&self.memory) {
            return Ok(&self.memory);
        }
        make_folder(&self.disk)?;
        Ok(&self.disk)
    }
}

/// Anybody may make folders beside ours, with whatever name.
fn is_ours(folder: &Path) -> bool {
    fs::symlink_metadata(folder).is_ok_and(|found| found.is_dir() && found.uid() == geteuid().as_raw())
}

/// One value, in `folder/volume/key`. The key's form was checked.
pub fn write(folder: &Path, volume: &str, key: &str, value: &str) -> io::Result<()> {
    let inner = folder.join(volume);
    match fs::DirBuilder::new().mode(0o700).create(&inner) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o400)
        .open(inner.join(key))?;
    file.write_all(value.as_bytes())
}

/// Hands the folder over once everything is in it.
pub fn give(folder: &Path, account: Option<&Account>) -> io::Result<()> {
    account.map_or(Ok(()), |account| account::give(folder, account))
}
