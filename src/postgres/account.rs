//! Which account runs Postgres. Postgres refuses to run as root, so root has to choose another; anybody else is it.

use std::{
    os::unix::fs::MetadataExt,
    path::Path,
    process::{Command, Stdio},
};

use nix::unistd::{Uid, User};

use super::PostgresError;

/// Made when the machine has no `postgres`. Not `nobody`, which others share and could then read our data as.
const DEDICATED: &str = "trainyard-postgres";

/// An account other than our own that a process is started as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// None: we are not root, and run it ourselves. Root takes the owner of the existing data, else `postgres`, else an
/// account of its own, which it makes.
pub fn choose(data: &Path) -> Result<Option<Account>, PostgresError> {
    if !Uid::effective().is_root() {
        return Ok(None);
    }
    if let Ok(metadata) = std::fs::metadata(data) {
        let found = named(User::from_uid(Uid::from_raw(metadata.uid())))?;
        return match found {
            Some(account) if account.uid != 0 => Ok(Some(account)),
            Some(_) => Err(PostgresError::Account(format!(
                "{} belongs to root, and Postgres never runs as root. Give it back to its owner: chown -R postgres {}",
                data.display(),
                data.display()
            ))),
            None => Err(PostgresError::Account(format!(
                "{} belongs to uid {}, which has no account on this machine. Make one with that uid, or chown the folder",
                data.display(),
                metadata.uid()
            ))),
        };
    }
    for name in ["postgres", DEDICATED] {
        if let Some(account) = named(User::from_name(name))? {
            return Ok(Some(account));
        }
    }
    make()?;
    match named(User::from_name(DEDICATED))? {
        Some(account) => Ok(Some(account)),
        None => Err(PostgresError::Account(format!(
            "the account {DEDICATED} was made but can't be looked up"
        ))),
    }
}

fn named(found: nix::Result<Option<User>>) -> Result<Option<Account>, PostgresError> {
    let found = found.map_err(|error| PostgresError::Account(format!("looking up an account failed: {error}")))?;
    Ok(found.map(|user| Account {
        name: user.name,
        uid: user.uid.as_raw(),
        gid: user.gid.as_raw(),
    }))
}

fn make() -> Result<(), PostgresError> {
    let line = format!("useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {DEDICATED}");
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap_or_default())
        .args(words)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(PostgresError::Account(format!(
            "Postgres needs an account other than root; `{line}` failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))),
        Err(error) => Err(PostgresError::Account(format!(
            "Postgres needs an account other than root; `{line}` failed: {error}. Make the account by hand"
        ))),
    }
}
