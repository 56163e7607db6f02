//! The file of a backup: a tar of its manifest and its dump, written once and read twice.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use chrono::{DateTime, Utc};
use data_encoding::HEXLOWER;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use tokio::io::AsyncWriteExt;
use uuid::Uuid;

use super::BackupError;
use crate::{db::installation, private_file};

const MANIFEST: &str = "manifest.json";
const DUMP: &str = "database.dump";

/// What a backup says about itself, readable without a database: `tar -xOf FILE manifest.json`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Manifest {
    pub format: u32,
    pub trainyard: String,
    pub schema: i64,
    pub postgres: u32,
    pub installation: Uuid,
    pub taken_at: DateTime<Utc>,
    pub dump_bytes: u64,
    pub dump_sha256: String,
    /// For whoever opens the file and wonders.
    pub keys: String,
}

/// Puts both into a file that must not be there yet.
pub(super) fn pack(path: &Path, manifest: &Manifest, dump: &Path) -> io::Result<()> {
    let staged = Staged(private_file::staged(path));
    let mut tar = tar::Builder::new(private_file::create(&staged.0)?);
    let text = serde_json::to_vec_pretty(manifest)?;
    append(
        &mut tar,
        MANIFEST,
        text.len() as u64,
        manifest.taken_at,
        text.as_slice(),
    )?;
    append(
        &mut tar,
        DUMP,
        manifest.dump_bytes,
        manifest.taken_at,
        File::open(dump)?,
    )?;
    tar.into_inner()?.sync_all()?;
    // Unlike a rename, a link never takes another file's place.
    std::fs::hard_link(&staged.0, path)?;
    private_file::sync_parent(path)
}

fn append(tar: &mut tar::Builder<File>, name: &str, bytes: u64, at: DateTime<Utc>, from: impl Read) -> io::Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    header.set_mtime(u64::try_from(at.timestamp()).unwrap_or(0));
    tar.append_data(&mut header, name, from)
}

/// Reads the whole file once before anything is touched.
pub(super) fn check(path: &Path) -> Result<Manifest, BackupError> {
    let refuse = |why: String| BackupError::NotABackup {
        path: path.to_path_buf(),
        why,
    };
    let mut tar = open(path)?;
    let mut entries = tar.entries().map_err(|error| refuse(error.to_string()))?;
    let mut next = |name: &str| match entries.next() {
        Some(Ok(entry)) if entry.path().is_ok_and(|path| path.as_os_str() == name) => Ok(entry),
        Some(Err(error)) => Err(refuse(error.to_string())),
        _ => Err(refuse(format!("it has no {name} where one belongs"))),
    };
    let manifest: Manifest = serde_json::from_reader(next(MANIFEST)?.take(1 << 20))
        .map_err(|error| refuse(format!("{MANIFEST}: {error}")))?;
    if manifest.format != 1 {
        return Err(refuse(format!(
            "its format is {}, and this program knows 1",
            manifest.format
        )));
    }
    let needed = installation::needed_schema();
    if manifest.schema > needed {
        return Err(BackupError::Newer {
            found: manifest.schema,
            needed,
            version: manifest.trainyard,
        });
    }
    let (bytes, sha256) = digest(&mut next(DUMP)?).map_err(|error| refuse(error.to_string()))?;
    if (bytes, &sha256) != (manifest.dump_bytes, &manifest.dump_sha256) {
        return Err(refuse(format!(
            "{DUMP} is cut off or was changed ({bytes} bytes, sha256 {sha256})"
        )));
    }
    Ok(manifest)
}

fn open(path: &Path) -> Result<tar::Archive<File>, BackupError> {
    let file = File::open(path).map_err(|source| BackupError::File {
        path: path.to_path_buf(),
        source,
    })?;
    Ok(tar::Archive::new(file))
}

/// Hands the dump out of the backup to `pg_restore`. The tar is read on a thread of its own, since it knows no async.
pub(super) async fn feed(path: PathBuf, mut archive: tokio::process::ChildStdin) -> io::Result<()> {
    let (send, mut receive) = tokio::sync::mpsc::channel::<Vec<u8>>(4);
    let reading = tokio::task::spawn_blocking(move || -> io::Result<()> {
        let mut tar = tar::Archive::new(File::open(path)?);
        for entry in tar.entries()? {
            let mut entry = entry?;
            if entry.path()?.as_os_str() != DUMP {
                continue;
            }
            loop {
                let mut part = vec![0; 256 << 10];
                let length = entry.read(&mut part)?;
                part.truncate(length);
                if length == 0 || send.blocking_send(part).is_err() {
                    return Ok(());
                }
            }
        }
        Ok(())
    });
    while let Some(part) = receive.recv().await {
        archive.write_all(&part).await?;
    }
    archive.shutdown().await?;
    drop(archive);
    reading.await.map_err(io::Error::other)?
}

pub(super) fn digest(from: &mut impl Read) -> io::Result<(u64, String)> {
    struct Hasher(Sha256);
    impl Write for Hasher {
        fn write(&mut self, part: &[u8]) -> io::Result<usize> {
            self.0.update(part);
            Ok(part.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut hasher = Hasher(Sha256::new());
    let bytes = io::copy(from, &mut hasher)?;
    Ok((bytes, HEXLOWER.encode(&hasher.0.finalize())))
}

/// Removes a half-made file, whatever happened to it.
pub(super) struct Staged(pub PathBuf);

impl Drop for Staged {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
