//! Keeps the cache at what runs: the newest of each part, what running instances use, and nothing that only building needs.

use super::Built;
use crate::error::{Doing, Result};
use crate::layout::{Layout, MAX_INSTANCES, cache, workshop};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

pub fn tidy(newest: &Built) -> Result<()> {
    let mut used = in_use();
    used.push(newest.clone());
    for (folder, part) in [
        ("bin", (|b| &b.bin) as fn(&Built) -> &PathBuf),
        ("manifests", |b| &b.manifests),
        ("store", |b| &b.store),
    ] {
        delete_unless(&cache().join(folder), |path| used.iter().any(|b| part(b) == path))?;
    }
    delete_unless(&cache().join("snapshots"), |path| {
        used.iter().any(|b| path.to_string_lossy().contains(&b.key))
    })?;
    // A binary that no folder of `bin` links to any more has but one name.
    delete_unless(&cache().join("binaries"), |path| {
        std::fs::metadata(path).is_ok_and(|m| m.nlink() > 1)
    })?;
    delete(&workshop())
}

/// What instances run on, also those that are just starting.
fn in_use() -> Vec<Built> {
    (0..MAX_INSTANCES)
        .filter_map(|number| std::fs::read_to_string(Layout::new(number).built()).ok())
        .filter_map(|text| serde_json::from_str(&text).ok())
        .collect()
}

fn delete_unless(folder: &Path, used: impl Fn(&Path) -> bool) -> Result<()> {
    let Ok(list) = std::fs::read_dir(folder) else {
        return Ok(());
    };
    list.flatten()
        .map(|entry| entry.path())
        .filter(|path| !used(path))
        .try_for_each(|path| delete(&path))
}

fn delete(path: &Path) -> Result<()> {
    let done = match std::fs::symlink_metadata(path) {
        Err(_) => return Ok(()),
        Ok(found) if found.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
    };
    done.doing(format!("cannot delete {}, which nothing uses", path.display()))
}
