//! The replica's process between its birth and the user's program.
//!
//! It has a session of its own and waits for one message on stdin. The shim sends it only after the process is
//! recorded durably; if the shim dies first, the message stays incomplete and the process ends without having run
//! anything. What goes wrong on the way to the program is said back on the same socket; its silent end means success,
//! since the socket closes when the program takes over.

use std::{
    ffi::CString,
    fs,
    io::{self, Read, Write},
    os::{
        fd::AsFd,
        unix::{net::UnixStream, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use nix::{
    sys::{
        prctl,
        resource::{Resource, getrlimit, setrlimit},
        signal::SigSet,
        stat::Mode,
    },
    unistd::{Gid, Uid},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::folder::Account;

#[derive(Debug, Serialize, Deserialize)]
pub struct ExecPlan {
    pub command: Vec<String>,
    pub directory: PathBuf,
    pub account: Option<Account>,
    pub environment: Vec<(String, String)>,
    pub open_files: Option<u64>,
}

/// Why the program never ran.
#[derive(Debug, Serialize, Deserialize)]
pub struct ExecFault {
    pub reason: String,
    pub message: String,
}

pub fn run() -> ExitCode {
    let _ = nix::unistd::setsid();
    // The shim reads its signals from a descriptor and so has them blocked, which children inherit.
    let _ = SigSet::all().thread_unblock();
    let Ok(mut socket) = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from) else {
        return ExitCode::from(126);
    };
    // Incomplete: the shim is gone, and a program that it did not record must not run.
    let Ok(plan) = read_message::<ExecPlan>(&mut socket) else {
        return ExitCode::from(126);
    };
    let fault = become_program(&plan);
    let _ = write_message(&mut socket, &fault);
    ExitCode::from(127)
}

/// Returns only if it failed.
fn become_program(plan: &ExecPlan) -> ExecFault {
    let fault = |reason: &str, message: String| ExecFault {
        reason: reason.into(),
        message,
    };
    // The kernel shall rather take a replica than the server or its database when memory runs out everywhere.
    let _ = fs::write("/proc/self/oom_score_adj", "500");
    nix::sys::stat::umask(Mode::from_bits_truncate(0o022));
    // The server raises its own limit; a program that closes every file it may have would take hours over that many.
    if let (Some(files), Ok((_, most))) = (plan.open_files, getrlimit(Resource::RLIMIT_NOFILE)) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, files.min(most), most);
    }
    if let Some(account) = &plan.account
        && let Err(error) = take_account(account)
    {
        return fault(
            "account",
            format!("can't become the account '{}': {error}", account.name),
        );
    }
    if let Err(error) = std::env::set_current_dir(&plan.directory) {
        let folder = plan.directory.display();
        return fault(
            "working_folder",
            format!("can't enter the working folder '{folder}': {error}"),
        );
    }
    let Some((program, arguments)) = plan.command.split_first() else {
        return fault("command", "the command is empty".into());
    };
    let error = Command::new(program)
        .args(arguments)
        .env_clear()
        .envs(plan.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .exec();
    let path = plan
        .environment
        .iter()
        .rfind(|(name, _)| name == "PATH")
        .map_or("", |(_, value)| value.as_str());
    match error.kind() {
        io::ErrorKind::NotFound if found(program, path) => fault(
            "interpreter_not_found",
            format!("'{program}' is there, but the interpreter that its first line or its header names is not"),
        ),
        // A folder of PATH that may not be entered is told as a refusal, and yet nothing was found.
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied if !found(program, path) => fault(
            "command_not_found",
            if program.contains('/') {
                format!("there is no program '{program}'")
            } else {
                format!("there is no program '{program}' in PATH ({path}); give its full path or set PATH in env")
            },
        ),
        io::ErrorKind::PermissionDenied => fault(
            "not_executable",
            format!("'{program}' may not be run: it is no program, or not allowed to this account"),
        ),
        _ => fault("exec_failed", format!("'{program}' could not be run: {error}")),
    }
}

fn take_account(account: &Account) -> nix::Result<()> {
    let name = CString::new(account.name.as_str()).map_err(|_| nix::errno::Errno::EINVAL)?;
    let group = Gid::from_raw(account.gid);
    nix::unistd::initgroups(&name, group)?;
    nix::unistd::setgid(group)?;
    nix::unistd::setuid(Uid::from_raw(account.uid))?;
    // No setuid program may lead back.
    prctl::set_no_new_privs()
}

fn found(program: &str, path: &str) -> bool {
    if program.contains('/') {
        return Path::new(program).exists();
    }
    path.split(':').any(|folder| Path::new(folder).join(program).exists())
}

/// One JSON value behind its length, so that a torn one is told from a whole one.
pub fn write_message<T: Serialize>(to: &mut impl Write, message: &T) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    to.write_all(&(text.len() as u64).to_be_bytes())?;
    to.write_all(&text)?;
    to.flush()
}

pub fn read_message<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<T> {
    const MOST: u64 = 64 << 20;
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_be_bytes(length);
    if length > MOST {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "a message too long to be one of ours",
        ));
    }
    let mut text = vec![0; length as usize];
    from.read_exact(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
