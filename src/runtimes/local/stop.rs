//! Asking replicas to end, and signals to their first process. Blocking.

use chrono::Utc;
use nix::sys::signal::Signal;
use trainyard_core::model::AttemptId;

use super::{
    Inner,
    observe::{Known, fail_if_stopped, look},
    retry,
};
use crate::{
    runtimes::RuntimeError,
    shim::{
        folder::{Folder, StopRequest},
        process,
    },
};

/// Writes the wish down, then wakes the shims. A shim reads the wish after it has said which process it is, so either
/// it finds the wish by itself or we find it. Returns the folders of replicas whose shim is gone.
pub fn stop(inner: &Inner, attempt: AttemptId) -> Result<Vec<Folder>, RuntimeError> {
    let folder = inner.layout.attempt(attempt);
    let io = retry("the attempt's folder");
    let Some(record) = folder.record().map_err(io)? else {
        return Ok(Vec::new());
    };
    let now = Utc::now();
    if folder.stop().map_err(io)?.is_none() {
        let since_boot_ms = process::since_boot_ms().map_err(retry("the clock"))?;
        folder
            .write_stop(&StopRequest {
                at: now,
                since_boot_ms,
                grace_ms: record.grace_ms,
            })
            .map_err(io)?;
    }
    let mut orphaned = Vec::new();
    for replica in &record.replicas {
        let place = folder.replica(&replica.key);
        match look(&place).map_err(io)? {
            Known::Missing | Known::Starting => {
                fail_if_stopped(&folder, &place, now).map_err(io)?;
                wake(&place)?;
            }
            Known::Running(_) => wake(&place)?,
            Known::Orphaned(_) => orphaned.push(place),
            Known::Failed(_) | Known::Ended(..) | Known::Lost(_) => {}
        }
    }
    Ok(orphaned)
}

fn wake(place: &Folder) -> Result<(), RuntimeError> {
    if let Some(shim) = place.shim().map_err(retry("shim.json"))? {
        shim.signal(Signal::SIGTERM).map_err(retry("the shim"))?;
    }
    Ok(())
}

pub fn signal(inner: &Inner, attempt: AttemptId, signal: i32) -> Result<(), RuntimeError> {
    let signal = Signal::try_from(signal).map_err(|_| RuntimeError::Refused {
        reason: "signal",
        message: format!("{signal} is not the number of a signal"),
    })?;
    let folder = inner.layout.attempt(attempt);
    let io = retry("the attempt's folder");
    for replica in folder
        .record()
        .map_err(io)?
        .into_iter()
        .flat_map(|record| record.replicas)
    {
        if let Known::Running(started) | Known::Orphaned(started) = look(&folder.replica(&replica.key)).map_err(io)? {
            started.process.signal(signal).map_err(retry("the process"))?;
        }
    }
    Ok(())
}
