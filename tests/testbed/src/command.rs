//! Runs programs of the machine to their end, with an error that shows the command line and what it said.

use crate::error::{Doing, Error, Result};
use std::ffi::OsStr;
use std::process::{Command, Stdio};

/// Runs the command and gives back its standard output; anything but exit 0 is an error.
pub fn run(command: &mut Command) -> Result<String> {
    let line = line(command);
    let out = command
        .stdin(Stdio::null())
        .output()
        .doing(format!("cannot start `{line}`"))?;
    if out.status.success() {
        return Ok(String::from_utf8_lossy(&out.stdout).into_owned());
    }
    let mut output = String::from_utf8_lossy(&out.stderr).into_owned();
    if output.trim().is_empty() {
        output = String::from_utf8_lossy(&out.stdout).into_owned();
    }
    let tail: Vec<&str> = output.lines().rev().take(15).collect();
    let output = tail.into_iter().rev().collect::<Vec<_>>().join("\n");
    Err(Error::Command {
        line,
        status: out.status.to_string(),
        output,
    })
}

/// A shell script that stops at its first failing line.
pub fn script(text: &str) -> Command {
    let mut command = Command::new("sh");
    command.arg("-euc").arg(text);
    command
}

/// What is added to this command runs with mounts and processes of its own (and network, if `more` says so), which end with whoever
/// starts it, however that ends: `setpriv` ties `unshare` to the starter, and `--kill-child` ties the namespaces to `unshare`.
pub fn alone(more: &[&str]) -> Command {
    let mut command = command([
        "setpriv",
        "--pdeathsig",
        "KILL",
        "unshare",
        "--mount",
        "--pid",
        "--fork",
    ]);
    command.args(["--kill-child=KILL", "--mount-proc", "--propagation", "private"]);
    command.args(more);
    command
}

pub fn command<S: AsRef<OsStr>>(argv: impl IntoIterator<Item = S>) -> Command {
    let mut argv = argv.into_iter();
    let mut command = Command::new(argv.next().expect("a command has a name"));
    command.args(argv);
    command
}

fn line(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|a| a.to_string_lossy().into_owned()));
    words.join(" ")
}
