//! Who replicas run as. Root never runs a replica: it uses a dedicated account, made if it is missing. Everybody else
//! runs replicas as themselves, and then server, keys, database and replicas are one trust domain.

use std::{
    fs::{self, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::Path,
    process::Command,
};

use nix::{
    fcntl::{Flock, FlockArg},
    unistd::{User, geteuid},
};

use crate::{runtimes::RuntimeError, shim::folder::Account};

pub const NAME: &str = "trainyard";

/// The account for replicas; `None`: our own.
pub fn find_or_make() -> Result<Option<Account>, RuntimeError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    if let Some(account) = find()? {
        return Ok(Some(account));
    }
    // Two useradd at once would both succeed, and the later one would change the number of the earlier one's account.
    let accounts = fs::File::open("/etc/passwd").map_err(super::retry("/etc/passwd"))?;
    let _alone = Flock::lock(accounts, FlockArg::LockExclusive)
        .map_err(|(_, error)| RuntimeError::Retry(format!("/etc/passwd: {error}")))?;
    if let Some(account) = find()? {
        return Ok(Some(account));
    }
    let made = Command::new("useradd")
        .args([
            "--system",
            "--user-group",
            "--no-create-home",
            "--home-dir",
            "/nonexistent",
        ])
        .args([
            "--shell",
            "/usr/sbin/nologin",
            "--comment",
            "Trainyard's replicas",
            NAME,
        ])
        .env_clear()
        .env("PATH", super::environment::DEFAULT_PATH)
        .output();
    match find()? {
        Some(account) => Ok(Some(account)),
        None => {
            let why = match made {
                Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
                Err(error) => error.to_string(),
            };
            Err(RuntimeError::Retry(format!(
                "as root, replicas run as the account '{NAME}', and it could not be made ({why}); make it with: \
                 useradd --system --user-group {NAME}"
            )))
        }
    }
}

fn find() -> Result<Option<Account>, RuntimeError> {
    let user = User::from_name(NAME).map_err(|error| RuntimeError::Retry(format!("account '{NAME}': {error}")))?;
    match user {
        Some(user) if user.uid.is_root() => Err(RuntimeError::Retry(format!(
            "the account '{NAME}' is root itself, and replicas never run as root"
        ))),
        Some(user) => Ok(Some(Account {
            name: user.name,
            uid: user.uid.as_raw(),
            gid: user.gid.as_raw(),
        })),
        None => Ok(None),
    }
}

/// Lets the account pass through the data folder, and tells in words if it can't get there.
pub fn let_through(data: &Path) -> Result<(), RuntimeError> {
    let retry = |error: io::Error| RuntimeError::Retry(format!("'{}': {error}", data.display()));
    let data = data.canonicalize().map_err(retry)?;
    let mode = fs::metadata(&data).map_err(retry)?.permissions().mode();
    if mode & 0o001 == 0 {
        fs::set_permissions(&data, Permissions::from_mode(mode & 0o7777 | 0o011)).map_err(retry)?;
    }
    for folder in data.ancestors() {
        if fs::metadata(folder).map_err(retry)?.permissions().mode() & 0o001 == 0 {
            return Err(RuntimeError::Retry(format!(
                "the account '{NAME}' can't pass through '{}' on the way to the data folder; choose another data \
                 folder (/var/lib/trainyard) or allow it: chmod o+x '{}'",
                folder.display(),
                folder.display()
            )));
        }
    }
    Ok(())
}

/// Gives a tree to the account, links themselves and never what they point to. The top goes last: until then nobody
/// else can reach into the tree.
pub fn give(path: &Path, account: &Account) -> io::Result<()> {
    if fs::symlink_metadata(path)?.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), account)?;
        }
    }
    std::os::unix::fs::lchown(path, Some(account.uid), Some(account.gid))
}
