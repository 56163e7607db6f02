//! The folder of a private Postgres: who may enter, the lock, where the socket goes, and the first initialisation.
//!
//! ```text
//! postgres/            ours
//!   lock               held as long as a process of ours looks after this Postgres; its death releases it
//!   server.log         what Postgres says; ours too, so that its account can't lead our writes elsewhere by a link
//!   data/              the account's, 0700
//!   run/               the account's, 0700: the socket, and so the only way in
//! ```

use std::{
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown},
    path::{Path, PathBuf},
    process::Stdio,
};

use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};
use tokio::process::Command;

use super::{PostgresError, SUPERUSER, account, account::Account, binaries::Binaries};

/// The name of a socket ends in this; with its folder it must fit into 107 bytes.
const SOCKET_NAME: &str = ".s.PGSQL.5432";
const LONGEST_SOCKET: usize = 107;
/// The log is set aside at a start when it is larger, so that two of these are the most it takes.
const LOG_BYTES: u64 = 16 << 20;

pub(super) struct Place {
    pub folder: PathBuf,
    pub data: PathBuf,
    pub socket_folder: PathBuf,
    pub account: Option<Account>,
}

impl Place {
    /// Makes the folders, and takes the lock.
    pub fn prepare(folder: &Path) -> Result<(Self, Flock<File>), PostgresError> {
        let fault = |error| PostgresError::file(folder, error);
        make_folder(folder).map_err(fault)?;
        // Postgres reports its folder without links, and so must we.
        let folder = folder.canonicalize().map_err(fault)?;
        let data = folder.join("data");
        let place = Self {
            socket_folder: socket_folder(&folder),
            account: account::choose(&data)?,
            data,
            folder,
        };
        let lock = place.lock()?;
        place.own(&place.socket_folder)?;
        place.clear_unfinished();
        Ok((place, lock))
    }

    fn lock(&self) -> Result<Flock<File>, PostgresError> {
        let path = self.folder.join("lock");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&path)
            .map_err(|error| PostgresError::file(&path, error))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(mut lock) => {
                // For the words that the next one gets; a full disk may keep them from us, which harms nobody.
                let _ = lock.set_len(0).and_then(|()| write!(*lock, "{}", std::process::id()));
                Ok(lock)
            }
            Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                let mut pid = String::new();
                let _ = file.read_to_string(&mut pid);
                Err(PostgresError::InUse {
                    folder: self.folder.clone(),
                    pid: pid.trim().parse().ok(),
                })
            }
            Err((_, error)) => Err(PostgresError::file(&path, error.into())),
        }
    }

    /// The major version that made the data; None when there is none yet.
    pub fn data_major(&self) -> Result<Option<u32>, PostgresError> {
        let path = self.data.join("PG_VERSION");
        match fs::read_to_string(&path) {
            Ok(text) => match text.trim().split('.').next().and_then(|major| major.parse().ok()) {
                Some(major) => Ok(Some(major)),
                None => Err(PostgresError::Damaged {
                    what: format!("{} says '{}', which is no version", path.display(), text.trim()),
                }),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.data.exists() => {
                Err(PostgresError::Damaged {
                    what: format!("{} is there, but has no PG_VERSION in it", self.data.display()),
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(PostgresError::file(&path, error)),
        }
    }

    /// Makes the data folder. It gets its name when it is whole, so that a kill in between leaves no half of one.
    pub async fn initialise(&self, binaries: &Binaries) -> Result<(), PostgresError> {
        let staged = self.folder.join(format!("data.new-{:016x}", rand::random::<u64>()));
        self.own(&staged)?;
        let output = self
            .command(&binaries.initdb())
            .arg("-D")
            .arg(&staged)
            .args(["-U", SUPERUSER, "-E", "UTF8", "--locale=C.UTF-8", "--data-checksums"])
            .args(["--auth-local=trust", "--auth-host=reject", "--no-instructions"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .await
            .map_err(|error| self.unreachable(binaries, error))?;
        if !output.status.success() {
            // What went wrong comes last, behind the steps that went well.
            let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            let _ = fs::remove_dir_all(&staged);
            return Err(PostgresError::from_words("initdb", &said, self));
        }
        crate::private_file::put(&staged, &self.data).map_err(|error| PostgresError::file(&self.data, error))
    }

    /// What an initialisation that was killed left behind. One that still runs as an orphan loses its folder and ends.
    fn clear_unfinished(&self) {
        for entry in fs::read_dir(&self.folder).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with("data.new-") {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }

    /// A program of Postgres as its account, in a group of its own (Ctrl-C in a terminal is not meant for it), and
    /// with nothing of our environment: a `PGDATA` or `PGPORT` there must not lead it astray.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LC_ALL", "C.UTF-8")
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::null());
        if let Some(account) = &self.account {
            // Together with the uid, the standard library gives up root's supplementary groups.
            command.uid(account.uid).gid(account.gid);
        }
        command
    }

    /// Why Postgres could not even be started: its account can't reach the program or the folder.
    pub fn unreachable(&self, binaries: &Binaries, error: io::Error) -> PostgresError {
        PostgresError::Account(format!(
            "{} can't run {}: {error}",
            self.account
                .as_ref()
                .map_or("this account", |account| account.name.as_str()),
            binaries.bin.display(),
        ))
    }

    /// The account must be able to walk to its folders, which it can't below a closed home such as root's.
    pub async fn check_reach(&self, binaries: &Binaries) -> Result<(), PostgresError> {
        let Some(account) = &self.account else {
            return Ok(());
        };
        let mut command = self.command(&binaries.postgres());
        command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
        command
            .status()
            .await
            .map_err(|error| self.unreachable(binaries, error))?;
        match command.current_dir(&self.folder).status().await {
            Ok(_) => Ok(()),
            Err(_) => Err(PostgresError::Account(format!(
                "Postgres runs as '{}', which can't enter {}: a folder above it is closed to other accounts. \
                 Point TRAINYARD_DATA at a folder that they can walk to, such as /var/lib/trainyard",
                account.name,
                self.folder.display()
            ))),
        }
    }

    /// Opens the log for adding to it, and tells how long it is now.
    pub fn open_log(&self) -> Result<(File, u64), PostgresError> {
        let path = self.log_path();
        let fault = |error| PostgresError::file(&path, error);
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_BYTES) {
            fs::rename(&path, path.with_extension("log.1")).map_err(fault)?;
        }
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(&path)
            .map_err(fault)?;
        let length = file.metadata().map_err(fault)?.len();
        Ok((file, length))
    }

    /// What was added to the log since it had that length; the end of it, when that is much.
    pub fn log_since(&self, length: u64) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(self.log_path())?;
            let end = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.max(end.saturating_sub(16 << 10))))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    pub fn log_path(&self) -> PathBuf {
        self.folder.join("server.log")
    }

    /// Makes a folder that the account alone may enter. One in /tmp could have been put there by somebody else.
    fn own(&self, folder: &Path) -> Result<(), PostgresError> {
        let fault = |error| PostgresError::file(folder, error);
        let uid = self
            .account
            .as_ref()
            .map_or(nix::unistd::geteuid().as_raw(), |account| account.uid);
        match fs::create_dir(folder) {
            Ok(()) => {
                if let Some(account) = &self.account {
                    chown(folder, Some(account.uid), Some(account.gid)).map_err(fault)?;
                }
                fs::set_permissions(folder, Permissions::from_mode(0o700)).map_err(fault)
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let there = fs::symlink_metadata(folder).map_err(fault)?;
                if there.is_dir() && there.uid() == uid && there.mode() & 0o077 == 0 {
                    return Ok(());
                }
                Err(PostgresError::Account(format!(
                    "{} is not a folder that only uid {uid} may enter, as the socket's folder must be. \
                     If it is yours, remove it and start again",
                    folder.display()
                )))
            }
            Err(error) => Err(fault(error)),
        }
    }
}

/// Beside the data, unless that path is too long for a socket.
fn socket_folder(folder: &Path) -> PathBuf {
    let near = folder.join("run");
    if near.as_os_str().len() + 1 + SOCKET_NAME.len() <= LONGEST_SOCKET {
        return near;
    }
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    let name = format!("trainyard-{}", data_encoding::HEXLOWER.encode(&digest[..6]));
    let parent = if nix::unistd::geteuid().is_root() {
        "/run"
    } else {
        "/tmp"
    };
    Path::new(parent).join(name)
}

/// Makes the folder and those above it. Root's must let Postgres's account walk through, whatever the umask;
/// others' are closed.
fn make_folder(folder: &Path) -> io::Result<()> {
    let mode = if nix::unistd::geteuid().is_root() { 0o755 } else { 0o700 };
    let missing: Vec<&Path> = folder.ancestors().take_while(|path| !path.exists()).collect();
    for path in missing.into_iter().rev() {
        match fs::create_dir(path) {
            Ok(()) => fs::set_permissions(path, Permissions::from_mode(mode))?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_never_gets_a_path_that_is_too_long() {
        let near = Path::new("/var/lib/trainyard/postgres");
        assert_eq!(socket_folder(near), near.join("run"));
        let far = PathBuf::from(format!("/{}", "long/".repeat(40)));
        let folder = socket_folder(&far);
        assert!(folder.join(SOCKET_NAME).as_os_str().len() <= LONGEST_SOCKET);
        assert_eq!(folder, socket_folder(&far), "the same folder gets the same socket");
        assert_ne!(folder, socket_folder(&far.join("other")));
    }
}
