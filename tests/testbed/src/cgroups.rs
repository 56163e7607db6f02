//! Cgroup folders: made for each node before its kubelet starts, since the kubelet wants its root to exist, and removed at the end.
//! This machine has the hierarchies of cgroup v1, each mounted by itself.

use crate::error::{Doing, Error, Result};
use crate::layout::make_dir;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn hierarchies() -> Result<Vec<PathBuf>> {
    let list = std::fs::read_dir("/sys/fs/cgroup").doing("cannot list cgroup hierarchies")?;
    Ok(list
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.join("cgroup.procs").exists())
        .collect())
}

pub fn make(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let folder = hierarchy.join(name);
        make_dir(&folder)?;
        // A new cpuset is empty, and nothing can run in it until it has cores and memory.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if let Ok(value) = std::fs::read_to_string(hierarchy.join(file)) {
                let _ = std::fs::write(folder.join(file), value);
            }
        }
    }
    Ok(())
}

/// Removes the cgroup from every hierarchy, children first. A process that is still ending holds its cgroup for a moment.
pub fn remove(name: &str) -> Result<()> {
    for hierarchy in hierarchies()? {
        let folder = hierarchy.join(name);
        let started = Instant::now();
        while folder.exists() {
            remove_tree(&folder);
            if !folder.exists() {
                break;
            }
            if started.elapsed() > Duration::from_secs(20) {
                return Err(Error::Refused(format!(
                    "{} has processes and cannot be removed",
                    folder.display()
                )));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
    Ok(())
}

/// Every cgroup whose name starts so, for the check that nothing is left.
pub fn named(prefix: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for hierarchy in hierarchies()? {
        let list = std::fs::read_dir(&hierarchy).doing("cannot list cgroups")?;
        let names = list.filter_map(|e| e.ok().map(|e| e.path()));
        found.extend(names.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix))));
    }
    Ok(found)
}

fn remove_tree(folder: &Path) {
    if let Ok(list) = std::fs::read_dir(folder) {
        for entry in list.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir())) {
            remove_tree(&entry.path());
        }
    }
    // Cgroup files cannot be unlinked; the folder goes as a whole or says that it is busy.
    let _ = std::fs::remove_dir(folder);
}
