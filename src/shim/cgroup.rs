//! Control groups, version 2 or the separate hierarchies of version 1, as far as a replica needs them: limits, the
//! out-of-memory counter, what was used, and the certain end of everything in it.
//!
//! [`find`] looks once where groups may be made. Whatever is not possible is said in words ([`Found::missing`]) and
//! shown to people; it never stops a replica from running.

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{folder::Limits, process};
use crate::runtimes::ReplicaUsage;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Controller {
    Memory,
    Cpu,
    Cpuacct,
    Pids,
    Freezer,
}

impl Controller {
    fn name(self) -> &'static str {
        match self {
            Controller::Memory => "memory",
            Controller::Cpu => "cpu",
            Controller::Cpuacct => "cpuacct",
            Controller::Pids => "pids",
            Controller::Freezer => "freezer",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Version {
    V1,
    V2,
}

/// The group of one replica: a folder per hierarchy. In version 2 all controllers share one folder, and those that
/// are not listed are not enabled there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    version: Version,
    folders: BTreeMap<Controller, PathBuf>,
}

/// Where replicas' groups can be made on this machine.
#[derive(Debug, Clone)]
pub struct Found {
    parent: Option<Cgroup>,
    /// What can't be limited or counted here, and why.
    pub missing: Vec<String>,
}

impl Found {
    /// The group of the replica with this unique name, not made yet.
    pub fn group(&self, name: &str) -> Option<Cgroup> {
        self.parent.as_ref().map(|parent| Cgroup {
            version: parent.version,
            folders: parent
                .folders
                .iter()
                .map(|(&controller, folder)| (controller, folder.join(name)))
                .collect(),
        })
    }

    pub fn limits(&self, controller: Controller) -> bool {
        self.parent
            .as_ref()
            .is_some_and(|parent| parent.folders.contains_key(&controller))
    }
}

const WANTED_V1: [Controller; 5] = [
    Controller::Memory,
    Controller::Cpu,
    Controller::Cpuacct,
    Controller::Pids,
    Controller::Freezer,
];

/// The controllers that version 2 has under these names; counting and freezing come with every group there.
const WANTED_V2: [Controller; 3] = [Controller::Memory, Controller::Cpu, Controller::Pids];

/// The folder under which all replicas' groups lie.
const OURS: &str = "trainyard";

pub fn find() -> Found {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let (version, places) = places(&mounts, &own);
    let mut folders = BTreeMap::new();
    let mut missing = Vec::new();
    let wanted = if version == Version::V1 {
        &WANTED_V1[..]
    } else {
        &WANTED_V2[..]
    };
    for &controller in wanted {
        let Some(place) = places.get(&controller) else {
            missing.push(format!("{}: this machine has no such control group", controller.name()));
            continue;
        };
        let folder = place.join(OURS);
        match fs::create_dir_all(&folder).and_then(|()| probe(version, controller, &folder)) {
            Ok(()) => {
                folders.insert(controller, folder);
            }
            Err(error) => missing.push(format!("{}: {}: {error}", controller.name(), folder.display())),
        }
    }
    let parent = (!folders.is_empty()).then_some(Cgroup { version, folders });
    if let Some(parent) = &parent {
        parent.remove_ours();
    }
    Found { parent, missing }
}

/// Makes a group and takes it away, since only that shows whether it is allowed.
fn probe(version: Version, controller: Controller, ours: &Path) -> io::Result<()> {
    let trial = ours.join(format!("probe-{}", std::process::id()));
    if version == Version::V2 {
        enable(ours, controller)?;
    }
    fs::create_dir_all(&trial)?;
    let usable = trial.join("cgroup.procs").exists()
        && (version == Version::V1 || trial.join(format!("{}.max", controller.name())).exists());
    fs::remove_dir(&trial)?;
    if usable {
        Ok(())
    } else {
        Err(io::Error::other("the controller is not handed down to this group"))
    }
}

/// Version 2: hands a controller down, from the folder above ours to the groups in it.
fn enable(ours: &Path, controller: Controller) -> io::Result<()> {
    let word = format!("+{}", controller.name());
    if let Some(above) = ours.parent() {
        fs::write(above.join("cgroup.subtree_control"), &word)?;
    }
    fs::write(ours.join("cgroup.subtree_control"), &word)
}

/// The folder of our own group in every hierarchy; in version 2 for root the mount itself, since a group that holds
/// processes (ours) can't hand controllers down.
fn places(mounts: &str, own: &str) -> (Version, BTreeMap<Controller, PathBuf>) {
    let mut v1 = BTreeMap::new();
    let mut v2 = BTreeMap::new();
    for line in mounts.lines() {
        // ID PARENT DEVICE ROOT MOUNT OPTIONS [TAGS] - TYPE SOURCE SUPER-OPTIONS
        let Some((before, after)) = line.split_once(" - ") else {
            continue;
        };
        let before: Vec<&str> = before.split(' ').collect();
        let after: Vec<&str> = after.split(' ').collect();
        let (Some(&root), Some(&mount), Some(&kind)) = (before.get(3), before.get(4), after.first()) else {
            continue;
        };
        let has = |name: &str| {
            after
                .get(2)
                .is_some_and(|options| options.split(',').any(|option| option == name))
        };
        match kind {
            "cgroup" => {
                for controller in WANTED_V1.into_iter().filter(|controller| has(controller.name())) {
                    let path = own.lines().find_map(|line| {
                        let (names, path) = line.split_once(':')?.1.split_once(':')?;
                        names.split(',').any(|name| name == controller.name()).then_some(path)
                    });
                    v1.insert(controller, inside(mount, root, path.unwrap_or("/")));
                }
            }
            "cgroup2" => {
                let place = if nix::unistd::geteuid().is_root() {
                    PathBuf::from(mount)
                } else {
                    inside(
                        mount,
                        root,
                        own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/"),
                    )
                };
                v2.extend(WANTED_V2.map(|controller| (controller, place.clone())));
            }
            _ => {}
        }
    }
    // A machine with both has its controllers in version 1.
    if v1.is_empty() {
        (Version::V2, v2)
    } else {
        (Version::V1, v1)
    }
}

/// The path of a group below a mount that may show only a part of the hierarchy.
fn inside(mount: &str, root: &str, path: &str) -> PathBuf {
    let path = path.strip_prefix(root.trim_end_matches('/')).unwrap_or("");
    Path::new(mount).join(path.trim_start_matches('/'))
}

impl Cgroup {
    /// Makes the group and sets its limits. What did not work comes back in words.
    pub fn create(&self, limits: &Limits) -> Vec<String> {
        let mut faults = Vec::new();
        for (&controller, folder) in &self.folders {
            let made = fs::create_dir_all(folder).and_then(|()| {
                if self.version == Version::V2
                    && let Some(ours) = folder.parent()
                {
                    enable(ours, controller)?;
                }
                self.limit(controller, folder, limits)
            });
            if let Err(error) = made {
                faults.push(format!("{}: {}: {error}", controller.name(), folder.display()));
            }
        }
        faults
    }

    fn limit(&self, controller: Controller, folder: &Path, limits: &Limits) -> io::Result<()> {
        const PERIOD_US: u64 = 100_000;
        let set = |file: &str, value: String| fs::write(folder.join(file), value);
        let quota_us = (limits.cpu_milli * PERIOD_US / 1000).max(1000);
        match (self.version, controller) {
            (Version::V1, Controller::Memory) => {
                let Some(bytes) = limits.memory_bytes else {
                    return Ok(());
                };
                set("memory.limit_in_bytes", bytes.to_string())?;
                // Counting swap is optional in the kernel; without it memory alone is limited.
                let _ = set("memory.memsw.limit_in_bytes", bytes.to_string());
                Ok(())
            }
            (Version::V1, Controller::Cpu) => {
                set("cpu.shares", (limits.cpu_milli * 1024 / 1000).max(2).to_string())?;
                set("cpu.cfs_period_us", PERIOD_US.to_string())?;
                set("cpu.cfs_quota_us", quota_us.to_string())
            }
            (Version::V2, Controller::Memory) => {
                let Some(bytes) = limits.memory_bytes else {
                    return Ok(());
                };
                set("memory.max", bytes.to_string())?;
                let _ = set("memory.swap.max", "0".into());
                Ok(())
            }
            (Version::V2, Controller::Cpu) => set("cpu.max", format!("{quota_us} {PERIOD_US}")),
            (_, Controller::Pids) => set("pids.max", limits.processes.to_string()),
            (_, Controller::Cpuacct | Controller::Freezer) => Ok(()),
        }
    }

    /// Puts a process in, with all that it will start.
    pub fn join(&self, pid: i32) -> Vec<String> {
        let mut faults = Vec::new();
        for (controller, folder) in &self.folders {
            if let Err(error) = fs::write(folder.join("cgroup.procs"), pid.to_string()) {
                faults.push(format!("{}: {}: {error}", controller.name(), folder.display()));
            }
        }
        faults
    }

    /// The processes in it. Nothing can leave a group that it may not write to.
    pub fn processes(&self) -> Vec<i32> {
        let mut found: Vec<i32> = self
            .folders
            .values()
            .filter_map(|folder| fs::read_to_string(folder.join("cgroup.procs")).ok())
            .flat_map(|text| text.lines().filter_map(|line| line.parse().ok()).collect::<Vec<i32>>())
            .collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// Stops everything in it from starting more, so that killing by pid reaches all.
    pub fn freeze(&self, frozen: bool) {
        let (file, word) = match self.version {
            Version::V1 => ("freezer.state", if frozen { "FROZEN" } else { "THAWED" }),
            Version::V2 => ("cgroup.freeze", if frozen { "1" } else { "0" }),
        };
        if let Some(folder) = self
            .folders
            .get(&Controller::Freezer)
            .or_else(|| self.folders.values().next())
        {
            let _ = fs::write(folder.join(file), word);
        }
    }

    /// How often the kernel took a process of this group for want of memory.
    pub fn oom_kills(&self) -> u64 {
        let Some(folder) = self.folders.get(&Controller::Memory) else {
            return 0;
        };
        let file = if self.version == Version::V1 {
            "memory.oom_control"
        } else {
            "memory.events"
        };
        keyed(&folder.join(file), "oom_kill").unwrap_or(0)
    }

    /// `None` where neither time nor memory is counted.
    pub fn usage(&self) -> Option<ReplicaUsage> {
        let number = |controller: Controller, file: &str| {
            let text = fs::read_to_string(self.folders.get(&controller)?.join(file)).ok()?;
            text.trim().parse::<u64>().ok()
        };
        let memory = self.folders.get(&Controller::Memory);
        let (seconds, total, peak, inactive) = match self.version {
            Version::V1 => (
                number(Controller::Cpuacct, "cpuacct.usage")? as f64 / 1e9,
                number(Controller::Memory, "memory.usage_in_bytes")?,
                number(Controller::Memory, "memory.max_usage_in_bytes"),
                keyed(&memory?.join("memory.stat"), "total_inactive_file"),
            ),
            Version::V2 => (
                keyed(&self.folders.get(&Controller::Cpu)?.join("cpu.stat"), "usage_usec")? as f64 / 1e6,
                number(Controller::Memory, "memory.current")?,
                number(Controller::Memory, "memory.peak"),
                keyed(&memory?.join("memory.stat"), "inactive_file"),
            ),
        };
        // File pages that the kernel can drop at any time are not what a program needs.
        let now = total.saturating_sub(inactive.unwrap_or(0));
        Some(ReplicaUsage {
            cpu_seconds: seconds,
            memory_bytes: now,
            memory_peak_bytes: peak.unwrap_or(total).max(now),
            processes: self.processes().len() as u32,
            state: None,
        })
    }

    /// Whether everything in it has ended. Zombies that somebody else must collect hold nothing any more.
    pub fn is_empty(&self) -> bool {
        self.processes()
            .into_iter()
            .all(|pid| process::stat(pid).map_or(true, |stat| stat.has_ended()))
    }

    /// Removes the group. Fails, and may be repeated, while something is in it.
    pub fn remove(&self) -> io::Result<()> {
        let mut outcome = Ok(());
        for folder in self.folders.values() {
            match fs::remove_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => outcome = Err(error),
                _ => {}
            }
        }
        let parents = self
            .folders
            .iter()
            .filter_map(|(&controller, folder)| Some((controller, folder.parent()?.into())));
        Cgroup {
            version: self.version,
            folders: parents.collect(),
        }
        .remove_ours();
        outcome
    }

    /// Removes our own folder if no group is left in it; the kernel refuses otherwise.
    fn remove_ours(&self) {
        for folder in self.folders.values() {
            let _ = fs::remove_dir(folder);
        }
    }
}

/// The number behind a word in a file of `word number` lines.
fn keyed(file: &Path, word: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    text.lines()
        .find_map(|line| line.strip_prefix(word)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn separate_hierarchies_win_over_a_version_2_mount_without_controllers() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
                      31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      32 24 0:28 /box /sys/fs/cgroup/cpu,cpuacct rw shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
        let own = "4:memory:/slice/me\n2:cpu,cpuacct:/box/inner\n0::/\n";
        let (version, places) = places(mounts, own);
        assert_eq!(version, Version::V1);
        assert_eq!(places[&Controller::Memory], Path::new("/sys/fs/cgroup/memory/slice/me"));
        assert_eq!(places[&Controller::Cpu], Path::new("/sys/fs/cgroup/cpu,cpuacct/inner"));
        assert_eq!(
            places[&Controller::Cpuacct],
            Path::new("/sys/fs/cgroup/cpu,cpuacct/inner")
        );
        assert!(!places.contains_key(&Controller::Pids));
    }

    #[test]
    fn version_2_alone_gives_one_folder_to_all_controllers() {
        let mounts = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        let (version, places) = places(mounts, "0::/user.slice/session\n");
        assert_eq!(version, Version::V2);
        assert_eq!(places.len(), WANTED_V2.len());
        assert_eq!(places.values().collect::<std::collections::BTreeSet<_>>().len(), 1);
    }
}
