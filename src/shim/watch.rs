//! The life of a shim: bring the replica up or take over from a killed shim, then wait until nothing of it is left.

use std::{
    fs::File,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
    path::PathBuf,
    process::Command,
    time::Duration,
};

use chrono::{DateTime, Utc};
use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        prctl,
        resource::{UsageWho, getrusage},
        signal::{SigSet, Signal, kill, killpg},
        signalfd::{SfdFlags, SignalFd},
        time::TimeValLike,
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use trainyard_core::model::{Exit, LogStream};

use super::{
    bound::{Bound, create_output},
    exec::{ExecFault, ExecPlan, read_message, write_message},
    folder::{Exited, Failed, Folder, Lock, Spec, Started},
    process::{self, ProcessId},
};
use crate::runtimes::ReplicaUsage;

/// How long the way from the birth of the process to its program may take (a folder on a dead file server).
const EXEC_WITHIN: Duration = Duration::from_secs(60);

/// How long a start waits for what another shim makes of the same start.
const LOCKED_WITHIN: Duration = Duration::from_secs(10);

/// How often a process that is not our child is looked at.
const ORPHAN_EVERY: Duration = Duration::from_millis(100);

/// The reason of a replica that was never started because its attempt had been asked to end.
pub const STOPPED: &str = "stopped";

pub fn start(path: PathBuf) -> io::Result<()> {
    let folder = Folder::new(path);
    let signals = detach()?;
    // Incomplete: the worker died while it started us, and another one will start another shim.
    let environment: Vec<(String, String)> = read_message(&mut io::stdin().lock())?;
    let Some(lock) = folder.lock_unless_begun(LOCKED_WITHIN)? else {
        return Ok(());
    };
    folder.write_shim(&ProcessId::of(std::process::id() as i32)?)?;
    if folder.is_begun()? {
        return Ok(());
    }
    if folder.stop()?.is_some() {
        return folder.write_failed(&Failed {
            reason: STOPPED.into(),
            message: "the attempt was asked to end before this replica had started".into(),
            at: Utc::now(),
        });
    }
    let spec = folder
        .spec()?
        .ok_or_else(|| io::Error::other("the folder has no spec.json"))?;
    let started = match bring_up(&folder, &spec, environment)? {
        Ok(started) => started,
        Err(fault) => {
            if let Some(cgroup) = &spec.cgroup {
                let _ = cgroup.remove();
            }
            return folder.write_failed(&Failed {
                reason: fault.reason,
                message: fault.message,
                at: Utc::now(),
            });
        }
    };
    Watch::new(folder, spec, started, signals, lock, true)?.run()
}

pub fn adopt(path: PathBuf) -> io::Result<()> {
    let folder = Folder::new(path);
    let signals = detach()?;
    let Some(lock) = folder.lock()? else { return Ok(()) };
    folder.write_shim(&ProcessId::of(std::process::id() as i32)?)?;
    let (Some(spec), Some(started)) = (folder.spec()?, folder.started()?) else {
        return Ok(());
    };
    if folder.exited()?.is_some() || folder.failed()?.is_some() || !started.process.is_of_this_boot()? {
        return Ok(());
    }
    Watch::new(folder, spec, started, signals, lock, false)?.run()
}

/// Leaves the worker's session, so that nothing sent to the worker's group reaches us, and makes every orphan of the
/// replica our child. Signals wait to be read.
fn detach() -> io::Result<SignalFd> {
    // Fails only if we lead a group already, and then we have left as well.
    let _ = nix::unistd::setsid();
    let _ = prctl::set_name(c"trainyard-shim");
    prctl::set_child_subreaper(true)?;
    std::env::set_current_dir("/")?;
    let signals: SigSet = [
        Signal::SIGTERM,
        Signal::SIGCHLD,
        Signal::SIGINT,
        Signal::SIGHUP,
        Signal::SIGQUIT,
    ]
    .into_iter()
    .collect();
    signals.thread_block()?;
    Ok(SignalFd::with_flags(
        &signals,
        SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC,
    )?)
}

/// Starts the process, records it, and only then lets it become the program.
fn bring_up(
    folder: &Folder,
    spec: &Spec,
    environment: Vec<(String, String)>,
) -> io::Result<Result<Started, ExecFault>> {
    let stdout = create_output(folder, LogStream::Stdout)?;
    let stderr = create_output(folder, LogStream::Stderr)?;
    folder.reserve()?;
    let mut unlimited = spec
        .cgroup
        .as_ref()
        .map_or_else(Vec::new, |cgroup| cgroup.create(&spec.limits));
    let (mut ours, theirs) = UnixStream::pair()?;
    // On an error below, our end closes and the process ends by itself without having run anything.
    let mut child = Command::new("/proc/self/exe")
        .args(["shim", "exec"])
        .stdin(OwnedFd::from(theirs))
        .stdout(stdout)
        .stderr(stderr)
        .spawn()?;
    let pid = child.id() as i32;
    if let Some(cgroup) = &spec.cgroup {
        unlimited.extend(cgroup.join(pid));
    }
    let started = Started {
        process: ProcessId::of(pid)?,
        at: Utc::now(),
        unlimited,
    };
    folder.write_started(&started)?;
    write_message(
        &mut ours,
        &ExecPlan {
            command: spec.command.clone(),
            directory: spec.directory.clone(),
            account: spec.account.clone(),
            read_only: spec.read_only.clone(),
            environment,
            open_files: spec.limits.open_files,
        },
    )?;
    ours.set_read_timeout(Some(EXEC_WITHIN))?;
    let fault = match read_message::<ExecFault>(&mut ours) {
        Ok(fault) => fault,
        // Closed without a word: the program runs, or something killed it, which the watch will see.
        Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Ok(Ok(started)),
        Err(_) => ExecFault {
            reason: "start_timeout".into(),
            message: format!("the program did not begin within {} s", EXEC_WITHIN.as_secs()),
        },
    };
    let _ = child.kill();
    child.wait()?;
    Ok(Err(fault))
}

/// How the first process ended.
struct End {
    at: DateTime<Utc>,
    /// `None` if nobody saw it.
    status: Option<WaitStatus>,
    stop_requested: bool,
}

struct Stop {
    deadline_ms: u64,
    killed: bool,
}

struct Watch {
    folder: Folder,
    spec: Spec,
    started: Started,
    signals: SignalFd,
    _lock: Lock,
    /// We started it, so its status comes to us, and so do all its orphans.
    ours: bool,
    bound: Bound,
    stop: Option<Stop>,
    end: Option<End>,
    /// No process is our child, so of a replica that we started nothing is left outside its group.
    childless: bool,
}

impl Watch {
    fn new(
        folder: Folder,
        spec: Spec,
        started: Started,
        signals: SignalFd,
        lock: Lock,
        ours: bool,
    ) -> io::Result<Self> {
        let bound = Bound::open(&folder, spec.output_bound)?;
        Ok(Self {
            folder,
            spec,
            started,
            signals,
            _lock: lock,
            ours,
            bound,
            stop: None,
            end: None,
            childless: false,
        })
    }

    fn run(mut self) -> io::Result<()> {
        let mut asked_to_end = false;
        let mut first = true;
        let mut pause = Duration::from_millis(5);
        loop {
            self.collect();
            self.heed_stop(asked_to_end);
            if self.end.is_some() {
                if self.end_the_rest() {
                    break;
                }
                pause = (pause * 2).min(Duration::from_millis(200));
            }
            let look_again = self.bound.hold().unwrap_or_else(|error| {
                eprintln!("the bound on output could not be held: {error}");
                Duration::from_secs(1)
            });
            if std::mem::take(&mut first) {
                release_starter()?;
            }
            let wait = [
                Some(look_again),
                self.end.is_some().then_some(pause),
                self.until_kill(),
                self.orphan_pause(),
            ];
            asked_to_end = self.wait(wait.into_iter().flatten().min().unwrap_or(look_again))?;
        }
        self.record_end();
        Ok(())
    }

    /// Collects ended children and notices the end of the first process.
    fn collect(&mut self) {
        loop {
            match waitpid(Pid::from_raw(-1), Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => break,
                Ok(status) if self.ours && status.pid().map(Pid::as_raw) == Some(self.started.process.pid) => {
                    self.note_end(Some(status));
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => {
                    self.childless = true;
                    break;
                }
            }
        }
        if !self.ours && self.end.is_none() && !self.started.process.is_alive() {
            self.note_end(None);
        }
    }

    fn note_end(&mut self, status: Option<WaitStatus>) {
        self.end = Some(End {
            at: Utc::now(),
            status,
            stop_requested: matches!(self.folder.stop(), Ok(Some(_))),
        });
    }

    /// Asks the replica to end once the attempt was asked to, and ends it when its grace is over.
    fn heed_stop(&mut self, asked_by_signal: bool) {
        let now = process::since_boot_ms().unwrap_or(u64::MAX);
        if self.stop.is_none() {
            let requested = self.folder.stop().ok().flatten();
            let deadline_ms = match requested {
                Some(request) => request.deadline_ms(),
                // Somebody else ends us (a shutdown of the machine): the replica gets the same grace.
                None if asked_by_signal => now.saturating_add(self.spec.grace_ms),
                None => return,
            };
            self.stop = Some(Stop {
                deadline_ms,
                killed: false,
            });
            self.signal_group(Signal::SIGTERM);
            // A stopped process must run to hear it.
            self.signal_group(Signal::SIGCONT);
        }
        if let Some(stop) = &mut self.stop
            && now >= stop.deadline_ms
            && !stop.killed
        {
            stop.killed = true;
            self.kill_all();
        }
    }

    /// After the end of the first process: true once nothing is left. What it left behind is killed at once, but
    /// after a stop its group may use the rest of the grace (a shell that ended before the program it started).
    fn end_the_rest(&mut self) -> bool {
        let left = self.survivors();
        if left.is_empty() {
            return true;
        }
        let group = self.started.process.pid;
        let has_grace = self.stop.as_ref().is_some_and(|stop| !stop.killed)
            && left
                .iter()
                .any(|&pid| process::stat(pid).is_ok_and(|stat| stat.group == group));
        if !has_grace {
            self.kill_all();
        }
        false
    }

    /// Everything of the replica that still runs.
    fn survivors(&self) -> Vec<i32> {
        let own = std::process::id() as i32;
        let mut found = self
            .spec
            .cgroup
            .as_ref()
            .map_or_else(Vec::new, |cgroup| cgroup.processes());
        if !(self.ours && self.childless) {
            let all = process::all().unwrap_or_default();
            found.extend(process::session(&all, &self.started.process));
            if self.ours {
                found.extend(process::descendants(&all, own));
            } else {
                let marker = self.spec.incarnation.to_string();
                let others = all.iter().map(|&(pid, _)| pid).filter(|&pid| pid != own);
                found.extend(others.filter(|&pid| process::is_marked(pid, &marker)));
            }
        }
        found.retain(|&pid| process::stat(pid).is_ok_and(|stat| !stat.has_ended()));
        found.sort_unstable();
        found.dedup();
        found
    }

    fn signal_group(&self, signal: Signal) {
        let leader = self.started.process.pid;
        // While its leader is there, the group's number can't be another's.
        if self.end.is_none() && (self.ours || self.started.process.is_alive()) {
            let _ = killpg(Pid::from_raw(leader), signal);
            return;
        }
        for pid in self.survivors() {
            if process::stat(pid).is_ok_and(|stat| stat.group == leader) {
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
    }

    fn kill_all(&self) {
        self.signal_group(Signal::SIGKILL);
        let cgroup = self.spec.cgroup.as_ref();
        if let Some(cgroup) = cgroup {
            cgroup.freeze(true);
        }
        for pid in self.survivors() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        if let Some(cgroup) = cgroup {
            cgroup.freeze(false);
        }
    }

    fn until_kill(&self) -> Option<Duration> {
        let stop = self.stop.as_ref().filter(|stop| !stop.killed)?;
        let now = process::since_boot_ms().ok()?;
        Some(Duration::from_millis(stop.deadline_ms.saturating_sub(now) + 1))
    }

    fn orphan_pause(&self) -> Option<Duration> {
        (!self.ours && self.end.is_none()).then_some(ORPHAN_EVERY)
    }

    /// Waits for a signal at most this long. Says whether we were asked to end.
    fn wait(&self, longest: Duration) -> io::Result<bool> {
        let timeout = PollTimeout::try_from(longest.max(Duration::from_millis(1))).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut fds, timeout) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        let mut asked = false;
        while let Some(signal) = self.signals.read_signal()? {
            asked |= signal.ssi_signo == Signal::SIGTERM as u32;
        }
        Ok(asked)
    }

    /// Writes down how it ended, however long that takes: an exit must not be lost to a full disk.
    fn record_end(&mut self) {
        let Some(end) = self.end.take() else { return };
        let cgroup = self.spec.cgroup.as_ref();
        let (code, signal) = match end.status {
            Some(WaitStatus::Exited(_, code)) => (Some(code), None),
            Some(WaitStatus::Signaled(_, signal, _)) => (None, Some(signal as i32)),
            _ => (None, None),
        };
        let exit = Exit {
            at: end.at,
            code,
            signal,
            oom: code != Some(0) && cgroup.is_some_and(|cgroup| cgroup.oom_kills() > 0),
            unknown: end.status.is_none(),
            stop_requested: end.stop_requested,
        };
        let usage = cgroup
            .and_then(|cgroup| cgroup.usage())
            .or_else(|| self.ours.then(collected_usage).flatten());
        let exited = Exited { exit, usage };
        if let Some(secrets) = &self.spec.secrets {
            // What stays is removed on release.
            let _ = std::fs::remove_dir_all(secrets);
        }
        while let Err(error) = self.folder.write_exited(&exited) {
            eprintln!("the exit could not be recorded and is tried again: {error}");
            std::thread::sleep(Duration::from_secs(1));
        }
        if let Some(cgroup) = cgroup {
            // The kernel may hold an empty group for a moment; what is left is removed on release.
            for _ in 0..20 {
                if cgroup.remove().is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

/// Closes stdin and stdout, for whose end the starter waits.
fn release_starter() -> io::Result<()> {
    let nothing = File::options().read(true).write(true).open("/dev/null")?;
    nix::unistd::dup2_stdin(&nothing)?;
    nix::unistd::dup2_stdout(&nothing)?;
    Ok(())
}

/// What our collected children used, where no control group counts.
fn collected_usage() -> Option<ReplicaUsage> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok()?;
    let micros = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    let peak = u64::try_from(usage.max_rss()).unwrap_or(0) * 1024;
    Some(ReplicaUsage {
        cpu_seconds: micros as f64 / 1e6,
        memory_bytes: 0,
        memory_peak_bytes: peak,
        processes: 0,
        state: None,
    })
}
