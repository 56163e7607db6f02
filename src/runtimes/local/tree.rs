//! Writing a job's files into a working folder that nothing may escape from: no absolute path, no `..`, no way
//! through a link, no device, and no link that leads out.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt, symlink},
    path::{Component, Path, PathBuf},
};

use tar::{Archive, EntryType};

/// Why a file of the job was not written.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("'{path}' {fault}")]
    Unsafe { path: String, fault: &'static str },
    #[error("'{path}': {error}")]
    Io { path: String, error: io::Error },
}

/// More entries than any project has; each costs an inode.
const MOST_ENTRIES: usize = 200_000;

pub struct Tree {
    root: PathBuf,
}

impl Tree {
    /// An empty folder that only we can enter.
    pub fn make(root: &Path) -> Result<Self, TreeError> {
        let io = |error| io_error(root, error);
        match fs::remove_dir_all(root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
        fs::DirBuilder::new().mode(0o700).create(root).map_err(io)?;
        Ok(Self { root: root.to_owned() })
    }

    pub fn folder(&self, path: &str) -> Result<PathBuf, TreeError> {
        self.real_folder(&inside(path)?)
    }

    /// A file with this content. One that starts with `#!` can be run.
    pub fn file(&self, path: &str, content: &[u8]) -> Result<(), TreeError> {
        self.write(&inside(path)?, &mut &*content, content.starts_with(b"#!"))
    }

    /// A link of ours to a place anywhere.
    pub fn link(&self, path: &str, target: &Path) -> Result<(), TreeError> {
        let relative = inside(path)?;
        let place = self.place(&relative)?;
        match fs::symlink_metadata(&place) {
            Ok(_) => Err(refused(&relative, "is a path of the job's code already")),
            Err(_) => symlink(target, &place).map_err(|error| io_error(&relative, error)),
        }
    }

    /// Unpacks a tar archive.
    pub fn unpack(&self, archive: &[u8]) -> Result<(), TreeError> {
        let whole = Path::new("the archive");
        let mut archive = Archive::new(archive);
        for (count, entry) in archive.entries().map_err(|error| io_error(whole, error))?.enumerate() {
            if count >= MOST_ENTRIES {
                return Err(refused(whole, "has more than 200000 entries"));
            }
            let mut entry = entry.map_err(|error| io_error(whole, error))?;
            let path = entry.path().map_err(|error| io_error(whole, error))?.into_owned();
            let Some(path) = clean(&path)? else { continue };
            match entry.header().entry_type() {
                EntryType::Directory => {
                    self.real_folder(&path)?;
                }
                EntryType::Regular | EntryType::Continuous => {
                    let executable = entry.header().mode().is_ok_and(|mode| mode & 0o111 != 0);
                    self.write(&path, &mut entry, executable)?;
                }
                EntryType::Symlink => {
                    let target = entry.link_name().map_err(|error| io_error(&path, error))?;
                    let target = target
                        .ok_or_else(|| refused(&path, "is a link to nothing"))?
                        .into_owned();
                    self.inner_link(&path, &target)?;
                }
                EntryType::Link => {
                    let target = entry.link_name().map_err(|error| io_error(&path, error))?;
                    let target = target
                        .ok_or_else(|| refused(&path, "is a link to nothing"))?
                        .into_owned();
                    self.copy(&path, &target)?;
                }
                EntryType::XGlobalHeader => {}
                _ => return Err(refused(&path, "is neither a file, a folder nor a link")),
            }
        }
        Ok(())
    }

    /// A link that stays inside: `..` only at its start and no further up than the root. Since the way to it is real
    /// folders, and every other link obeys the same rule, following it can't lead out.
    fn inner_link(&self, path: &Path, target: &Path) -> Result<(), TreeError> {
        let leads_out = || refused(path, "is a link that leads out of the working folder");
        let mut ups = 0;
        let mut names = 0;
        for component in target.components() {
            match component {
                Component::ParentDir if names == 0 => ups += 1,
                Component::Normal(_) => names += 1,
                Component::CurDir => {}
                _ => return Err(leads_out()),
            }
        }
        if ups + 1 > path.components().count() {
            return Err(leads_out());
        }
        let place = self.place(path)?;
        make_way(&place)
            .and_then(|()| symlink(target, &place))
            .map_err(|error| io_error(path, error))
    }

    /// A hard link of an archive, as a copy of what it names.
    fn copy(&self, path: &Path, target: &Path) -> Result<(), TreeError> {
        let source = clean(target)?.ok_or_else(|| refused(path, "is a link to the working folder itself"))?;
        let source = self.place(&source)?;
        let is_file = fs::symlink_metadata(&source).is_ok_and(|meta| meta.is_file());
        if !is_file {
            return Err(refused(
                path,
                "is a hard link to something that is no file of the archive",
            ));
        }
        let place = self.place(path)?;
        make_way(&place)
            .and_then(|()| fs::copy(&source, &place))
            .map_err(|error| io_error(path, error))?;
        Ok(())
    }

    fn write(&self, path: &Path, content: &mut impl Read, executable: bool) -> Result<(), TreeError> {
        let place = self.place(path)?;
        let mode = if executable { 0o755 } else { 0o644 };
        make_way(&place)
            .and_then(|()| OpenOptions::new().write(true).create_new(true).mode(mode).open(&place))
            .and_then(|mut file| io::copy(content, &mut file))
            .map_err(|error| io_error(path, error))?;
        Ok(())
    }

    /// Where a path is to be, its folders made and known to be real ones.
    fn place(&self, path: &Path) -> Result<PathBuf, TreeError> {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(refused(path, "names no file"));
        };
        Ok(self.real_folder(parent)?.join(name))
    }

    fn real_folder(&self, path: &Path) -> Result<PathBuf, TreeError> {
        let mut folder = self.root.clone();
        for component in path.components() {
            folder.push(component);
            match fs::symlink_metadata(&folder) {
                Ok(meta) if meta.is_dir() => {}
                Ok(_) => return Err(refused(path, "goes through something that is no folder")),
                Err(_) => fs::create_dir(&folder).map_err(|error| io_error(path, error))?,
            }
        }
        Ok(folder)
    }
}

/// Removes a file or link of an earlier entry; the last one of a name counts.
fn make_way(place: &Path) -> io::Result<()> {
    match fs::symlink_metadata(place) {
        Ok(meta) if !meta.is_dir() => fs::remove_file(place),
        _ => Ok(()),
    }
}

/// A path of the document within the working folder.
pub fn inside(path: &str) -> Result<PathBuf, TreeError> {
    clean(Path::new(path))?.ok_or_else(|| refused(Path::new(path), "names no file"))
}

/// Without `.`; `None` for the root itself.
fn clean(path: &Path) -> Result<Option<PathBuf>, TreeError> {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => cleaned.push(name),
            Component::CurDir => {}
            _ => return Err(refused(path, "must be a relative path without '..'")),
        }
    }
    Ok((!cleaned.as_os_str().is_empty()).then_some(cleaned))
}

fn refused(path: &Path, fault: &'static str) -> TreeError {
    TreeError::Unsafe {
        path: path.display().to_string(),
        fault,
    }
}

fn io_error(path: &Path, error: io::Error) -> TreeError {
    TreeError::Io {
        path: path.display().to_string(),
        error,
    }
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    fn archive(entries: &[(EntryType, &str, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for &(kind, path, content) in entries {
            let mut header = Header::new_gnu();
            header.set_entry_type(kind);
            header.set_mode(0o755);
            // Written raw, since the library itself refuses to build what we must refuse to unpack.
            let name = path.as_bytes();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name);
            if matches!(kind, EntryType::Symlink | EntryType::Link) {
                header.as_mut_bytes()[157..157 + content.len()].copy_from_slice(content.as_bytes());
                header.set_size(0);
                header.set_cksum();
                builder.append(&header, io::empty()).expect("appended");
            } else {
                header.set_size(content.len() as u64);
                header.set_cksum();
                builder.append(&header, content.as_bytes()).expect("appended");
            }
        }
        builder.into_inner().expect("built")
    }

    fn unpack(entries: &[(EntryType, &str, &str)]) -> Result<tempfile::TempDir, TreeError> {
        let place = tempfile::tempdir().expect("a folder");
        Tree::make(&place.path().join("work"))?.unpack(&archive(entries))?;
        Ok(place)
    }

    #[test]
    fn files_folders_and_inner_links_are_unpacked() {
        let place = unpack(&[
            (EntryType::Directory, "./", ""),
            (EntryType::Regular, "./src/train.py", "print(1)"),
            (EntryType::Symlink, "src/again.py", "../src/train.py"),
            (EntryType::Link, "copy.py", "src/train.py"),
            (EntryType::Regular, "copy.py", "print(2)"),
        ])
        .expect("unpacked");
        let work = place.path().join("work");
        assert_eq!(fs::read_to_string(work.join("src/again.py")).expect("read"), "print(1)");
        assert_eq!(fs::read_to_string(work.join("copy.py")).expect("read"), "print(2)");
    }

    #[test]
    fn every_way_out_is_refused() {
        use EntryType::{Char, Fifo, Link, Regular, Symlink};
        let ways: &[&[(EntryType, &str, &str)]] = &[
            &[(Regular, "../out", "x")],
            &[(Regular, "/out", "x")],
            &[(Regular, "a/../../out", "x")],
            &[(Symlink, "etc", "/etc")],
            &[(Symlink, "up", "..")],
            &[(Symlink, "a/up", "../..")],
            &[(Symlink, "a/b", "c/../../..")],
            &[(Symlink, "here", "."), (Regular, "here/file", "x")],
            &[(Link, "passwd", "/etc/passwd")],
            &[(Link, "shadow", "../../etc/shadow")],
            &[(Symlink, "in", "file"), (Link, "hard", "in")],
            &[(Char, "null", "")],
            &[(Fifo, "pipe", "")],
        ];
        for way in ways {
            assert!(
                matches!(unpack(way), Err(TreeError::Unsafe { .. })),
                "{way:?} was unpacked"
            );
        }
    }

    #[test]
    fn a_volume_does_not_hide_a_file_of_the_code() {
        let place = tempfile::tempdir().expect("a folder");
        let tree = Tree::make(&place.path().join("work")).expect("made");
        tree.file("data/file", b"x").expect("written");
        assert!(tree.link("data", Path::new("/tmp")).is_err());
        tree.link("more/data", Path::new("/tmp")).expect("linked");
        assert!(tree.file("more/data/file", b"x").is_err(), "written through a link");
    }
}
