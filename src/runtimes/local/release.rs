//! Removing what ended attempts and deleted jobs left on disk. Nothing here ends a process. Blocking.

use std::{fs, io, time::Duration};

use trainyard_core::model::{AttemptId, JobId};

use super::{
    Inner,
    observe::{Known, look},
    ports, retry,
};
use crate::{runtimes::RuntimeError, shim::folder::Folder};

pub fn attempt(inner: &Inner, attempt: AttemptId) -> Result<(), RuntimeError> {
    let folder = inner.layout.attempt(attempt);
    let io = retry("the attempt's folder");
    if !folder.path().exists() {
        return ports::release(&inner.layout.ports(), attempt).map_err(retry("ports"));
    }
    let _lock = folder.lock()?;
    for replica in folder
        .record()
        .map_err(io)?
        .into_iter()
        .flat_map(|record| record.replicas)
    {
        let place = folder.replica(&replica.key);
        let known = look(&place).map_err(io)?;
        if matches!(known, Known::Running(_) | Known::Orphaned(_)) || is_held_for_long(&place).map_err(io)? {
            return Err(RuntimeError::Retry(format!("{} has not ended", replica.key)));
        }
        if let Some(cgroup) = place.spec().map_err(io)?.and_then(|spec| spec.cgroup) {
            cgroup.remove().map_err(retry("the control group"))?;
        }
        inner
            .secrets
            .remove(replica.incarnation)
            .map_err(retry("the replica's secrets"))?;
        match fs::remove_file(inner.layout.short_tmp(replica.incarnation)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(io(error)),
            _ => {}
        }
    }
    ports::release(&inner.layout.ports(), attempt).map_err(retry("ports"))?;
    inner.layout.remove(folder.path()).map_err(io)
}

/// A shim that has just recorded the end is gone in a moment.
fn is_held_for_long(place: &Folder) -> io::Result<bool> {
    for _ in 0..100 {
        if !place.is_held()? {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(true)
}

pub fn job(inner: &Inner, job: JobId) -> Result<(), RuntimeError> {
    inner
        .layout
        .remove(&inner.layout.volumes().join(job.to_string()))
        .map_err(retry("the job's volumes"))
}
