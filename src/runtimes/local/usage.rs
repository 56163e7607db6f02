//! What replicas use, from their control groups, or from `/proc` where there are none. Blocking.

use std::{fs, io};

use nix::unistd::{SysconfVar, sysconf};
use trainyard_core::model::{AttemptId, ReplicaKey};

use super::{
    Inner,
    observe::{Known, look},
};
use crate::{
    runtimes::ReplicaUsage,
    shim::process::{self, Stat},
};

pub fn usage(inner: &Inner, attempt: AttemptId) -> io::Result<Vec<(ReplicaKey, ReplicaUsage)>> {
    let folder = inner.layout.attempt(attempt);
    let mut found = Vec::new();
    let Some(record) = folder.record()? else {
        return Ok(found);
    };
    let mut processes = None;
    for replica in record.replicas {
        let place = folder.replica(&replica.key);
        let usage = match look(&place)? {
            Known::Running(started) | Known::Orphaned(started) => {
                let counted = place
                    .spec()?
                    .and_then(|spec| spec.cgroup)
                    .and_then(|cgroup| cgroup.usage());
                let used = match counted {
                    Some(usage) => usage,
                    None => {
                        let all = match &mut processes {
                            Some(all) => all,
                            none => none.insert(process::all()?),
                        };
                        summed(all, started.process.pid, &replica.incarnation.to_string())
                    }
                };
                Some(ReplicaUsage {
                    state: started.process.state(),
                    ..used
                })
            }
            Known::Ended(..) => place.exited()?.and_then(|exited| exited.usage),
            Known::Waiting | Known::Failed(_) | Known::Lost(_) => None,
        };
        found.extend(usage.map(|usage| (replica.key, usage)));
    }
    Ok(found)
}

/// The processes of one replica added up: its session, and those marked as its own.
fn summed(all: &[(i32, Stat)], session: i32, marker: &str) -> ReplicaUsage {
    let per_second = constant(SysconfVar::CLK_TCK, 100);
    let page = constant(SysconfVar::PAGE_SIZE, 4096);
    let mut usage = ReplicaUsage::default();
    for (pid, stat) in all {
        if stat.session == session || process::is_marked(*pid, marker) {
            usage.cpu_seconds += stat.cpu_ticks as f64 / per_second as f64;
            usage.memory_bytes += stat.resident_pages * page;
            usage.memory_peak_bytes += peak(*pid).unwrap_or(stat.resident_pages * page);
            usage.processes += 1;
        }
    }
    usage
}

fn peak(pid: i32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? * 1024)
}

fn constant(name: SysconfVar, otherwise: u64) -> u64 {
    sysconf(name)
        .ok()
        .flatten()
        .and_then(|value| u64::try_from(value).ok())
        .unwrap_or(otherwise)
}
