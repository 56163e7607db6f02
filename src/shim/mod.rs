//! `trainyard shim`: one small process per replica, which outlives the worker that started it.
//!
//! It starts the replica, waits for it, ends whatever the replica leaves behind, and writes the exit down. It holds
//! the bound on unstored output. It is single-threaded, knows no database and no network, and keeps nothing in
//! memory that is not in the replica's [`folder`].
//!
//! Three ways in:
//! - `start FOLDER`: the environment comes on stdin; stdout is closed once the replica runs or its failure is recorded.
//! - `adopt FOLDER`: another shim was killed; take its place. How the process ends can't be seen any more.
//! - `exec`: the replica itself just before it becomes the user's program ([`exec`]). It waits until the shim has
//!   recorded it, so that no kill between two system calls can start a program twice.
//!
//! Deliberately absent: reading output (the replica writes to its files directly) and any policy.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

pub mod bound;
pub mod cgroup;
pub mod exec;
pub mod folder;
pub mod process;
mod watch;

pub use watch::STOPPED;

/// Runs the sub-command with the arguments that follow `shim`. Never call it from inside an async runtime.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let words: Vec<&str> = args.iter().filter_map(|arg| arg.to_str()).collect();
    let outcome = match words.as_slice() {
        ["exec"] => return exec::run(),
        ["start", folder] => watch::start(PathBuf::from(folder)),
        ["adopt", folder] => watch::adopt(PathBuf::from(folder)),
        _ => {
            eprintln!("trainyard shim is started by a worker: shim start FOLDER | shim adopt FOLDER | shim exec");
            return ExitCode::from(2);
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // stderr is the replica's shim.log.
            eprintln!("{} shim: {error}", chrono::Utc::now().to_rfc3339());
            ExitCode::FAILURE
        }
    }
}
