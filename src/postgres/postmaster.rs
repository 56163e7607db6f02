//! A running Postgres as seen from outside: its pid file, its process and its socket. Sends it nothing but an
//! SSLRequest and a signal to stop, and never touches its files.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};

/// What Postgres writes about itself into `postmaster.pid`, line by line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PidFile {
    pub pid: i32,
    pub port: u16,
    pub socket_folder: PathBuf,
    pub status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    Ready,
    /// Starting, recovering after a crash, or stopping: not to be talked to now.
    Busy,
}

impl PidFile {
    pub fn read(data: &Path) -> Option<Self> {
        Self::parse(&std::fs::read_to_string(data.join("postmaster.pid")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        Some(Self {
            pid: lines.first()?.parse().ok().filter(|pid| *pid > 0)?,
            port: lines.get(3)?.parse().ok()?,
            socket_folder: PathBuf::from(lines.get(4)?),
            // The line is missing until the server knows its state.
            status: if lines.get(7) == Some(&"ready") {
                Status::Ready
            } else {
                Status::Busy
            },
        })
    }
}

/// The process of that pid is the Postgres of this folder, and no other program that got a reused pid. Its working
/// folder tells; where reading that is not allowed (root without the right to trace), its command line does.
pub fn is_of(pid: i32, data: &Path) -> bool {
    let process = PathBuf::from(format!("/proc/{pid}"));
    if let Ok(folder) = std::fs::read_link(process.join("cwd")) {
        return folder == data;
    }
    std::fs::read(process.join("cmdline")).is_ok_and(|line| {
        line.split(|byte| *byte == 0)
            .any(|word| word == data.as_os_str().as_encoded_bytes())
    })
}

/// There is such a process and it runs. A zombie has a pid, but does not.
pub fn is_alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name, which is in brackets and may have brackets in it.
    stat.rsplit_once(')')
        .is_some_and(|(_, rest)| !matches!(rest.trim_start().chars().next(), Some('Z' | 'X') | None))
}

/// A server that speaks the protocol answers an SSLRequest with one byte, even before a password.
pub fn answers(file: &PidFile) -> bool {
    const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];
    let ask = || -> io::Result<u8> {
        let path = file.socket_folder.join(format!(".s.PGSQL.{}", file.port));
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        stream.write_all(&SSL_REQUEST)?;
        let mut reply = [0];
        stream.read_exact(&mut reply)?;
        Ok(reply[0])
    };
    matches!(ask(), Ok(b'N' | b'S'))
}

/// Fast shutdown: clients are cut off, everything is written, then it ends.
pub fn ask_to_stop(pid: i32) -> nix::Result<()> {
    signal::kill(Pid::from_raw(pid), Signal::SIGINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_file_is_read_at_every_stage() {
        let whole = "4242\n/data\n1764504000\n5432\n/run/x\n\n  5432001 7\nready   \n";
        let file = PidFile::parse(whole).unwrap();
        assert_eq!((file.pid, file.port, file.status), (4242, 5432, Status::Ready));
        assert_eq!(file.socket_folder, Path::new("/run/x"));
        let starting = whole.replace("ready   ", "starting");
        assert_eq!(PidFile::parse(&starting).unwrap().status, Status::Busy);
        let early = "4242\n/data\n1764504000\n5432\n/run/x\n";
        assert_eq!(PidFile::parse(early).unwrap().status, Status::Busy);
        assert_eq!(PidFile::parse("4242\n"), None);
        assert_eq!(
            PidFile::parse("-1\n/data\n1\n5432\n/run/x\n"),
            None,
            "a stand-alone backend's file"
        );
    }

    #[test]
    fn another_process_is_not_taken_for_postgres() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_of(own, Path::new("/data")));
        assert!(is_of(own, &std::env::current_dir().unwrap()));
    }
}
