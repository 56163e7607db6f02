//! What the machine must have before anything starts, told with the line that helps.

use crate::error::{Error, Result};
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

fn is_there(program: &str) -> bool {
    if program.starts_with('/') {
        return Path::new(program).exists();
    }
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|dir| dir.join(program).is_file())
}
