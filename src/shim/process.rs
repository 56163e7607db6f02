//! Processes as `/proc` shows them. A process is named by boot, pid and start time, so that a reused pid is another one.

use std::{collections::HashMap, fs, io};

use nix::{
    sys::signal::{Signal, kill},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    pub boot: String,
    pub pid: i32,
    /// Clock ticks from boot to the process's start.
    pub start_ticks: u64,
}

impl ProcessId {
    /// A process that is there now.
    pub fn of(pid: i32) -> io::Result<Self> {
        Ok(Self {
            boot: boot_id()?,
            pid,
            start_ticks: stat(pid)?.start_ticks,
        })
    }

    pub fn is_of_this_boot(&self) -> io::Result<bool> {
        Ok(boot_id()? == self.boot)
    }

    /// Whether it still runs. A zombie has ended.
    pub fn is_alive(&self) -> bool {
        self.is_of_this_boot().unwrap_or(false)
            && stat(self.pid).is_ok_and(|stat| stat.start_ticks == self.start_ticks && !stat.has_ended())
    }

    /// The kernel's letter for it, if it is still the one that we mean.
    pub fn state(&self) -> Option<char> {
        let stat = stat(self.pid).ok()?;
        (self.is_of_this_boot().unwrap_or(false) && stat.start_ticks == self.start_ticks).then_some(stat.state)
    }

    /// Signals this process if it is still the one that we mean. Says whether it was.
    pub fn signal(&self, signal: Signal) -> io::Result<bool> {
        if !self.is_alive() {
            return Ok(false);
        }
        match kill(Pid::from_raw(self.pid), signal) {
            Ok(()) => Ok(true),
            Err(nix::errno::Errno::ESRCH) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

impl std::fmt::Display for ProcessId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.boot, self.pid, self.start_ticks)
    }
}

/// The line of `/proc/PID/stat`, as far as we need it.
#[derive(Debug, Clone, Copy)]
pub struct Stat {
    pub state: char,
    pub parent: i32,
    pub group: i32,
    pub session: i32,
    /// User and system time of the process and of its children that were waited for, in clock ticks.
    pub cpu_ticks: u64,
    pub start_ticks: u64,
    pub resident_pages: u64,
}

impl Stat {
    pub fn has_ended(&self) -> bool {
        matches!(self.state, 'Z' | 'X' | 'x')
    }

    fn parse(line: &str) -> Option<Self> {
        // The command's name stands in parentheses and may hold anything, parentheses included.
        let fields: Vec<&str> = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace().collect();
        let number = |index: usize| fields.get(index).and_then(|field| field.parse::<i64>().ok());
        Some(Self {
            state: fields.first()?.chars().next()?,
            parent: number(1)? as i32,
            group: number(2)? as i32,
            session: number(3)? as i32,
            cpu_ticks: (11..15).map(|index| number(index).unwrap_or(0).max(0) as u64).sum(),
            start_ticks: number(19)? as u64,
            resident_pages: number(21)?.max(0) as u64,
        })
    }
}

pub fn stat(pid: i32) -> io::Result<Stat> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    Stat::parse(&line).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, format!("/proc/{pid}/stat: {line}")))
}

/// Every process that can be seen, without those that went away meanwhile.
pub fn all() -> io::Result<Vec<(i32, Stat)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc")? {
        if let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok())
            && let Ok(stat) = stat(pid)
        {
            found.push((pid, stat));
        }
    }
    Ok(found)
}

/// Those of `all` that are in the session that a process leads or led. None where its number is another one's by now: that
/// session is a stranger's.
pub fn session(all: &[(i32, Stat)], leader: &ProcessId) -> Vec<i32> {
    let is_another = |&(pid, stat): &(i32, Stat)| pid == leader.pid && stat.start_ticks != leader.start_ticks;
    if all.iter().any(is_another) {
        return Vec::new();
    }
    let members = all.iter().filter(|(_, stat)| stat.session == leader.pid);
    members.map(|&(pid, _)| pid).collect()
}

/// Those of `all` that come from a process, however far above it is.
pub fn descendants(all: &[(i32, Stat)], of: i32) -> Vec<i32> {
    let parents: HashMap<i32, i32> = all.iter().map(|&(pid, stat)| (pid, stat.parent)).collect();
    let descends = |pid: i32| {
        std::iter::successors(parents.get(&pid), |&parent| parents.get(parent))
            .take(all.len())
            .any(|&parent| parent == of)
    };
    all.iter().map(|&(pid, _)| pid).filter(|&pid| descends(pid)).collect()
}

/// The variable that marks every process of a replica, so that those that left its session are found as well.
pub const MARKER: &str = "TRAINYARD_INCARNATION";

/// Whether a process was started with this marker in its environment.
pub fn is_marked(pid: i32, marker: &str) -> bool {
    let wanted = format!("{MARKER}={marker}");
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
        environ
            .split(|&byte| byte == 0)
            .any(|variable| variable == wanted.as_bytes())
    })
}

pub fn boot_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// Milliseconds since boot, times of sleep included: a clock that nobody sets.
pub fn since_boot_ms() -> io::Result<u64> {
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME)?;
    Ok(time.tv_sec().max(0) as u64 * 1000 + time.tv_nsec().max(0) as u64 / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_does_not_shift_the_fields() {
        let line = "42 (a) b (c) S 7 42 41 0 -1 4194304 1 2 3 4 10 20 30 40 20 0 1 0 987 1024 55 18446744073709551615";
        let stat = Stat::parse(line).expect("a whole line");
        assert_eq!((stat.state, stat.parent, stat.group, stat.session), ('S', 7, 42, 41));
        assert_eq!((stat.cpu_ticks, stat.start_ticks, stat.resident_pages), (100, 987, 55));
    }

    #[test]
    fn a_session_of_a_reused_number_is_a_strangers() {
        let stat = |session: i32, start_ticks: u64| {
            let line = format!("1 (x) S 1 {session} {session} 0 -1 0 0 0 0 0 0 0 0 0 0 0 0 0 {start_ticks} 0 0 0");
            Stat::parse(&line).expect("a whole line")
        };
        let leader = ProcessId {
            boot: String::new(),
            pid: 42,
            start_ticks: 100,
        };
        let ours = [(42, stat(42, 100)), (43, stat(42, 150)), (44, stat(44, 160))];
        assert_eq!(session(&ours, &leader), [42, 43]);
        assert_eq!(session(&ours[1..], &leader), [43], "what outlives its leader");
        let theirs = [(42, stat(42, 900)), (43, stat(42, 950))];
        assert_eq!(session(&theirs, &leader), [0; 0]);
    }

    #[test]
    fn we_are_alive_and_a_reused_pid_is_somebody_else() {
        let mut own = ProcessId::of(std::process::id() as i32).expect("we are there");
        assert!(own.is_alive());
        own.start_ticks += 1;
        assert!(!own.is_alive());
        assert!(!own.signal(Signal::SIGKILL).expect("nothing to signal"));
    }
}
