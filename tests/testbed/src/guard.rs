//! The guard of one instance: the parent of its spaces and the only process outside of them. It holds the instance's lock, ends the
//! instance when told to or when its owner's end of a pipe closes, and cleans up what namespaces do not take along. Should the guard
//! itself be killed, the spaces end by themselves (their inits read its pipe); what stays is a folder, empty cgroups and no process, and the
//! next `up` or `down` clears those.

use crate::cgroups;
use crate::command::{alone, command, run};
use crate::error::{Doing, Error, Result};
use crate::layout::{self, Layout, NODES, make_dir};
use crate::space::Space;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

/// Names of all spaces of an instance.
pub const CONTROL: &str = "control";

pub fn spaces() -> impl Iterator<Item = &'static str> {
    std::iter::once(CONTROL).chain(NODES)
}

/// Takes the lock of an instance, if it is free.
pub fn try_lock(layout: Layout) -> Result<Option<Flock<File>>> {
    try_file(&layout.lock())
}

/// The state folder of an instance that has the same number as this one, and with it the same names and addresses, while it runs.
pub fn elsewhere(layout: Layout) -> Result<Option<PathBuf>> {
    let ours = layout.space_dir(CONTROL);
    for entry in std::fs::read_dir("/proc").doing("cannot list processes")?.flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        // The control plane's init lives as long as its instance, and is told its folder.
        let mut words = line.trim_end_matches('\0').rsplit('\0');
        if let (Some(dir), Some("init")) = (words.next().map(Path::new), words.next())
            && dir.ends_with(format!("{}/{CONTROL}", layout.number))
            && dir != ours
        {
            return Ok(dir.ancestors().nth(2).map(Path::to_path_buf));
        }
    }
    Ok(None)
}

/// Refuses a number that another state folder's instance has.
pub fn only_here(layout: Layout) -> Result<()> {
    let Some(other) = elsewhere(layout)? else { return Ok(()) };
    Err(Error::Refused(format!(
        "instance {0} runs under another state folder, {1} (this one is {2}), and names and addresses on the machine follow from the \
         number alone; take another, or end that one with `TRAINYARD_TESTBED_STATE={1} tests/testbed/down --instance {0}`",
        layout.number,
        other.display(),
        layout::state().display()
    )))
}

/// Held by whoever starts or ends an instance, if nobody does. It goes with its process, so a start that was killed is nobody's.
pub fn try_starting(layout: Layout) -> Result<Option<Flock<File>>> {
    try_file(&layout.starting())
}

/// The same for people's `up` and `down`: the second waits for the first.
pub fn starting(layout: Layout, say: &dyn Fn(&str)) -> Result<Flock<File>> {
    let mut told = false;
    loop {
        if let Some(lock) = try_starting(layout)? {
            return Ok(lock);
        }
        if !std::mem::replace(&mut told, true) {
            say(&format!(
                "somebody else starts or ends instance {}; waiting until they are done, or stopped by Ctrl-C",
                layout.number
            ));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn try_file(path: &Path) -> Result<Option<Flock<File>>> {
    make_dir(&layout::state())?;
    let file = File::options()
        .create(true)
        .append(true)
        .open(path)
        .doing("cannot open an instance's lock")?;
    match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, nix::errno::Errno::EWOULDBLOCK)) => Ok(None),
        Err((_, errno)) => Err(errno).doing("cannot take an instance's lock"),
    }
}

/// Whoever starts a guard: stays alive while this does if `tied`, or until `down`.
pub struct Started {
    _pipe: Option<ChildStdin>,
}

/// Starts the guard of an instance; `None` when somebody else has that instance.
pub fn start(program: &Path, layout: Layout, tied: bool) -> Result<Option<Started>> {
    let mut command = Command::new("setsid");
    command.arg(program).arg("guard").arg(layout.number.to_string());
    if !tied {
        command.arg("--forever");
    }
    command
        .stdin(if tied { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child: Child = command.spawn().doing("cannot start a guard")?;
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    out.read_line(&mut line).doing("cannot hear a guard")?;
    match line.trim() {
        "ready" => Ok(Some(Started {
            _pipe: child.stdin.take(),
        })),
        "taken" => Ok(None),
        _ => {
            let mut error = String::new();
            let _ = child.stderr.take().map(|mut e| e.read_to_string(&mut error));
            Err(Error::Refused(format!("the guard did not start: {}", error.trim())))
        }
    }
}

/// The guard's own program.
pub fn main(layout: Layout, forever: bool) -> Result<()> {
    let Some(_lock) = try_lock(layout)? else {
        println!("taken");
        return Ok(());
    };
    if elsewhere(layout)?.is_some() {
        println!("taken");
        return Ok(());
    }
    clear(layout)?;
    let mut stop = SigSet::empty();
    for signal in [
        Signal::SIGTERM,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ] {
        stop.add(signal);
    }
    // Blocked before any thread starts, so that only the wait below sees them.
    stop.thread_block().doing("cannot block signals")?;
    let mut inits = Vec::new();
    for name in spaces() {
        inits.push((name, unshare(layout, name)?));
    }
    for name in spaces() {
        Space::new(name, layout.space_dir(name)).await_up(Duration::from_secs(10))?;
    }
    layout::write(&layout.dir().join("guard.pid"), std::process::id().to_string())?;
    println!("ready");
    std::io::stdout().flush().doing("cannot say that the guard is ready")?;
    if !forever {
        std::thread::spawn(|| {
            let mut rest = Vec::new();
            let _ = std::io::stdin().read_to_end(&mut rest);
            let _ = kill(Pid::this(), Signal::SIGUSR1);
        });
    }
    let ended = loop {
        match stop.wait() {
            Ok(Signal::SIGUSR2) => replace_dead(layout, &mut inits)?,
            other => break other,
        }
    };
    for (_, init) in &mut inits {
        let _ = init.kill();
    }
    for (_, init) in &mut inits {
        let _ = init.wait();
    }
    match ended.doing("cannot wait for signals")? {
        // Whoever asked for the end sees to what is left.
        Signal::SIGHUP => Ok(()),
        _ => clear(layout),
    }
}

/// Starts a space, which ends with the guard.
fn unshare(layout: Layout, name: &str) -> Result<Child> {
    let dir = layout.space_dir(name);
    make_dir(&dir.join("log"))?;
    let program = std::env::current_exe().doing("cannot find this program")?;
    let log = File::create(dir.join("log/init.log")).doing("cannot open init's log")?;
    let mut command = alone(&["--net"]);
    command
        .arg(program)
        .arg("init")
        .arg(&dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log);
    command.spawn().doing(format!("cannot start the space {name}"))
}

/// A space whose init was killed comes back empty. Only the guard may do this: the spaces are its children, and end with it.
fn replace_dead(layout: Layout, inits: &mut [(&'static str, Child)]) -> Result<()> {
    for (name, init) in inits {
        if init.try_wait().doing("cannot look at an init")?.is_some() {
            *init = unshare(layout, name)?;
        }
    }
    Ok(())
}

/// Asks the guard to bring dead spaces back, and waits for one of them.
pub fn revive(layout: Layout, name: &str) -> Result<()> {
    let pid = guard_pid(layout).ok_or_else(|| Error::Refused(format!("instance {} has no guard", layout.number)))?;
    let space = Space::new(name, layout.space_dir(name));
    // The old socket may outlive its init by a moment; while it answers there is nothing to bring back.
    let started = Instant::now();
    while !space.alive() {
        kill(Pid::from_raw(pid), Signal::SIGUSR2).doing("cannot signal the guard")?;
        if started.elapsed() > Duration::from_secs(10) {
            return Err(Error::Timeout {
                what: format!("the space {name} to come back"),
                after: started.elapsed(),
                last: String::new(),
            });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn guard_pid(layout: Layout) -> Option<i32> {
    std::fs::read_to_string(layout.dir().join("guard.pid"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

/// Whether somebody holds the instance.
pub fn runs(layout: Layout) -> Result<bool> {
    Ok(layout.lock().exists() && try_lock(layout)?.is_none())
}

/// Whether a start was broken off: the instance is held, was never finished, and nobody is at it.
pub fn unfinished(layout: Layout) -> Result<bool> {
    // In this order: a start that ends between two looks is finished by the second.
    Ok(runs(layout)? && try_starting(layout)?.is_some() && !layout.options().exists())
}

/// Ends an instance and waits until nothing of it is left. One that does not run is only cleared.
pub fn end(layout: Layout) -> Result<()> {
    let _lock = stop(layout)?;
    clear(layout)
}

/// Ends what runs of an instance, and leaves its folder with the logs to the next `up` or `down`.
pub fn stop(layout: Layout) -> Result<Flock<File>> {
    let started = Instant::now();
    let pid = guard_pid(layout);
    let mut asked = false;
    loop {
        if let Some(lock) = try_lock(layout)? {
            return Ok(lock);
        }
        if let (Some(pid), false) = (pid, asked) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGHUP);
            asked = true;
        }
        if started.elapsed() > Duration::from_secs(60) {
            let what = format!("instance {} to end", layout.number);
            return Err(Error::Timeout {
                what,
                after: started.elapsed(),
                last: String::new(),
            });
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Removes what outlives the namespaces: the state folder, cgroups, and this machine's end of the link if the kernel has not yet. The
/// last two have the same names under another state folder, and may be in use there.
fn clear(layout: Layout) -> Result<()> {
    if elsewhere(layout)?.is_none() {
        let _ = run(&mut command(["ip", "link", "delete", &layout.host_link()]));
        for node in NODES {
            cgroups::remove(&layout.cgroup(node))?;
        }
    }
    let dir = layout.dir();
    if dir.exists() {
        std::fs::remove_dir_all(&dir).doing(format!("cannot remove {}", dir.display()))?;
    }
    Ok(())
}
