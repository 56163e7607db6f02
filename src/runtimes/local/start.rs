//! Starting an attempt: everything is prepared on disk first, then one shim per replica is started.
//!
//! A kill between any two steps leaves something that the next start continues: the attempt's record is written once
//! and obeyed from then on; a working folder without its `spec.json` is made anew; and only the holder of a replica's
//! lock, the shim, may run its program.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use futures::{StreamExt, TryStreamExt, stream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use trainyard_core::{
    document::job::{Code, JobDocument, Role, VolumeSource},
    kinds::rendezvous::{Facts, LAUNCHER, Peer, mpi_slots, starts_process},
    model::{Launch, LaunchReplica},
};

use super::{
    Inner, account, environment,
    layout::{AttemptFolder, AttemptRecord, ReplicaRecord, SlotRecord, make_folder},
    ports, retry,
    tree::{self, Tree, TreeError},
};
use crate::{
    runtimes::RuntimeError,
    shim::{
        exec::write_message,
        folder::{Folder, Limits, Spec},
    },
};

/// How many processes one replica may have, so that a fork bomb stays its own affair.
const MOST_PROCESSES: u64 = 16_384;

/// How many shims are started side by side.
const SIDE_BY_SIDE: usize = 16;

const SHIM_ANSWERS_WITHIN: Duration = Duration::from_secs(90);

/// A replica that is ready to start.
pub struct Prepared {
    folder: Folder,
    environment: Vec<(String, String)>,
}

/// Puts everything on disk that the replicas which are not there yet need. Blocking.
pub fn prepare(inner: &Inner, launch: &Launch) -> Result<Vec<Prepared>, RuntimeError> {
    refuse_what_cannot_be(&launch.document)?;
    let attempt = inner.layout.attempt(launch.attempt);
    make_folder(attempt.path()).map_err(retry("the attempt's folder"))?;
    let _lock = attempt.lock()?;
    if attempt.stop().map_err(retry("stop.json"))?.is_some() {
        return Ok(Vec::new());
    }
    let record = match attempt.record().map_err(retry("attempt.json"))? {
        Some(record) => record,
        None => write_record(inner, launch, &attempt)?,
    };
    let document = &launch.document;
    let hostfile = attempt.hostfile();
    fs::write(&hostfile, format!("localhost slots={}\n", mpi_slots(document))).map_err(retry("hostfile"))?;
    let peers: Vec<Peer> = record
        .replicas
        .iter()
        .map(|replica| Peer {
            key: replica.key.clone(),
            rank: replica.rank,
            address: "127.0.0.1".into(),
            port: replica.port,
            incarnation: replica.incarnation,
            gpus: replica.gpus.len() as u32,
        })
        .collect();
    let hostfile = hostfile.display().to_string();
    let facts = Facts {
        job: launch.job,
        team: &launch.team_name,
        attempt: launch.attempt,
        number: launch.number,
        document,
        peers: &peers,
        interface: Some("lo"),
        mpi_hostfile: Some(&hostfile),
        resume_from: launch.resume_from.as_deref(),
        resume_step: launch.resume_step,
    };
    let mut prepared = Vec::new();
    for (replica, peer) in record.replicas.iter().zip(&peers) {
        let folder = attempt.replica(&replica.key);
        if folder.is_begun().map_err(retry("the replica's folder"))? {
            continue;
        }
        let Some(role) = document.roles.iter().find(|role| role.name == replica.key.role) else {
            continue;
        };
        let volumes = volumes(inner, launch, role)?;
        let limits = limits(inner, document, role);
        if folder.spec().map_err(retry("spec.json"))?.is_none() {
            fill(inner, launch, role, replica, &folder, &volumes, limits)?;
        }
        let work = folder.work();
        let tmp = inner.layout.short_tmp(replica.incarnation);
        let place = environment::Place {
            account: inner.account.as_ref(),
            path: inner.path.as_deref(),
            home: &work,
            tmp: &tmp,
            gpus: &replica.gpus,
            cpu_milli: limits.cpu_milli,
            volumes: &volumes,
        };
        let environment = environment::of_replica(launch, role, &facts, peer, &place)?
            .into_iter()
            .collect();
        prepared.push(Prepared { folder, environment });
    }
    Ok(prepared)
}

/// Starts the shims and waits until each has recorded a start or a failure.
pub async fn spawn(inner: &Inner, prepared: Vec<Prepared>) -> Result<(), RuntimeError> {
    stream::iter(prepared)
        .map(|replica| async move {
            let message = {
                let mut message = Vec::new();
                write_message(&mut message, &replica.environment).map_err(retry("the environment"))?;
                message
            };
            run_shim(inner, "start", &replica.folder, &message).await?;
            if replica.folder.is_begun().map_err(retry("the replica's folder"))? {
                return Ok(());
            }
            let log = fs::read_to_string(replica.folder.path().join("shim.log")).unwrap_or_default();
            let last = log.lines().last().unwrap_or("it said nothing").to_owned();
            let folder = replica.folder.path().display();
            Err(RuntimeError::Retry(format!(
                "the shim of '{folder}' ended before it had started anything: {last}"
            )))
        })
        .buffer_unordered(SIDE_BY_SIDE)
        .try_collect()
        .await
}

/// Starts a shim and waits until it lets go of its stdout. Dropping the child leaves it running; the async runtime
/// collects it when it ends.
pub async fn run_shim(inner: &Inner, how: &str, folder: &Folder, message: &[u8]) -> Result<(), RuntimeError> {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(folder.path().join("shim.log"));
    let mut child = tokio::process::Command::new(&inner.program)
        .args(["shim", how])
        .arg(folder.path())
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log.map_err(retry("shim.log"))?)
        .spawn()
        .map_err(retry("the shim"))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let answer = async {
        if let Some(mut stdin) = stdin {
            // A shim that ends at once need not hear us.
            let _ = stdin.write_all(message).await;
        }
        if let Some(mut stdout) = stdout {
            let _ = stdout.read_to_end(&mut Vec::new()).await;
        }
    };
    tokio::time::timeout(SHIM_ANSWERS_WITHIN, answer).await.map_err(|_| {
        let seconds = SHIM_ANSWERS_WITHIN.as_secs();
        RuntimeError::Retry(format!(
            "the shim of '{}' did not answer within {seconds} s",
            folder.path().display()
        ))
    })
}

fn refuse_what_cannot_be(document: &JobDocument) -> Result<(), RuntimeError> {
    if let Some(Code::Git { .. }) = &document.code {
        return Err(refused(
            "code",
            "code.git: this machine does not fetch commits itself; upload the folder (code.upload) or name files \
             (code.inline)"
                .into(),
        ));
    }
    for (index, role) in document.roles.iter().enumerate() {
        for (place, volume) in role.volumes.iter().enumerate() {
            let path = format!("roles[{index}].volumes[{place}]");
            match &volume.source {
                VolumeSource::Claim { name } => {
                    return Err(refused(
                        "volume",
                        format!(
                            "{path}.source.claim: '{name}' is a claim of a Kubernetes cluster, and this machine has \
                             none; use source.job or source.hostPath"
                        ),
                    ));
                }
                VolumeSource::HostPath { path: host }
                    if !Path::new(host).is_absolute() || !Path::new(host).is_dir() =>
                {
                    return Err(refused(
                        "volume",
                        format!(
                            "{path}.source.hostPath.path: '{host}' is no folder of this machine; name one by its \
                                 full path"
                        ),
                    ));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// Decides what all replicas must agree on, once.
fn write_record(inner: &Inner, launch: &Launch, attempt: &AttemptFolder) -> Result<AttemptRecord, RuntimeError> {
    let document = &launch.document;
    let (mut launched, slots): (Vec<&LaunchReplica>, Vec<&LaunchReplica>) = launch
        .replicas
        .iter()
        .partition(|replica| starts_process(document, &replica.key.role));
    launched.sort_by_key(|replica| replica.rank);
    let ports = ports::reserve(&inner.layout.ports(), launch.attempt, launched.len()).map_err(retry("ports"))?;
    let replicas = launched.iter().zip(ports).map(|(replica, port)| {
        // The launcher's ranks use what was assigned to their slots.
        let slots = slots.iter().filter(|_| replica.key.role == LAUNCHER);
        ReplicaRecord {
            key: replica.key.clone(),
            rank: replica.rank,
            incarnation: replica.incarnation,
            gpus: replica
                .gpus
                .iter()
                .chain(slots.flat_map(|slot| &slot.gpus))
                .copied()
                .collect(),
            port,
        }
    });
    let slots = slots.iter().map(|slot| SlotRecord {
        key: slot.key.clone(),
        incarnation: slot.incarnation,
    });
    let record = AttemptRecord {
        job: launch.job,
        grace_ms: document.stop.grace.as_seconds() * 1000,
        replicas: replicas.collect(),
        slots: slots.collect(),
    };
    attempt.write_record(&record).map_err(retry("attempt.json"))?;
    Ok(record)
}

/// What one process may use; the launcher of an MPI job with all its slots.
fn limits(inner: &Inner, document: &JobDocument, role: &Role) -> Limits {
    let slots = document
        .roles
        .iter()
        .filter(|other| !starts_process(document, &other.name));
    let all: Vec<(&Role, u64)> = std::iter::once((role, 1))
        .chain(slots.map(|other| (other, u64::from(other.replicas))))
        .collect();
    let memory = all
        .iter()
        .map(|(role, count)| Some(role.resources.memory?.as_bytes() * count));
    Limits {
        cpu_milli: all
            .iter()
            .map(|(role, count)| role.resources.cpu.as_milli() * count)
            .sum(),
        // One part without a limit leaves the whole without one.
        memory_bytes: memory.sum(),
        processes: MOST_PROCESSES,
        open_files: inner.open_files,
    }
}

/// The role's volumes by name, those of the job made if they are missing.
fn volumes(inner: &Inner, launch: &Launch, role: &Role) -> Result<Vec<(String, PathBuf)>, RuntimeError> {
    let mut found = Vec::new();
    for volume in &role.volumes {
        let path = match &volume.source {
            VolumeSource::HostPath { path } => PathBuf::from(path),
            VolumeSource::Claim { .. } => continue,
            VolumeSource::Job {} => {
                let name = tree::inside(&volume.name).map_err(|error| refused("volume", error.to_string()))?;
                if name.components().count() != 1 {
                    return Err(refused(
                        "volume",
                        format!("the volume name '{}' holds a '/'", volume.name),
                    ));
                }
                let path = inner.layout.volume(launch.job, &volume.name);
                if let Some(parent) = path.parent() {
                    make_folder(parent).map_err(retry("the volume's folder"))?;
                }
                match fs::create_dir(&path) {
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(retry("the volume's folder")(error));
                    }
                    _ => {}
                }
                if let Some(account) = &inner.account {
                    std::os::unix::fs::lchown(&path, Some(account.uid), Some(account.gid))
                        .map_err(retry("the volume's folder"))?;
                }
                path
            }
        };
        found.push((volume.name.clone(), path));
    }
    Ok(found)
}

/// Makes the replica's folder whole and seals it with its spec.
fn fill(
    inner: &Inner,
    launch: &Launch,
    role: &Role,
    replica: &ReplicaRecord,
    folder: &Folder,
    volumes: &[(String, PathBuf)],
    limits: Limits,
) -> Result<(), RuntimeError> {
    make_folder(folder.path()).map_err(retry("the replica's folder"))?;
    let work = folder.work();
    let directory = write_tree(launch, role, &work, volumes).map_err(|error| match error {
        TreeError::Unsafe { .. } => refused("code", format!("in the working folder, {error}")),
        TreeError::Io { .. } => RuntimeError::Retry(error.to_string()),
    })?;
    if let Some(account) = &inner.account {
        account::give(&work, account).map_err(retry("the working folder"))?;
    }
    let tmp = inner.layout.short_tmp(replica.incarnation);
    let _ = fs::remove_file(&tmp);
    symlink(work.join(TMP), &tmp).map_err(retry("the folder for temporary files"))?;
    let spec = Spec {
        incarnation: replica.incarnation,
        command: role.command.iter().chain(&role.args).cloned().collect(),
        directory,
        account: inner.account.clone(),
        limits,
        cgroup: inner.cgroups.group(&replica.incarnation.to_string()),
        grace_ms: launch.document.stop.grace.as_seconds() * 1000,
        output_bound: inner.output_bound,
    };
    folder.write_spec(&spec).map_err(retry("spec.json"))
}

const TMP: &str = ".tmp";

fn write_tree(launch: &Launch, role: &Role, work: &Path, volumes: &[(String, PathBuf)]) -> Result<PathBuf, TreeError> {
    let tree = Tree::make(work)?;
    if let Some(Code::Inline(files)) = &launch.document.code {
        for (path, content) in files {
            tree.file(path, content.as_bytes())?;
        }
    }
    if let Some(archive) = &launch.code {
        tree.unpack(archive)?;
    }
    tree.folder(TMP)?;
    for (volume, (_, target)) in role.volumes.iter().zip(volumes) {
        // An absolute place can't be made without touching the machine; the variable tells the way there.
        if !Path::new(&volume.mount_path).is_absolute() {
            tree.link(&volume.mount_path, target)?;
        }
    }
    match role.working_dir.as_deref() {
        None | Some("" | "." | "./") => Ok(work.to_owned()),
        Some(path) if Path::new(path).is_absolute() => Ok(path.into()),
        Some(path) => tree.folder(path),
    }
}

fn refused(reason: &'static str, message: String) -> RuntimeError {
    RuntimeError::Refused { reason, message }
}
