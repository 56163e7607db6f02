//! What this machine has for jobs: an account, limits, GPUs, and the programs that they call.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use nix::unistd::{AccessFlags, access};

use super::{Check, good, note};
use crate::{
    config::{self, Config, Database},
    packages::{self, Package},
};

pub(super) fn replica_account(root: bool) -> Check {
    const WHAT: &str = "isolation of jobs";
    if root {
        good(WHAT, "runs as root, so jobs run as an account of their own")
    } else {
        note(
            WHAT,
            "one trust domain: without root, jobs run as this account and can read its keys and data",
            "run it as root to give jobs an account of their own; else submit only what you trust",
        )
    }
}

/// `up` knows its own address; a worker apart from the server has to be told.
pub(super) fn reports_of_jobs(config: &Config) -> Check {
    const WHAT: &str = "reports of jobs";
    match (&config.jobs_url, &config.database) {
        (Some(url), _) => good(WHAT, format!("jobs are given {url} and a token of their own")),
        (None, Database::Private(_)) => {
            let url = config::url_here(config.listen);
            good(
                WHAT,
                format!("jobs of `trainyard up` are given {url} and a token of their own"),
            )
        }
        (None, Database::Given(_)) => note(
            WHAT,
            "jobs of `trainyard up` get a token of their own; those of `trainyard work` get none, since it does not \
             know where they reach the API",
            "set TRAINYARD_JOBS_URL for `trainyard work` to the server's address",
        ),
    }
}

/// Limits are enforced by cgroups of this process's own level, where it may make others below.
pub(super) fn cgroups() -> Check {
    const WHAT: &str = "limits of jobs";
    const HELP: &str = "run as root, or in a unit with Delegate=yes (systemd-run --user -p Delegate=yes --scope ...)";
    let lines = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let writable = |folder: &Path| access(folder, AccessFlags::W_OK).is_ok();
    let mut enforced = Vec::new();
    let mut version = "v2";
    for controller in ["cpu", "memory", "pids"] {
        let own = |wanted: &dyn Fn(&str) -> bool| {
            let line = lines.lines().find(|line| line.split(':').nth(1).is_some_and(wanted))?;
            Some(line.splitn(3, ':').nth(2)?.trim_start_matches('/').to_owned())
        };
        let first = own(&|controllers| controllers.split(',').any(|one| one == controller));
        let allowed = match first {
            Some(path) => {
                version = "v1";
                writable(&Path::new("/sys/fs/cgroup").join(controller).join(path))
            }
            None => own(&|controllers| controllers.is_empty()).is_some_and(|path| {
                let folder = Path::new("/sys/fs/cgroup").join(path);
                let offered = std::fs::read_to_string(folder.join("cgroup.controllers")).unwrap_or_default();
                offered.split_whitespace().any(|one| one == controller) && writable(&folder)
            }),
        };
        if allowed {
            enforced.push(controller);
        }
    }
    match enforced.len() {
        3 => good(WHAT, format!("cpu, memory and pids, by cgroups {version}")),
        0 => note(WHAT, "none can be enforced: no cgroup that we may divide", HELP),
        _ => note(
            WHAT,
            format!("only {}, by cgroups {version}", enforced.join(" and ")),
            HELP,
        ),
    }
}

pub(super) fn gpus() -> Check {
    const WHAT: &str = "GPUs";
    match nvml_wrapper::Nvml::init() {
        Err(_) => good(WHAT, "none: no NVIDIA driver on this machine"),
        Ok(nvml) => match nvml.device_count() {
            Ok(count) => {
                let name = nvml.device_by_index(0).and_then(|device| device.name());
                good(
                    WHAT,
                    format!("{count} ({})", name.unwrap_or_else(|error| error.to_string())),
                )
            }
            Err(error) => note(WHAT, format!("the driver does not answer: {error}"), "nvidia-smi"),
        },
    }
}

/// The PATH that replicas get: root's is set, others inherit.
pub(super) fn replica_path(config: &Config) -> std::ffi::OsString {
    if config.root {
        "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into()
    } else {
        config.path.clone()
    }
}

pub(super) fn program(
    what: &'static str,
    path: &std::ffi::OsStr,
    words: &[&str],
    package: &Package,
    why: &str,
) -> Check {
    let found = std::env::split_paths(path)
        .map(|folder| folder.join(words[0]))
        .find(|path| path.is_file());
    let said = found.and_then(|program| {
        let output = Command::new(program)
            .args(&words[1..])
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()
            .ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output
            .status
            .success()
            .then(|| text.lines().next().unwrap_or_default().trim().to_owned())
    });
    match said {
        Some(said) => good(what, said),
        None => note(what, format!("not found; {why}"), packages::line_here(package)),
    }
}
