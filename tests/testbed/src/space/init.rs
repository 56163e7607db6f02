//! Process 1 of a space: starts and stops programs on request, reaps orphans, and ends (taking everything in the space with it)
//! when its standard input closes, which is when the guard that started it is gone, however that came about.

use super::{Program, Reply, Request, Running};
use crate::error::{Doing, Result};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Table = Arc<Mutex<BTreeMap<String, Running>>>;

/// Never returns but with an error at the start.
pub fn main(dir: &Path) -> Result<()> {
    std::thread::spawn(|| {
        let mut rest = Vec::new();
        let _ = std::io::stdin().read_to_end(&mut rest);
        std::process::exit(0);
    });
    let socket = dir.join("init.sock");
    let _ = std::fs::remove_file(&socket);
    let listener = UnixListener::bind(&socket).doing(format!("cannot listen on {}", socket.display()))?;
    let table: Table = Table::default();
    let reaper = table.clone();
    std::thread::spawn(move || reap(&reaper));
    for stream in listener.incoming().flatten() {
        let (table, dir) = (table.clone(), dir.to_path_buf());
        std::thread::spawn(move || serve(stream, &table, &dir));
    }
    Ok(())
}

/// Orphans (containers' shims, mostly) become children of process 1; unreaped they would fill the process table.
fn reap(table: &Table) {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) => {
                for running in lock(table).values_mut().filter(|r| r.pid == pid.as_raw()) {
                    running.alive = false;
                }
            }
            _ => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn lock(table: &Table) -> std::sync::MutexGuard<'_, BTreeMap<String, Running>> {
    table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn serve(mut stream: UnixStream, table: &Table, dir: &Path) {
    let mut line = String::new();
    if BufReader::new(&stream).read_line(&mut line).is_err() || line.is_empty() {
        return;
    }
    let reply = match serde_json::from_str(&line) {
        Ok(Request::Start(program)) => start(program, table, dir),
        Ok(Request::Stop { name, signal }) => stop(&name, signal, table),
        Ok(Request::List) => Reply::Programs(lock(table).values().cloned().collect()),
        Err(error) => Reply::Failed(error.to_string()),
    };
    // Whoever asked may be gone by now, and there is nobody else to tell.
    let _ = writeln!(stream, "{}", serde_json::to_string(&reply).unwrap_or_default());
}

fn start(program: Program, table: &Table, dir: &Path) -> Reply {
    let mut table = lock(table);
    if table.get(&program.name).is_some_and(|r| r.alive) {
        return Reply::Done;
    }
    match spawn(&program, dir) {
        Ok(pid) => {
            table.insert(
                program.name.clone(),
                Running {
                    name: program.name,
                    pid,
                    alive: true,
                },
            );
            Reply::Done
        }
        Err(error) => Reply::Failed(error.to_string()),
    }
}

fn spawn(program: &Program, dir: &Path) -> Result<i32> {
    let log: PathBuf = dir.join(format!("log/{}.log", program.name));
    crate::layout::make_dir(&dir.join("log"))?;
    let out = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log)
        .doing(format!("cannot open {}", log.display()))?;
    let err = out.try_clone().doing("cannot share a log")?;
    let mut command = Command::new(&program.argv[0]);
    command
        .args(&program.argv[1..])
        .envs(program.env.iter().map(|(k, v)| (k, v)));
    // A process group of its own, so that stopping it also stops the shells and helpers that it started.
    command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0);
    let child = command.spawn().doing(format!("cannot start {}", program.argv[0]))?;
    // Not waited for through the handle: the reaper waits for everybody.
    Ok(child.id() as i32)
}

fn stop(name: &str, signal: i32, table: &Table) -> Reply {
    let pid = match lock(table).get(name) {
        Some(running) if running.alive => running.pid,
        _ => return Reply::Done,
    };
    let Ok(signal) = Signal::try_from(signal) else {
        return Reply::Failed(format!("there is no signal {signal}"));
    };
    let _ = kill(Pid::from_raw(pid), signal);
    for round in 0.. {
        if !lock(table).get(name).is_some_and(|r| r.alive && r.pid == pid) {
            return Reply::Done;
        }
        // Ten seconds are what an orderly end may take.
        if round == 1000 {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Reply::Done
}
