//! The private Postgres and whose it is: root, a plain account, a closed folder, a full disk.
//!
//! Most of it needs root to set the stage; without root those tests say so and end.

use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt},
    process::Command,
};

use trainyard::postgres::{PostgresError, Private};

use crate::ground::{Ground, Keeper, is_root, rows, settings, write};

macro_rules! only_as_root {
    () => {
        if !is_root() {
            eprintln!("not tried: it needs root");
            return;
        }
    };
}

#[tokio::test]
async fn root_runs_it_as_another_account_that_owns_the_data() {
    only_as_root!();
    let ground = Ground::new();
    let private = Private::start(&ground.settings()).await.unwrap();
    let data = fs::metadata(ground.folder.join("postgres/data")).unwrap();
    assert_ne!(data.uid(), 0);
    assert_eq!(data.mode() & 0o777, 0o700);
    let socket = fs::metadata(ground.folder.join("postgres/run")).unwrap();
    assert_eq!((socket.uid(), socket.mode() & 0o777), (data.uid(), 0o700));
    let process = fs::metadata(format!("/proc/{}", private.pid().await)).unwrap();
    assert_eq!(process.uid(), data.uid());
    let status = fs::read_to_string(format!("/proc/{}/status", private.pid().await)).unwrap();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
    assert!(
        !groups.split_whitespace().any(|group| group == "0"),
        "root's groups were given up: {groups}"
    );
    let environment = fs::read(format!("/proc/{}/environ", private.pid().await)).unwrap();
    assert!(
        !String::from_utf8_lossy(&environment).contains("CARGO"),
        "nothing of ours is handed down"
    );
    private.stop().await.unwrap();
}

#[tokio::test]
async fn root_keeps_to_the_account_that_owns_the_data() {
    only_as_root!();
    let ground = Ground::new();
    let private = Private::start(&ground.settings()).await.unwrap();
    write(&private.connect_options(), "theirs").await;
    private.stop().await.unwrap();
    let other = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    for folder in ["data", "run"] {
        let owner = format!("{}:{}", other.uid, other.gid);
        let folder = ground.folder.join("postgres").join(folder);
        assert!(
            Command::new("chown")
                .arg("-R")
                .arg(owner)
                .arg(folder)
                .status()
                .unwrap()
                .success()
        );
    }
    let private = Private::start(&ground.settings()).await.unwrap();
    let process = fs::metadata(format!("/proc/{}", private.pid().await)).unwrap();
    assert_eq!(process.uid(), other.uid.as_raw());
    assert_eq!(rows(&private.connect_options()).await, ["theirs"]);
    private.stop().await.unwrap();
}

#[tokio::test]
async fn a_plain_account_needs_nobody() {
    only_as_root!();
    let ground = Ground::new();
    let program = ground.folder.join("keeper");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
    let home = ground.folder.join("home");
    fs::create_dir(&home).unwrap();
    let user = nix::unistd::User::from_name("nobody").unwrap().unwrap();
    std::os::unix::fs::chown(&home, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    let folder = home.join("postgres");

    let mut keeper = Keeper::start_as("nobody", &program, &folder);
    let pid = keeper.ready().unwrap();
    assert_eq!(fs::metadata(format!("/proc/{pid}")).unwrap().uid(), user.uid.as_raw());
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
    keeper.kill();
    let mut second = Keeper::start_as("nobody", &program, &folder);
    assert_eq!(second.ready(), Ok(pid), "taken over");
}

#[tokio::test]
async fn a_folder_that_the_account_cannot_reach_is_told_so() {
    only_as_root!();
    let ground = Ground::new();
    let closed = ground.folder.join("closed");
    fs::create_dir(&closed).unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    let error = Private::start(&settings(closed.join("postgres"))).await.err().unwrap();
    assert!(matches!(error, PostgresError::Account(_)), "{error:?}");
    for word in ["can't enter", "TRAINYARD_DATA"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

/// A disk of its own, of that many MiB. False: this machine lets nobody mount one.
fn mount(folder: &std::path::Path, size: u32) -> bool {
    fs::create_dir(folder).unwrap();
    let line = ["-t", "tmpfs", "-o", &format!("size={size}m,mode=755"), "none"];
    let mounted = Command::new("mount")
        .args(line)
        .arg(folder)
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        eprintln!("not tried: mounting a small disk is not allowed here");
    }
    mounted
}

#[tokio::test]
async fn a_disk_too_full_for_the_first_start_is_told_so_and_left_clean() {
    only_as_root!();
    let ground = Ground::new();
    let disk = ground.folder.join("disk");
    if !mount(&disk, 12) {
        return;
    }
    let settings = settings(disk.join("postgres"));
    let error = Private::start(&settings).await.err().unwrap();
    assert!(matches!(error, PostgresError::DiskFull { .. }), "{error}");
    assert!(
        error.to_string().contains("full") && error.to_string().contains("MB free"),
        "{error}"
    );
    let left = fs::read_dir(&settings.folder)
        .unwrap()
        .flatten()
        .map(|entry| entry.file_name());
    let left: Vec<String> = left.map(|name| name.to_string_lossy().into_owned()).collect();
    assert!(left.iter().all(|name| !name.starts_with("data")), "{left:?}");
}

#[tokio::test]
async fn a_disk_that_fills_up_later_costs_nothing_that_was_acknowledged() {
    only_as_root!();
    let ground = Ground::new();
    let disk = ground.folder.join("disk");
    if !mount(&disk, 160) {
        return;
    }
    let settings = settings(disk.join("postgres"));
    let private = Private::start(&settings).await.unwrap();
    write(&private.connect_options(), "before").await;
    private.stop().await.unwrap();
    let filler = disk.join("filler");
    let _ = Command::new("dd")
        .args(["if=/dev/zero", "bs=4k"])
        .arg(format!("of={}", filler.display()))
        .output();

    let error = Private::start(&settings).await.err().unwrap();
    assert!(matches!(error, PostgresError::DiskFull { .. }), "{error}");
    fs::remove_file(&filler).unwrap();
    let private = Private::start(&settings).await.unwrap();
    assert_eq!(rows(&private.connect_options()).await, ["before"]);
    private.stop().await.unwrap();
}
