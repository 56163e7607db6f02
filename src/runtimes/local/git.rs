//! Code from a commit of a repository: fetched once, kept as an archive by address and commit.
//!
//! git runs as the account of the replicas, with no settings but ours, no credentials and no prompt: what it can reach
//! is what a job could reach. Over https, http and file only. Submodules come as empty folders, and files of Git LFS as
//! the pointers that the commit holds.

use std::{
    fs,
    io::{self, ErrorKind},
    os::unix::fs::{DirBuilderExt, PermissionsExt},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::{Duration, SystemTime},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use sha2::{Digest, Sha256};
use tokio::process::Command;
use uuid::Uuid;

use super::{Inner, environment::DEFAULT_PATH, retry};
use crate::{packages, runtimes::RuntimeError, shim::folder::Account};

/// How long one step of git may take; a repository that needs longer is better uploaded.
const PATIENCE: Duration = Duration::from_secs(600);
/// A network may fail for a moment. After that the attempt fails, and the job's own policy decides.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_secs(2);
/// Archives pass through memory on their way into working folders.
const LARGEST: u64 = 1 << 30;
/// So many archives are kept; those that were not asked for the longest go first.
const KEPT: usize = 32;
/// The account may read repositories of others; git itself would rather not.
const SETTINGS: &[u8] = b"[safe]\n\tdirectory = *\n";
/// What a killed worker left behind is certainly nobody's after this.
const STRAY: Duration = Duration::from_secs(2 * 60 * 60);

/// Why nothing can be had from this address, before anybody is asked.
pub fn refusal(url: &str) -> Option<String> {
    let fetched = ["https://", "http://", "file://"]
        .iter()
        .any(|known| url.starts_with(known));
    (!fetched).then(|| {
        let shown = shown(url);
        format!(
            "code git: '{shown}': this machine fetches over https, http and file alone; name such an address, or upload \
             the folder (code.upload)"
        )
    })
}

/// The commit's files as a tar archive.
pub async fn archive(inner: &Inner, url: &str, commit: &str) -> Result<Vec<u8>, RuntimeError> {
    let folder = inner.layout.code();
    let address = data_encoding::HEXLOWER.encode(&Sha256::digest(url.as_bytes())[..8]);
    let kept = folder.join(format!("{address}-{commit}.tar"));
    if !kept.exists() {
        let fetch = Fetch::begin(inner, &folder, url, commit).map_err(retry("the folder for a fetch"))?;
        fetch.run(&kept).await?;
    }
    let read = tokio::task::spawn_blocking(move || {
        let archive = fs::read(&kept)?;
        // Its time tells how long ago it was last asked for.
        fs::File::options()
            .append(true)
            .open(&kept)?
            .set_modified(SystemTime::now())?;
        sweep(&folder)?;
        Ok(archive)
    });
    let read = read.await.unwrap_or_else(|error| Err(io::Error::other(error)));
    read.map_err(retry("the archive of a commit"))
}

/// A repository for one fetch, which goes with this value.
struct Fetch<'a> {
    repository: PathBuf,
    settings: PathBuf,
    account: Option<&'a Account>,
    path: &'a str,
    url: &'a str,
    commit: &'a str,
}

impl Drop for Fetch<'_> {
    fn drop(&mut self) {
        // What stays is swept later.
        let _ = fs::remove_dir_all(&self.repository);
    }
}

impl<'a> Fetch<'a> {
    fn begin(inner: &'a Inner, folder: &Path, url: &'a str, commit: &'a str) -> io::Result<Self> {
        let repository = folder.join(format!(".fetch-{}", Uuid::now_v7()));
        let settings = folder.join("gitconfig");
        if fs::read(&settings).ok().as_deref() != Some(SETTINGS) {
            fs::write(&settings, SETTINGS)?;
            fs::set_permissions(&settings, fs::Permissions::from_mode(0o644))?;
        }
        fs::DirBuilder::new().mode(0o700).create(&repository)?;
        let fetch = Self {
            repository,
            settings,
            account: inner.account.as_ref(),
            path: match inner.account {
                Some(_) => DEFAULT_PATH,
                None => inner.path.as_deref().unwrap_or(DEFAULT_PATH),
            },
            url,
            commit,
        };
        if let Some(account) = fetch.account {
            std::os::unix::fs::lchown(&fetch.repository, Some(account.uid), Some(account.gid))?;
        }
        Ok(fetch)
    }

    /// Fetches the commit and puts its archive in place, whole or not at all.
    async fn run(&self, kept: &Path) -> Result<(), RuntimeError> {
        let format = match self.commit.len() {
            40 => "--object-format=sha1",
            _ => "--object-format=sha256",
        };
        self.must(&["init", "--quiet", "--bare", format, "."]).await?;
        let mut tried = 1;
        while let Err(error) = self.fetch().await? {
            if tried == TRIES || !may_pass(&error) {
                return Err(refused(self.told(&error)));
            }
            tried += 1;
            tokio::time::sleep(PAUSE).await;
        }
        let part = self.repository.with_extension("tar");
        let file = fs::File::create(&part).map_err(retry("the archive of a commit"))?;
        let commit = format!("{}^{{commit}}", self.commit);
        let made = self.git(&["archive", "--format=tar", &commit], Stdio::from(file)).await;
        let size = fs::metadata(&part).map_or(0, |metadata| metadata.len());
        let done = match made {
            Ok(made) if made.status.success() && size <= LARGEST => {
                fs::rename(&part, kept).map_err(retry("the archive of a commit"))
            }
            Ok(made) if made.status.success() => Err(refused(format!(
                "code git: the files of commit {} are {} MiB; at most {} are unpacked. Upload what is needed \
                 (code.upload), or put the rest on a volume",
                self.commit,
                size >> 20,
                LARGEST >> 20
            ))),
            Ok(made) => Err(refused(self.told(&last_words(&made)))),
            Err(error) => Err(error),
        };
        let _ = fs::remove_file(&part);
        done
    }

    /// The commit alone where the other side gives it so; otherwise everything, in which it then must be. The inner
    /// error is git's own words.
    async fn fetch(&self) -> Result<Result<(), String>, RuntimeError> {
        let fetch = ["fetch", "--quiet", "--no-tags", "--no-recurse-submodules"];
        let alone = [&fetch[..], &["--depth=1", "--", self.url, self.commit]].concat();
        let answer = self.git(&alone, Stdio::null()).await?;
        if answer.status.success() {
            return Ok(Ok(()));
        }
        let words = last_words(&answer);
        if !is_not_given_alone(&words) {
            return Ok(Err(words));
        }
        let all = [&fetch[..], &["--", self.url, "+refs/*:refs/all/*"]].concat();
        let answer = self.git(&all, Stdio::null()).await?;
        if !answer.status.success() {
            return Ok(Err(last_words(&answer)));
        }
        let commit = format!("{}^{{commit}}", self.commit);
        let there = self.git(&["cat-file", "-e", &commit], Stdio::null()).await?;
        Ok(if there.status.success() { Ok(()) } else { Err(words) })
    }

    async fn must(&self, arguments: &[&str]) -> Result<(), RuntimeError> {
        let answer = self.git(arguments, Stdio::null()).await?;
        match answer.status.success() {
            true => Ok(()),
            false => Err(refused(self.told(&last_words(&answer)))),
        }
    }

    async fn git(&self, arguments: &[&str], output: Stdio) -> Result<Output, RuntimeError> {
        let mut command = Command::new("git");
        command
            .args(arguments)
            .current_dir(&self.repository)
            .env_clear()
            .env("PATH", self.path)
            .env("HOME", &self.repository)
            .env("LC_ALL", "C.UTF-8")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", &self.settings)
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_ALLOW_PROTOCOL", "https:http:file")
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::piped())
            // With the helpers that it starts, so that none outlives it.
            .process_group(0)
            .kill_on_drop(true);
        if let Some(account) = self.account {
            command.gid(account.gid).uid(account.uid);
        }
        let answer = match command.spawn() {
            Ok(child) => {
                let group = Group(child.id());
                let answer = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
                if answer.is_ok() {
                    group.forget();
                }
                answer
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let line = packages::line_here(&packages::GIT);
                return Err(refused(format!("code git: this machine has no git. Get it: {line}")));
            }
            Err(error) => return Err(retry("git")(error)),
        };
        match answer {
            Ok(answer) => answer.map_err(retry("git")),
            Err(_) => Err(refused(format!(
                "code git: '{}' did not give the commit within {} min; upload the folder (code.upload)",
                shown(self.url),
                PATIENCE.as_secs() / 60
            ))),
        }
    }

    /// What went wrong, for the person who submitted.
    fn told(&self, words: &str) -> String {
        let url = shown(self.url);
        let mut words = words.replace(self.url, &url);
        let parsed = url::Url::parse(self.url).ok();
        if let Some(password) = parsed.as_ref().and_then(url::Url::password) {
            words = words.replace(password, "***");
        }
        let small = words.to_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| small.contains(part));
        if says(&["could not read username", "authentication failed", "error: 403"]) {
            format!(
                "code git: '{url}' is not open to everybody, or not there; credentials are not taken. Upload the \
                 folder (code.upload)"
            )
        } else if says(&["not found", "does not appear to be a git repository", "does not exist"]) {
            format!("code git: repository not found: '{url}' ({words})")
        } else if is_not_given_alone(&words) {
            format!(
                "code git: '{url}' has no commit {}, or no branch or tag that leads to it",
                self.commit
            )
        } else {
            format!("code git: '{url}': {words}")
        }
    }
}

/// The process group of a command that was broken off: all of it is killed.
struct Group(Option<u32>);

impl Group {
    fn forget(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0.and_then(|leader| i32::try_from(leader).ok()) {
            // ESRCH: everybody has left.
            let _ = killpg(Pid::from_raw(leader), Signal::SIGKILL);
        }
    }
}

fn refused(message: String) -> RuntimeError {
    RuntimeError::Refused {
        reason: "code",
        message,
    }
}

/// A server that gives only what branches and tags name, or has no such commit.
fn is_not_given_alone(words: &str) -> bool {
    [
        "not our ref",
        "unadvertised object",
        "couldn't find remote ref",
        "no such remote ref",
    ]
    .iter()
    .any(|part| words.to_lowercase().contains(part))
}

fn may_pass(words: &str) -> bool {
    let small = words.to_lowercase();
    let passing = [
        "could not resolve",
        "timed out",
        "connection",
        "early eof",
        "rpc failed",
        "error: 5",
    ];
    passing.iter().any(|part| small.contains(part))
}

/// git's last line that says what happened.
fn last_words(answer: &Output) -> String {
    let text = String::from_utf8_lossy(&answer.stderr);
    let says = |line: &&str| {
        ["fatal:", "error:", "remote:"]
            .iter()
            .any(|sign| line.starts_with(sign))
    };
    let line = text
        .lines()
        .rfind(says)
        .or(text.lines().last())
        .unwrap_or("git said nothing");
    // A repository that is not there is told in one line, and what might be done about it in those that follow.
    let first = text
        .lines()
        .find(|line| line.starts_with("fatal:") && line.contains("repository"));
    let words = first.unwrap_or(line).trim_start_matches("fatal: ").trim();
    words.chars().take(300).collect()
}

/// An address without the name and password that may stand in it.
fn shown(url: &str) -> String {
    match url::Url::parse(url) {
        Ok(mut parsed) if !parsed.username().is_empty() || parsed.password().is_some() => {
            let _ = parsed.set_username("");
            let _ = parsed.set_password(None);
            parsed.to_string()
        }
        _ => url.to_owned(),
    }
}

/// Removes what was not asked for the longest, and what was left behind.
fn sweep(folder: &Path) -> io::Result<()> {
    let mut archives = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Another start may have removed it at this moment.
        let Ok(modified) = entry.metadata().and_then(|metadata| metadata.modified()) else {
            continue;
        };
        let stray = modified.elapsed().is_ok_and(|age| age > STRAY);
        if !name.starts_with('.') && name.ends_with(".tar") {
            archives.push((modified, entry.path()));
        } else if name.starts_with(".fetch-") && stray {
            let path = entry.path();
            let _ = if path.is_dir() {
                fs::remove_dir_all(path)
            } else {
                fs::remove_file(path)
            };
        }
    }
    archives.sort();
    let many = archives.len().saturating_sub(KEPT);
    archives
        .iter()
        .take(many)
        .try_for_each(|(_, path)| fs::remove_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_what_opens_it() {
        assert_eq!(
            shown("https://me:s3cret@example.com/a.git"),
            "https://example.com/a.git"
        );
        assert_eq!(shown("file:///srv/a.git"), "file:///srv/a.git");
    }

    #[test]
    fn ways_that_run_programs_or_need_keys_are_refused() {
        assert!(refusal("ssh://git@example.com/a.git").is_some());
        assert!(refusal("git@example.com:a.git").is_some());
        assert!(refusal("https://example.com/a.git").is_none());
    }
}
