//! Files that only their owner may read, replaced whole or not at all: the key ring, the client's token, a backup.

use std::{
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
};

use nix::unistd::geteuid;

/// Replaces the file: after a crash it has the old content or the new, never a part. It stays with whom it belonged to,
/// also when root replaces it.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let staged = staged(path);
    let written = create(&staged).and_then(|mut file| {
        leave_to_owner_of(path, &file)?;
        file.write_all(content)?;
        file.sync_all()
    });
    if let Err(error) = written {
        let _ = std::fs::remove_file(&staged);
        return Err(error);
    }
    put(&staged, path)
}

/// As root, gives a file to whom the other one belongs, if that one is there. Only what is open is given away, and only
/// what has this one name: the folder may be another account's, who could put a link to somebody's file in its place.
pub fn leave_to_owner_of(path: &Path, new: &File) -> io::Result<()> {
    match std::fs::metadata(path) {
        Ok(old) if geteuid().is_root() && new.metadata()?.nlink() == 1 => fchown(new, Some(old.uid()), Some(old.gid())),
        _ => Ok(()),
    }
}

/// Opens a file to lock it, and makes it if it is not there; a link to another one is refused.
pub fn open_lock(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(nix::libc::O_NOFOLLOW)
        .open(path)
}

/// Writes a file that must not be there yet; of two writers at once exactly one succeeds.
pub fn create_new(path: &Path, content: &[u8]) -> io::Result<()> {
    let staged = staged(path);
    let mut file = create(&staged)?;
    // A hard link fails when the name is taken, which a rename would not.
    let linked = file
        .write_all(content)
        .and_then(|()| file.sync_all())
        .and_then(|()| std::fs::hard_link(&staged, path));
    let _ = std::fs::remove_file(&staged);
    linked.and_then(|()| sync_parent(path))
}

/// Opens a new file that nobody else can read.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
}

/// Gives a staged file, already synced, its final name.
pub fn put(staged: &Path, path: &Path) -> io::Result<()> {
    std::fs::rename(staged, path)?;
    sync_parent(path)
}

/// A name beside the file, for building it.
pub fn staged(path: &Path) -> PathBuf {
    let mut name = OsString::from(".");
    name.push(path.file_name().unwrap_or_default());
    name.push(format!(".{}-{:08x}", std::process::id(), rand::random::<u32>()));
    path.with_file_name(name)
}

/// Makes a rename or a new name in the file's folder last.
pub fn sync_parent(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

/// Others than the owner have some right to it.
pub fn is_open_to_others(path: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(path)?.mode() & 0o077 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_stays_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ring");
        create_new(&path, b"one").unwrap();
        assert_eq!(
            create_new(&path, b"two").unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        replace(&path, b"three").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"three");
        assert!(!is_open_to_others(&path).unwrap());
        // Only root can have a file of somebody else's here.
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65_534), Some(65_534)).unwrap();
            replace(&path, b"four").unwrap();
            assert_eq!(std::fs::metadata(&path).unwrap().uid(), 65_534);
        }
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing staged is left"
        );
    }
}
