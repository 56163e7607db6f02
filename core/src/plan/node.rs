//! Whether a machine can be trusted with work, from one look at it. Numbers in, conditions out; every condition is
//! judged every time, "well" included, so none can go stale.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::words;
use crate::model::{ConditionStatus, Severity};

/// One look at a machine.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MachineLook {
    pub cores: f64,
    pub load_1m: Option<f64>,
    pub memory_total: u64,
    pub memory_available: u64,
    /// The fullest file system that jobs or records are on: its mount point, size and free bytes.
    pub disk: Option<(String, u64, u64)>,
    /// The hottest sensor: its name, degrees Celsius, and the limit that the maker names.
    pub hottest: Option<(String, f64, Option<f64>)>,
    pub gpus: Vec<GpuLook>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GpuLook {
    pub index: u32,
    pub name: String,
    pub celsius: Option<f64>,
    /// Uncorrected memory errors since the driver was loaded.
    pub memory_errors: Option<u64>,
    /// The driver can't talk to it.
    pub lost: bool,
}

/// A condition of a node. `since` is when it was judged; what is stored keeps the first time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeCondition {
    pub kind: &'static str,
    pub status: ConditionStatus,
    pub severity: Severity,
    pub reason: &'static str,
    pub message: String,
    pub since: DateTime<Utc>,
}

/// Less than this share of memory available is pressure: the kernel soon ends a process to get some.
const MEMORY_LOW: f64 = 0.05;
/// Less than this share of a disk free is a warning, and less than the second one is critical: Postgres stops there.
const DISK_LOW: f64 = 0.10;
const DISK_FULL: f64 = 0.03;
/// More runnable processes than this per core: everything waits.
const LOAD_HIGH: f64 = 4.0;
/// Without a limit named by the maker.
const HOT_CELSIUS: f64 = 95.0;

pub fn judge(look: &MachineLook, now: DateTime<Utc>) -> Vec<NodeCondition> {
    vec![
        memory(look, now),
        disk(look, now),
        load(look, now),
        heat(look, now),
        accelerators(look, now),
    ]
}

fn condition(
    kind: &'static str,
    worry: Option<(Severity, &'static str, String)>,
    well: String,
    now: DateTime<Utc>,
) -> NodeCondition {
    let (status, severity, reason, message) = match worry {
        Some((severity, reason, message)) => (ConditionStatus::True, severity, reason, message),
        None => (ConditionStatus::False, Severity::Info, "well", well),
    };
    NodeCondition {
        kind,
        status,
        severity,
        reason,
        message,
        since: now,
    }
}

fn memory(look: &MachineLook, now: DateTime<Utc>) -> NodeCondition {
    let free = look.memory_available as f64 / (look.memory_total.max(1)) as f64;
    let words = format!(
        "{} of {} memory are available",
        words::bytes(look.memory_available),
        words::bytes(look.memory_total)
    );
    let worry = (free < MEMORY_LOW).then(|| (Severity::Critical, "memory_low", words.clone()));
    condition("MemoryPressure", worry, words, now)
}

fn disk(look: &MachineLook, now: DateTime<Utc>) -> NodeCondition {
    let Some((mount, total, free)) = &look.disk else {
        return unknown("DiskPressure", "No file system could be looked at", now);
    };
    let share = *free as f64 / (*total).max(1) as f64;
    let words = format!(
        "{} of {} are free on {mount}",
        words::bytes(*free),
        words::bytes(*total)
    );
    let worry = if share < DISK_FULL {
        Some((Severity::Critical, "disk_full", words.clone()))
    } else {
        (share < DISK_LOW).then(|| (Severity::Warning, "disk_low", words.clone()))
    };
    condition("DiskPressure", worry, words, now)
}

fn load(look: &MachineLook, now: DateTime<Utc>) -> NodeCondition {
    let Some(load) = look.load_1m else {
        return unknown("Overloaded", "The load could not be read", now);
    };
    let words = format!("Load {load:.1} over the last minute on {} cores", look.cores);
    let worry = (load > LOAD_HIGH * look.cores.max(1.0)).then(|| (Severity::Warning, "load_high", words.clone()));
    condition("Overloaded", worry, words, now)
}

fn heat(look: &MachineLook, now: DateTime<Utc>) -> NodeCondition {
    let Some((sensor, celsius, limit)) = &look.hottest else {
        return unknown("Hot", "This machine shows no temperature sensor", now);
    };
    let words = format!("{sensor} is at {celsius:.0} °C");
    let worry = (*celsius >= limit.unwrap_or(HOT_CELSIUS)).then(|| (Severity::Critical, "hot", words.clone()));
    condition("Hot", worry, words, now)
}

fn accelerators(look: &MachineLook, now: DateTime<Utc>) -> NodeCondition {
    let worry = look.gpus.iter().find_map(|gpu| {
        if gpu.lost {
            let words = format!(
                "GPU {} does not answer its driver; the machine needs a reboot",
                gpu.index
            );
            return Some((Severity::Critical, "gpu_lost", words));
        }
        let errors = gpu.memory_errors.filter(|errors| *errors > 0)?;
        let words = format!(
            "GPU {} ({}) has had {errors} uncorrected memory errors",
            gpu.index, gpu.name
        );
        Some((Severity::Warning, "gpu_memory_errors", words))
    });
    let well = match look.gpus.len() {
        0 => "This machine shows no GPU".to_owned(),
        1 => "The GPU is well".to_owned(),
        all => format!("All {all} GPUs are well"),
    };
    condition("AcceleratorFault", worry, well, now)
}

fn unknown(kind: &'static str, message: &str, now: DateTime<Utc>) -> NodeCondition {
    NodeCondition {
        kind,
        status: ConditionStatus::Unknown,
        severity: Severity::Info,
        reason: "not_readable",
        message: message.to_owned(),
        since: now,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> MachineLook {
        MachineLook {
            cores: 2.0,
            load_1m: Some(1.0),
            memory_total: 100 << 30,
            memory_available: 50 << 30,
            disk: Some(("/".into(), 100 << 30, 50 << 30)),
            hottest: Some(("cpu".into(), 50.0, None)),
            gpus: vec![],
        }
    }

    fn troubled(look: &MachineLook) -> Vec<&'static str> {
        let now = DateTime::UNIX_EPOCH;
        judge(look, now)
            .iter()
            .filter(|one| one.status == ConditionStatus::True)
            .map(|one| one.reason)
            .collect()
    }

    #[test]
    fn a_well_machine_has_no_trouble_and_every_condition_is_told() {
        assert!(troubled(&well()).is_empty());
        assert_eq!(judge(&well(), DateTime::UNIX_EPOCH).len(), 5);
    }

    #[test]
    fn each_trouble_is_told_by_its_own_condition() {
        assert_eq!(
            troubled(&MachineLook {
                memory_available: 1 << 30,
                ..well()
            }),
            ["memory_low"]
        );
        assert_eq!(
            troubled(&MachineLook {
                disk: Some(("/".into(), 100, 5)),
                ..well()
            }),
            ["disk_low"]
        );
        assert_eq!(
            troubled(&MachineLook {
                disk: Some(("/".into(), 100, 1)),
                ..well()
            }),
            ["disk_full"]
        );
        assert_eq!(
            troubled(&MachineLook {
                load_1m: Some(9.0),
                ..well()
            }),
            ["load_high"]
        );
        assert_eq!(
            troubled(&MachineLook {
                hottest: Some(("cpu".into(), 80.0, Some(75.0))),
                ..well()
            }),
            ["hot"]
        );
        let gpu = GpuLook {
            index: 3,
            name: "H100".into(),
            celsius: None,
            memory_errors: Some(2),
            lost: false,
        };
        assert_eq!(
            troubled(&MachineLook {
                gpus: vec![gpu.clone()],
                ..well()
            }),
            ["gpu_memory_errors"]
        );
        assert_eq!(
            troubled(&MachineLook {
                gpus: vec![GpuLook { lost: true, ..gpu }],
                ..well()
            }),
            ["gpu_lost"]
        );
    }

    #[test]
    fn what_can_not_be_read_is_unknown_and_not_well() {
        let look = MachineLook {
            disk: None,
            load_1m: None,
            hottest: None,
            ..well()
        };
        let unknown = judge(&look, DateTime::UNIX_EPOCH)
            .iter()
            .filter(|one| one.status == ConditionStatus::Unknown)
            .count();
        assert_eq!(unknown, 3);
    }
}
