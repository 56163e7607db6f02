//! What the machine must have before anything starts, told with the line that helps.

use crate::error::{Doing, Error, Result};
use crate::layout::make_dir;
use nix::sys::statvfs::statvfs;
use std::path::Path;

/// The one list, which `tests/testbed/test` installs from.
const PACKAGES: &str = include_str!("../packages");

/// Refuses with one message that names everything missing.
pub fn check() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        let help = "run it with sudo: it makes namespaces, mounts and cgroups".to_string();
        return Err(Error::Missing {
            what: "root".into(),
            help,
        });
    }
    let wanted = PACKAGES
        .lines()
        .filter(|l| !l.starts_with('#'))
        .filter_map(|l| l.split_once(' '));
    let mut packages: Vec<&str> = wanted
        .filter(|(program, _)| !is_there(program))
        .map(|(_, package)| package)
        .collect();
    packages.dedup();
    if packages.is_empty() {
        return Ok(());
    }
    let help = format!(
        "install with: apt-get install -y --no-install-recommends {}",
        packages.join(" ")
    );
    Err(Error::Missing {
        what: format!("Debian package {}", packages.join(", ")),
        help,
    })
}

/// Refuses where a folder's file system has less than so many megabytes free.
pub fn room(folder: &Path, megabytes: u64) -> Result<()> {
    make_dir(folder)?;
    let found = statvfs(folder).doing(format!("cannot look for room in {}", folder.display()))?;
    let free = found.blocks_available() * found.fragment_size() / 1_000_000;
    if free >= megabytes {
        return Ok(());
    }
    Err(Error::Refused(format!(
        "{megabytes} MB are needed in {}, and {free} MB are free; make room there, or name another folder: TRAINYARD_TESTBED_STATE \
         for what runs, TRAINYARD_TESTBED_CACHE for what is built",
        folder.display()
    )))
}

fn is_there(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(program).is_file())
}
