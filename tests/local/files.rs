//! What replicas find in files: secrets, the code of a commit, folders that they may not write to.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    process::Command,
};

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use serde_json::{Value, json};
use trainyard::runtimes::{Runtime, RuntimeError};
use trainyard_core::model::{Launch, SecretValue};

use crate::world::{World, launch};

const VALUE: &str = "machine example.com password s3cret\n";

fn with_secret() -> Launch {
    let script = "cat $TRAINYARD_VOLUME_NETRC/file; stat -c '%a %U' $TRAINYARD_VOLUME_NETRC/file; id -un; \
                  echo $TRAINYARD_VOLUME_NETRC; exec sleep 600";
    let mut launch = launch(json!({
        "roles": [{
            "name": "worker", "command": ["sh", "-c", script],
            "volumes": [{
                "name": "netrc", "mountPath": "/secrets", "source": { "secretRef": { "name": "login", "key": "file" } },
            }],
        }],
    }));
    let place = ("login".to_owned(), "file".to_owned());
    launch.secrets.insert(place, SecretValue(VALUE.into()));
    launch
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_lies_in_a_file_of_the_account_and_goes_with_the_replica() {
    let world = World::new();
    let launch = with_secret();
    world.runtime.start(&launch).await.expect("started");
    let said = loop {
        let said = world.stdout(launch.attempt, "worker-0").await;
        if said.lines().count() == 4 {
            break said;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    };
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines[0], VALUE.trim_end());
    assert_eq!(lines[1], format!("400 {}", lines[2]), "the account's, for itself alone");
    let folder = Path::new(lines[3]);
    let memory = statfs("/dev/shm").is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC);
    assert_eq!(folder.starts_with("/dev/shm"), memory, "{said}");
    let inside = folder.parent().expect("a folder").metadata().expect("it is there");
    assert_eq!(inside.mode() & 0o777, 0o700);

    world.runtime.stop(launch.attempt).await.expect("asked");
    world.ends(launch.attempt).await;
    assert!(!folder.parent().expect("a folder").exists(), "it went with the replica");
    world.runtime.release(launch.attempt).await.expect("released");
    let files = |place: &Path| fs::read_dir(place).map_or(0, Iterator::count);
    assert_eq!(files(&world.data().join("local/secrets")), 0);
    world.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_file_without_its_value_is_refused_by_name() {
    let world = World::new();
    let mut launch = with_secret();
    launch.secrets.clear();
    let message = refused(&world, &launch).await;
    assert_eq!(
        message,
        "volume netrc: the secret 'login' has no key 'file'; set it and run the job again"
    );
}

async fn refused(world: &World, launch: &Launch) -> String {
    match world.runtime.start(launch).await {
        Err(RuntimeError::Refused { message, .. }) => message,
        other => panic!("not refused: {other:?}"),
    }
}

/// A bare repository with one commit on a branch. Answers its path and the commit.
fn repository(folder: &Path) -> (String, String) {
    let script = "set -e; git init -q -b main work; cd work; mkdir lib; echo 'print(\"from the commit\")' >train.py; \
                  echo '#!/bin/sh' >lib/run.sh; chmod +x lib/run.sh; git add .; \
                  git -c user.name=Ada -c user.email=ada@example.com commit -q -m first; \
                  git rev-parse HEAD; git clone -q --bare . ../code.git";
    let done = Command::new("sh")
        .args(["-c", script])
        .current_dir(folder)
        .env("HOME", folder)
        .output()
        .expect("sh runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let commit = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    (folder.join("code.git").display().to_string(), commit)
}

fn of_commit(url: &str, commit: &str) -> Launch {
    let script = "python3 train.py; test -x lib/run.sh; echo $?; ls -a";
    launch(json!({
        "code": { "git": { "url": url, "commit": commit } },
        "roles": [{ "name": "worker", "replicas": 2, "command": ["sh", "-c", script] }],
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_is_fetched_once_and_what_is_not_there_is_told() {
    let world = World::new();
    let folder = tempfile::Builder::new().prefix("ty-git").tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("it opens");
    let (path, commit) = repository(folder.path());
    let url = format!("file://{path}");
    let first = of_commit(&url, &commit);
    world.runtime.start(&first).await.expect("started");
    let exits = world.ends(first.attempt).await;
    for (index, exit) in exits.iter().enumerate() {
        let said = world.stdout(first.attempt, &format!("worker-{index}")).await;
        assert_eq!(exit.code, Some(0), "{said}");
        assert_eq!(said, "from the commit\n0\n.\n..\n.tmp\nlib\ntrain.py\n");
    }

    let unknown = "0123456789012345678901234567890123456789";
    let message = refused(&world, &of_commit(&url, unknown)).await;
    println!("{message}");
    assert!(
        message.starts_with("code git: ") && message.contains(&format!("has no commit {unknown}")),
        "{message}"
    );
    let nowhere = format!("file://{}/nowhere.git", folder.path().display());
    let message = refused(&world, &of_commit(&nowhere, &commit)).await;
    println!("{message}");
    assert!(
        message.starts_with(&format!("code git: repository not found: '{nowhere}'")),
        "{message}"
    );
    let message = refused(&world, &of_commit("ssh://git@example.com/code.git", &commit)).await;
    println!("{message}");
    assert!(message.contains("over https, http and file alone"), "{message}");
    // Nobody listens there; the password of the address must not be told on.
    let message = refused(&world, &of_commit("http://ada:s3cret@127.0.0.1:9/code.git", &commit)).await;
    println!("{message}");
    assert!(
        message.starts_with("code git: 'http://127.0.0.1:9/code.git'"),
        "{message}"
    );
    assert!(!message.contains("s3cret"), "{message}");

    fs::remove_dir_all(&path).expect("the repository goes away");
    let again = of_commit(&url, &commit);
    world.runtime.start(&again).await.expect("it was kept");
    let exits = world.ends(again.attempt).await;
    assert!(exits.iter().all(trainyard_core::model::Exit::succeeded), "{exits:?}");
    let kept = fs::read_dir(world.data().join("local/code")).expect("the folder");
    let mut kept: Vec<String> = kept
        .map(|entry| entry.expect("an entry").file_name().display().to_string())
        .collect();
    kept.retain(|name| name != "gitconfig");
    assert!(
        kept.len() == 1 && kept[0].ends_with(&format!("-{commit}.tar")),
        "{kept:?}"
    );
    world.assert_nothing_runs();
}

fn with_read_only(folder: &Path) -> Launch {
    let volume = |name: &str, read_only: bool, source: Value| {
        let path = format!("/{name}");
        json!({ "name": name, "mountPath": path, "source": source, "readOnly": read_only })
    };
    let script = "cat $TRAINYARD_VOLUME_DATA/there; touch $TRAINYARD_VOLUME_DATA/new; echo $?; \
                  touch $TRAINYARD_VOLUME_OUT/new; echo $?";
    launch(json!({ "roles": [{
        "name": "worker", "command": ["sh", "-c", script],
        "volumes": [
            volume("data", true, json!({ "hostPath": { "path": folder } })), volume("out", false, json!({ "job": {} })),
        ],
    }] }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_volume_can_be_read_alone_or_is_refused() {
    let world = World::new();
    let folder = tempfile::Builder::new().prefix("ty-data").tempdir().expect("a folder");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).expect("it opens");
    fs::write(folder.path().join("there"), "data\n").expect("a file");
    let launch = with_read_only(folder.path());
    if !nix::unistd::geteuid().is_root() {
        let message = refused(&world, &launch).await;
        assert!(message.starts_with("roles[0].volumes[0].readOnly: "), "{message}");
        return;
    }
    world.runtime.start(&launch).await.expect("started");
    world.ends(launch.attempt).await;
    let errors = world
        .output(launch.attempt, "worker-0", trainyard_core::model::LogStream::Stderr)
        .await;
    assert_eq!(
        world.stdout(launch.attempt, "worker-0").await,
        "data\n1\n0\n",
        "{errors}"
    );
    assert!(errors.contains("Read-only file system"), "{errors}");
    assert!(!folder.path().join("new").exists());
    fs::write(folder.path().join("ours"), "").expect("nobody else is kept from writing");
    world.assert_nothing_runs();
}
