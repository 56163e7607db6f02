//! A space is a set of Linux namespaces (network, mounts, processes) with an init of ours as its process 1. The control
//! plane has one, and each node. Killing that init is the end of everything inside, containers and mounts included, because the
//! kernel sees to it: this is what makes `down` complete, a node's death real, and a killed test leave nothing.

pub mod init;

use crate::command::{command, run};
use crate::error::{Doing, Error, Result};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::{Deserialize, Serialize};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A long-running program, as a space's init starts it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    pub name: String,
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
}

impl Program {
    pub fn new(name: &str, argv: impl IntoIterator<Item = String>) -> Self {
        Program {
            name: name.into(),
            argv: argv.into_iter().collect(),
            env: Vec::new(),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Request {
    Start(Program),
    /// Answered when the program is gone.
    Stop {
        name: String,
        signal: i32,
    },
    List,
}

/// What init knows of a program that it started.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Running {
    pub name: String,
    /// Inside of the space.
    pub pid: i32,
    pub alive: bool,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Reply {
    Done,
    Programs(Vec<Running>),
    Failed(String),
}

/// A handle to a space; it may be dead.
#[derive(Clone, Debug)]
pub struct Space {
    pub name: String,
    pub dir: PathBuf,
}

impl Space {
    pub fn new(name: &str, dir: PathBuf) -> Self {
        Space { name: name.into(), dir }
    }

    pub fn socket(&self) -> PathBuf {
        self.dir.join("init.sock")
    }

    fn connect(&self) -> Result<UnixStream> {
        UnixStream::connect(self.socket()).doing(format!("{} does not answer", self.name))
    }

    pub fn alive(&self) -> bool {
        self.connect().is_ok()
    }

    /// Waits until init answers.
    pub fn await_up(&self, within: Duration) -> Result<()> {
        let started = Instant::now();
        while !self.alive() {
            if started.elapsed() > within {
                return Err(Error::Timeout {
                    what: format!("the space {}", self.name),
                    after: within,
                    last: String::new(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Init's process id as this machine sees it: the kernel translates the socket's credentials.
    pub fn pid(&self) -> Result<i32> {
        let stream = self.connect()?;
        Ok(getsockopt(&stream, PeerCredentials)
            .doing("cannot ask who serves a space")?
            .pid())
    }

    fn ask(&self, request: &Request) -> Result<Reply> {
        let mut stream = self.connect()?;
        let text = serde_json::to_string(request).map_err(|e| Error::Refused(e.to_string()))?;
        writeln!(stream, "{text}").doing(format!("cannot speak to {}", self.name))?;
        let mut line = String::new();
        BufReader::new(stream)
            .read_line(&mut line)
            .doing(format!("{} did not answer", self.name))?;
        match serde_json::from_str(&line) {
            Ok(Reply::Failed(why)) => Err(Error::Refused(format!("{}: {why}", self.name))),
            Ok(reply) => Ok(reply),
            Err(error) => Err(Error::Refused(format!("{} answered nonsense: {error}", self.name))),
        }
    }

    /// Starts a program unless it runs already.
    pub fn start(&self, program: Program) -> Result<()> {
        self.ask(&Request::Start(program)).map(|_| ())
    }

    /// Ends a program and waits until it is gone; one that does not run is fine.
    pub fn stop(&self, name: &str, signal: i32) -> Result<()> {
        self.ask(&Request::Stop {
            name: name.into(),
            signal,
        })
        .map(|_| ())
    }

    pub fn programs(&self) -> Result<Vec<Running>> {
        match self.ask(&Request::List)? {
            Reply::Programs(list) => Ok(list),
            _ => Err(Error::Refused(format!("{} listed nothing", self.name))),
        }
    }

    /// Runs a shell script inside, to its end.
    pub fn script(&self, text: &str) -> Result<String> {
        self.run(["sh", "-euc", text])
    }

    /// Runs a command inside, to its end.
    pub fn run<S: AsRef<str>>(&self, argv: impl IntoIterator<Item = S>) -> Result<String> {
        let mut line = self.enter()?;
        line.extend(argv.into_iter().map(|a| a.as_ref().to_string()));
        run(&mut command(line))
    }

    /// The words to put before a command so that it runs inside. Not `ip netns exec`, which hides the cgroup mounts.
    pub fn enter(&self) -> Result<Vec<String>> {
        let pid = self.pid()?;
        Ok(["nsenter", "-t", &pid.to_string(), "-n", "-m", "-p", "--"]
            .map(String::from)
            .to_vec())
    }

    /// The last lines of a program's log, for errors that people read.
    pub fn log_tail(&self, name: &str) -> String {
        let text = std::fs::read_to_string(self.dir.join(format!("log/{name}.log"))).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }
}
