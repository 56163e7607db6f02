//! What processes cost, out of `/proc`. Ticks are hundredths of a second, so a round should last a second at least.

use std::time::Duration;

/// Processes that are counted together.
#[derive(Debug, Clone, Copy)]
pub enum Group {
    One(u32),
    /// A process with all its children, those that have ended included once it waited for them.
    Tree(u32),
}

/// Processor time, user and system, since the group began.
pub fn used(group: Group) -> Duration {
    let ticks = match group {
        Group::One(pid) => stat(pid).map_or(0, |stat| stat.own),
        Group::Tree(root) => {
            let children = std::fs::read_dir("/proc").into_iter().flatten().flatten();
            let children: u64 = children
                .filter_map(|entry| stat(entry.file_name().to_str()?.parse().ok()?))
                .filter(|stat| stat.parent == root)
                .map(|stat| stat.own)
                .sum();
            children + stat(root).map_or(0, |stat| stat.own + stat.waited_for)
        }
    };
    Duration::from_millis(ticks * 10)
}

/// Resident memory now, and the most that it ever was, in KiB.
pub fn memory(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse().ok())
            .unwrap_or(0)
    };
    (field("VmRSS:"), field("VmHWM:"))
}

/// The machine's load over the last minute, by all its users.
pub fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().and_then(|one| one.parse().ok()).unwrap_or(0.0)
}

struct Stat {
    parent: u32,
    own: u64,
    waited_for: u64,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may have anything in it; the fields follow its last bracket, beginning with the third.
    let fields: Vec<&str> = text.rsplit_once(") ")?.1.split(' ').collect();
    let number = |at: usize| fields.get(at).and_then(|field| field.parse::<u64>().ok());
    Some(Stat {
        parent: u32::try_from(number(1)?).ok()?,
        own: number(11)? + number(12)?,
        waited_for: number(13)? + number(14)?,
    })
}
