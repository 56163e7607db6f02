//! Looks for anything that a testbed could leave behind. Used by `down`, by the tests, and at the end of every run.

use crate::error::{Doing, Result};
use crate::layout::{Layout, MAX_INSTANCES};
use crate::{cgroups, guard, layout};
use std::path::Path;

/// What is there of instances that do not run, one line each; empty is the only good answer.
pub fn find() -> Result<Vec<String>> {
    let mut found = Vec::new();
    for number in 0..MAX_INSTANCES {
        let layout = Layout::new(number);
        if guard::unfinished(layout)? {
            found.push(format!(
                "unfinished start of instance {number}; `tests/testbed/up --instance {number}` starts it anew"
            ));
        } else if !guard::runs(layout)? {
            look(layout, &mut found)?;
        }
    }
    Ok(found)
}

fn look(layout: Layout, found: &mut Vec<String>) -> Result<()> {
    if layout.dir().exists() {
        found.push(format!("folder {}", layout.dir().display()));
    }
    if guard::elsewhere(layout)?.is_none() {
        if Path::new("/sys/class/net").join(layout.host_link()).exists() {
            found.push(format!("link {}", layout.host_link()));
        }
        for path in cgroups::named(&format!("{}-", layout.name()))? {
            found.push(format!("cgroup {}", path.display()));
        }
    }
    // Programs carry the instance's folder in their command line; shims and containers do not, but hold mounts below it.
    let dir = format!("{}/", layout.dir().display());
    for entry in std::fs::read_dir("/proc").doing("cannot list processes")?.flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if !pid.bytes().all(|b| b.is_ascii_digit()) {
            continue;
        }
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        let mounts = std::fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        if line.contains(&dir) || mounts.contains(&dir) {
            found.push(format!("process {pid}: {line}"));
        }
    }
    Ok(())
}

/// Whether anything runs at all.
pub fn running() -> Result<Vec<u8>> {
    if !layout::state().exists() {
        return Ok(Vec::new());
    }
    let mut numbers = Vec::new();
    for number in 0..MAX_INSTANCES {
        if guard::runs(Layout::new(number))? {
            numbers.push(number);
        }
    }
    Ok(numbers)
}
