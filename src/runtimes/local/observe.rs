//! What the folders and `/proc` tell of an attempt. Nothing is remembered.

use std::io;

use chrono::{DateTime, Utc};
use trainyard_core::{
    kinds::rendezvous::LAUNCHER,
    model::{AttemptId, Exit, Observed, ObservedReplica, ReplicaState},
};

use super::{
    Inner,
    layout::{AttemptFolder, make_folder},
};
use crate::shim::{
    STOPPED,
    folder::{Failed, Folder, Started},
};

/// What is known of one replica.
pub enum Known {
    /// Asked for; no program has run.
    Waiting,
    Running(Started),
    Failed(Failed),
    Ended(Option<Started>, Exit),
    /// The machine was restarted under it.
    Lost(Started),
    /// Its shim was killed; somebody must take its place to see its end.
    Orphaned(Started),
}

pub fn look(folder: &Folder) -> io::Result<Known> {
    if let Some(known) = finished(folder)? {
        return Ok(known);
    }
    let started = folder.started()?;
    let held = folder.is_held()?;
    match started {
        None => Ok(Known::Waiting),
        Some(started) if held => Ok(Known::Running(started)),
        // The shim writes the end before it lets go, so an end that is not there now never will be.
        Some(started) => Ok(match finished(folder)? {
            Some(known) => known,
            None if !started.process.is_of_this_boot()? => Known::Lost(started),
            None => Known::Orphaned(started),
        }),
    }
}

fn finished(folder: &Folder) -> io::Result<Option<Known>> {
    if let Some(failed) = folder.failed()? {
        return Ok(Some(Known::Failed(failed)));
    }
    match folder.exited()? {
        Some(exited) => Ok(Some(Known::Ended(folder.started()?, exited.exit))),
        None => Ok(None),
    }
}

/// The replicas of an attempt, and the folders of those whose shim is gone. Blocking.
pub fn observe(inner: &Inner, attempt: AttemptId, now: DateTime<Utc>) -> io::Result<(Observed, Vec<Folder>)> {
    let folder = inner.layout.attempt(attempt);
    let mut observed = Observed {
        at: now,
        replicas: Vec::new(),
    };
    let mut orphaned = Vec::new();
    let Some(record) = folder.record()? else {
        return Ok((observed, orphaned));
    };
    for replica in record.replicas {
        let place = folder.replica(&replica.key);
        let known = match look(&place)? {
            Known::Waiting => fail_if_stopped(&folder, &place, now)?,
            known => known,
        };
        let (state, started) = match known {
            // Who was to start it was killed: it is not there, and whoever sees that starts it again.
            Known::Waiting if !place.is_held()? => continue,
            Known::Waiting => (ReplicaState::Starting, None),
            Known::Running(started) => (ReplicaState::Running, Some(started)),
            Known::Failed(failed) => (
                ReplicaState::StartFailed {
                    reason: failed.reason,
                    message: failed.message,
                    at: failed.at,
                },
                None,
            ),
            Known::Ended(started, exit) => (ReplicaState::Ended(exit), started),
            Known::Lost(started) => {
                let message = "the machine was restarted while it ran, and nobody saw how it ended".into();
                (ReplicaState::Lost { message }, Some(started))
            }
            Known::Orphaned(started) => {
                orphaned.push(place);
                (ReplicaState::Running, Some(started))
            }
        };
        observed.replicas.push(ObservedReplica {
            key: replica.key,
            incarnation: replica.incarnation,
            identity: started.as_ref().map(|started| started.process.to_string()),
            started_at: started.map(|started| started.at),
            state,
        });
    }
    let launcher = observed
        .replicas
        .iter()
        .find(|replica| replica.key.role == LAUNCHER)
        .cloned();
    if let Some(launcher) = launcher {
        let is_stopped = folder.stop()?.is_some();
        observed
            .replicas
            .extend(record.slots.iter().map(|slot| ObservedReplica {
                key: slot.key.clone(),
                incarnation: slot.incarnation,
                identity: None,
                started_at: launcher.started_at,
                state: slot_state(&launcher.state, is_stopped),
            }));
    }
    Ok((observed, orphaned))
}

/// A slot is as its launcher is, and is never to blame: when the launcher fails, the slot was ended with it.
fn slot_state(launcher: &ReplicaState, is_stopped: bool) -> ReplicaState {
    match launcher {
        ReplicaState::Ended(exit) if !exit.succeeded() => ReplicaState::Ended(Exit {
            code: None,
            signal: None,
            oom: false,
            unknown: false,
            stop_requested: true,
            at: exit.at,
        }),
        ReplicaState::StartFailed { .. } if !is_stopped => ReplicaState::Starting,
        same => same.clone(),
    }
}

/// A replica of a stopped attempt that nobody starts any more must not look as if it were about to start.
pub fn fail_if_stopped(attempt: &AttemptFolder, folder: &Folder, now: DateTime<Utc>) -> io::Result<Known> {
    if attempt.stop()?.is_none() {
        return Ok(Known::Waiting);
    }
    make_folder(folder.path())?;
    // Whoever holds the lock starts it, or sees the stop by itself.
    let Some(_lock) = folder.lock()? else {
        return Ok(Known::Waiting);
    };
    if folder.started()?.is_some() || folder.failed()?.is_some() {
        return Ok(finished(folder)?.unwrap_or(Known::Waiting));
    }
    let failed = Failed {
        reason: STOPPED.into(),
        message: "the attempt was asked to end before this replica had started".into(),
        at: now,
    };
    folder.write_failed(&failed)?;
    Ok(Known::Failed(failed))
}
