//! The private Postgres through kills, restarts and refusals: what was acknowledged is there, and words are clear.

use std::{ffi::OsString, fs, path::PathBuf, time::Duration};

use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;
use trainyard::postgres::{PostgresError, Private, Search, Settings, attach};

use crate::ground::{Ground, Keeper, alive, kill, rows, until, write};

fn refusal(started: Result<Private, PostgresError>) -> PostgresError {
    match started {
        Ok(_) => panic!("it started"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn data_are_made_once_and_found_again() {
    let ground = Ground::new();
    let first = Private::start(&ground.settings()).await.unwrap();
    let pid = first.pid().await;
    write(&first.connect_options(), "one").await;
    // A client that stays connected does not hold up the stop.
    let _client = PgConnection::connect_with(&first.connect_options()).await.unwrap();
    first.stop().await.unwrap();
    assert!(!alive(pid));
    assert!(!ground.folder.join("postgres/data/postmaster.pid").exists());
    assert!(attach(&ground.settings()).is_none());

    let second = Private::start(&ground.settings()).await.unwrap();
    assert_eq!(rows(&second.connect_options()).await, ["one"]);
    let mut connection = PgConnection::connect_with(&second.connect_options()).await.unwrap();
    for (name, value) in [
        ("fsync", "on"),
        ("listen_addresses", ""),
        ("data_checksums", "on"),
        ("lc_ctype", "C.UTF-8"),
    ] {
        let shown: String = sqlx::query_scalar("select current_setting($1)")
            .bind(name)
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert_eq!(shown, value, "{name}");
    }
    let same: bool = sqlx::query_scalar("select 'ÄÖÜ' ilike 'äöü'")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    assert!(same, "case is ignored beyond ASCII too");
    second.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_is_taken_over_when_its_keeper_was_killed() {
    let ground = Ground::new();
    let mut keeper = Keeper::start(&ground.settings().folder);
    let pid = keeper.ready().unwrap();
    write(&attach(&ground.settings()).unwrap(), "before").await;
    keeper.kill();
    assert!(alive(pid), "the server outlives its keeper");

    let private = Private::start(&ground.settings()).await.unwrap();
    assert_eq!(private.pid().await, pid, "the same server, not another");
    assert_eq!(rows(&private.connect_options()).await, ["before"]);
    private.stop().await.unwrap();
    assert!(!alive(pid), "one that was taken over is stopped as well");
}

#[tokio::test]
async fn killing_keeper_and_server_loses_nothing_even_while_a_child_lives_on() {
    let ground = Ground::new();
    let mut keeper = Keeper::start(&ground.settings().folder);
    let pid = keeper.ready().unwrap();
    let options = attach(&ground.settings()).unwrap();
    for number in 0..20 {
        write(&options, &format!("{number:02}")).await;
    }
    // A child that computes does not notice its server's death, and holds the shared memory that guards the data.
    let mut busy = PgConnection::connect_with(&options).await.unwrap();
    let child: i32 = sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(&mut busy)
        .await
        .unwrap();
    let computing = tokio::spawn(async move {
        let long = "do $$ declare until timestamptz := clock_timestamp() + interval '2 s';
                    begin while clock_timestamp() < until loop end loop; end $$";
        let _ = sqlx::query(long).execute(&mut busy).await;
    });
    let mut look = PgConnection::connect_with(&options).await.unwrap();
    until("the child computes", async || {
        let state: String = sqlx::query_scalar("select state from pg_stat_activity where pid = $1")
            .bind(child)
            .fetch_one(&mut look)
            .await
            .unwrap();
        state == "active"
    })
    .await;
    keeper.kill();
    kill(pid);
    until("the server is dead", async || !alive(pid)).await;

    let private = Private::start(&ground.settings()).await.unwrap();
    assert_ne!(private.pid().await, pid);
    assert!(!alive(child), "it waited for the old server's last child");
    assert_eq!(rows(&private.connect_options()).await.len(), 20);
    private.stop().await.unwrap();
    computing.await.unwrap();
}

#[tokio::test]
async fn a_kill_during_the_first_initialisation_leaves_nothing_in_the_way() {
    let ground = Ground::new();
    let folder = ground.settings().folder;
    let unfinished = || {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        entries
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("data.new-"))
            .count()
    };
    let keeper = Keeper::start(&folder);
    until("the initialisation has begun", async || unfinished() > 0).await;
    keeper.kill();
    assert!(!folder.join("data").exists(), "a half-made folder has no name yet");

    let private = Private::start(&ground.settings()).await.unwrap();
    write(&private.connect_options(), "after").await;
    private.stop().await.unwrap();
    // The orphaned initdb, whose folder went away under it, may have put something back before it ended.
    let private = Private::start(&ground.settings()).await.unwrap();
    assert_eq!(unfinished(), 0);
    assert_eq!(rows(&private.connect_options()).await, ["after"]);
    private.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_that_dies_is_started_again() {
    let ground = Ground::new();
    let private = Private::start(&ground.settings()).await.unwrap();
    let options = private.connect_options();
    write(&options, "before").await;
    let (pid, stop) = (private.pid().await, CancellationToken::new());
    let watching = async {
        private.supervise(&stop).await;
    };
    let story = async {
        for (round, signal) in ["-KILL", "-INT"].into_iter().enumerate() {
            let file = ground.folder.join("postgres/data/postmaster.pid");
            let server = || fs::read_to_string(&file).ok()?.lines().next()?.parse::<i32>().ok();
            let now = server().unwrap();
            assert!(
                std::process::Command::new("kill")
                    .args([signal, &now.to_string()])
                    .status()
                    .unwrap()
                    .success()
            );
            until("another server answers", async || {
                server().is_some_and(|new| new != now) && PgConnection::connect_with(&options).await.is_ok()
            })
            .await;
            write(&options, &format!("after {round}")).await;
        }
        stop.cancel();
    };
    tokio::join!(watching, story);
    assert_ne!(private.pid().await, pid);
    assert_eq!(rows(&options).await, ["after 0", "after 1", "before"]);
    private.stop().await.unwrap();
}

#[tokio::test]
async fn a_second_keeper_is_refused_by_name() {
    let ground = Ground::new();
    let mut keeper = Keeper::start(&ground.settings().folder);
    keeper.ready().unwrap();
    let error = refusal(Private::start(&ground.settings()).await);
    let PostgresError::InUse { pid: Some(_), .. } = &error else {
        panic!("{error:?}");
    };
    assert!(error.to_string().contains("TRAINYARD_DATA"), "{error}");
    // Commands that only need the database for a moment use the one that runs.
    write(&attach(&ground.settings()).unwrap(), "through the other").await;
}

#[tokio::test]
async fn data_of_another_major_version_are_left_alone() {
    let ground = Ground::new();
    let private = Private::start(&ground.settings()).await.unwrap();
    write(&private.connect_options(), "old").await;
    private.stop().await.unwrap();
    let version = ground.folder.join("postgres/data/PG_VERSION");
    let real = fs::read_to_string(&version).unwrap();
    fs::write(&version, "14\n").unwrap();
    let error = refusal(Private::start(&ground.settings()).await);
    assert!(
        matches!(error, PostgresError::OtherMajor { major: 14, .. }),
        "{error:?}"
    );
    for word in ["Postgres 14", real.trim(), "backup"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
    fs::write(&version, real).unwrap();
    let private = Private::start(&ground.settings()).await.unwrap();
    assert_eq!(rows(&private.connect_options()).await, ["old"]);
    private.stop().await.unwrap();
}

#[tokio::test]
async fn a_damaged_folder_is_not_made_anew() {
    let ground = Ground::new();
    let private = Private::start(&ground.settings()).await.unwrap();
    private.stop().await.unwrap();
    let version = ground.folder.join("postgres/data/PG_VERSION");
    fs::rename(&version, version.with_extension("away")).unwrap();
    let error = refusal(Private::start(&ground.settings()).await);
    assert!(matches!(error, PostgresError::Damaged { .. }), "{error:?}");
    assert!(
        ground.folder.join("postgres/data/global/pg_control").exists(),
        "nothing was taken away"
    );
}

#[tokio::test]
async fn without_programs_the_package_is_named() {
    let ground = Ground::new();
    let nowhere = Settings {
        search: Search {
            only: None,
            path: OsString::new(),
            patterns: Vec::new(),
        },
        ..ground.settings()
    };
    let error = refusal(Private::start(&nowhere).await);
    assert!(matches!(error, PostgresError::NoBinaries), "{error:?}");
    for word in ["install", "DATABASE_URL", "doctor"] {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[tokio::test]
async fn a_long_path_still_gets_a_socket() {
    let ground = Ground::new();
    // The watchman looks one level down.
    let name = "long-".repeat(40);
    let settings = crate::ground::settings(ground.folder.join(name).join("postgres"));
    let private = Private::start(&settings).await.unwrap();
    let options = private.connect_options();
    write(&options, "far").await;
    let socket: PathBuf = options.get_socket().unwrap().clone();
    assert!(!socket.starts_with(&ground.folder));
    private.stop().await.unwrap();
    let private = Private::start(&settings).await.unwrap();
    assert_eq!(rows(&private.connect_options()).await, ["far"]);
    private.stop().await.unwrap();
    fs::remove_dir(&socket).unwrap();
}

#[tokio::test]
async fn a_server_that_somebody_else_started_is_not_touched() {
    let ground = Ground::new();
    let private = Private::start(&ground.settings()).await.unwrap();
    private.stop().await.unwrap();
    let file = ground.folder.join("postgres/data/postmaster.pid");
    // The words of a server on another socket, with a process behind them that has its folder as its own.
    let mut other = std::process::Command::new("sleep")
        .arg("600")
        .current_dir(ground.folder.join("postgres/data"))
        .spawn()
        .unwrap();
    let data = ground.folder.join("postgres/data");
    fs::write(
        &file,
        format!(
            "{}\n{}\n1\n5432\n/elsewhere\n\n 1 1\nready\n",
            other.id(),
            data.display()
        ),
    )
    .unwrap();
    let error = refusal(Private::start(&ground.settings()).await);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(matches!(error, PostgresError::Foreign { .. }), "{error:?}");
    assert!(file.exists(), "its file was not removed");
}

#[tokio::test]
async fn a_pid_that_another_program_has_now_is_not_taken_for_the_server() {
    let ground = Ground::new();
    let private = Private::start(&ground.settings()).await.unwrap();
    write(&private.connect_options(), "kept").await;
    let options = private.connect_options();
    let file = ground.folder.join("postgres/data/postmaster.pid");
    let words = fs::read_to_string(&file).unwrap();
    let pid = private.pid().await;
    kill(pid);
    until("the server is dead", async || {
        PgConnection::connect_with(&options).await.is_err()
    })
    .await;
    drop(private);
    // A process of the same account, which Postgres can't tell from a server of its own.
    let mut other = std::process::Command::new("sleep");
    other.arg("600");
    {
        use std::os::unix::{fs::MetadataExt, process::CommandExt};
        let owner = fs::metadata(ground.folder.join("postgres/data")).unwrap();
        other.uid(owner.uid()).gid(owner.gid());
    }
    let mut other = other.spawn().unwrap();
    fs::write(&file, words.replacen(&pid.to_string(), &other.id().to_string(), 1)).unwrap();
    let error = refusal(Private::start(&ground.settings()).await);
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(matches!(error, PostgresError::PidReused { .. }), "{error:?}");
    assert!(file.exists(), "the file is Postgres's own, however stale");

    let private = tokio::time::timeout(Duration::from_secs(60), Private::start(&ground.settings()))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(rows(&private.connect_options()).await, ["kept"]);
    private.stop().await.unwrap();
}
