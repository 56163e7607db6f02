//! How this system installs a thing, for words that end in a line to type. Runs none of them.

/// The same thing as packagers name it. Others get the thing's plain name.
pub struct Package {
    /// What it is, for systems whose names we don't know.
    pub what: &'static str,
    pub apt: &'static str,
    pub dnf: &'static str,
    pub pacman: &'static str,
    pub apk: &'static str,
}

pub const POSTGRES: Package = Package {
    what: "the PostgreSQL server",
    apt: "postgresql",
    dnf: "postgresql-server postgresql-contrib",
    pacman: "postgresql",
    apk: "postgresql postgresql-contrib",
};
pub const POSTGRES_CLIENT: Package = Package {
    what: "PostgreSQL's client programs (pg_dump, pg_restore, psql)",
    apt: "postgresql-client",
    dnf: "postgresql",
    pacman: "postgresql",
    apk: "postgresql-client",
};
pub const PYTHON: Package = Package {
    what: "Python 3",
    apt: "python3",
    dnf: "python3",
    pacman: "python",
    apk: "python3",
};
pub const PYTORCH: Package = Package {
    what: "PyTorch",
    apt: "python3-torch",
    dnf: "python3-torch",
    pacman: "python-pytorch",
    apk: "py3-pytorch",
};
pub const GIT: Package = Package {
    what: "git",
    apt: "git",
    dnf: "git",
    pacman: "git",
    apk: "git",
};
pub const OPEN_MPI: Package = Package {
    what: "Open MPI",
    apt: "openmpi-bin",
    dnf: "openmpi",
    pacman: "openmpi",
    apk: "openmpi",
};

/// The line for this machine.
pub fn line_here(package: &Package) -> String {
    line(package, &std::fs::read_to_string("/etc/os-release").unwrap_or_default())
}

/// The line for the system that describes itself so in its `os-release`.
fn line(package: &Package, os_release: &str) -> String {
    let ids: Vec<&str> = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or_else(|| line.strip_prefix("ID_LIKE=")))
        .flat_map(|value| value.trim_matches('"').split_whitespace())
        .collect();
    let is = |wanted: &[&str]| ids.iter().any(|id| wanted.contains(id));
    if is(&["debian", "ubuntu"]) {
        format!("apt-get install {}", package.apt)
    } else if is(&["fedora", "rhel", "centos", "amzn"]) {
        format!("dnf install {}", package.dnf)
    } else if is(&["arch"]) {
        format!("pacman -S {}", package.pacman)
    } else if is(&["alpine"]) {
        format!("apk add {}", package.apk)
    } else {
        format!("install {} with your system's packages", package.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_is_the_systems_own() {
        assert_eq!(line(&POSTGRES, "NAME=x\nID=debian\n"), "apt-get install postgresql");
        let rocky = "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n";
        assert_eq!(line(&PYTHON, rocky), "dnf install python3");
        assert_eq!(line(&OPEN_MPI, ""), "install Open MPI with your system's packages");
    }
}
