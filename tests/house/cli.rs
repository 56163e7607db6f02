//! The program as a person starts it: exit codes, words, and an environment that means another server.

use std::{
    path::Path,
    process::{Command, Output},
};

use trainyard::keys::KeyFile;

use crate::ground::Ground;

fn trainyard(data: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_trainyard"));
    command
        .args(words)
        .env_remove("DATABASE_URL")
        .env("TRAINYARD_DATA", data);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn an_environment_meant_for_another_server_leads_nobody_astray() {
    let ground = Ground::new();
    let hostile = [
        ("PGDATA", "/nowhere"),
        ("PGHOST", "192.0.2.1"),
        ("PGHOSTADDR", "192.0.2.1"),
        ("PGPORT", "1"),
        ("PGUSER", "stranger"),
        ("PGDATABASE", "elsewhere"),
        ("PGSSLMODE", "verify-full"),
        ("PGSSLROOTCERT", "/nowhere"),
        ("PGOPTIONS", "-c default_transaction_read_only=on"),
        ("PGSERVICE", "nothing"),
        ("LC_ALL", "xx_XX"),
    ];
    let output = trainyard(&ground.folder, &["migrate"]).envs(hostile).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let again = trainyard(&ground.folder, &["migrate"]).envs(hostile).output().unwrap();
    assert!(again.status.success(), "{}", said(&again));
    assert!(
        !ground.folder.join("postgres/data/postmaster.pid").exists(),
        "it was stopped afterwards"
    );
}

#[test]
fn doctor_tells_what_is_missing_and_fails_for_it() {
    let ground = Ground::new();
    let address = ["--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"];
    let output = trainyard(&ground.folder, &["doctor", "-o", "json"])
        .args(address)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let checks: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let whats: Vec<&str> = checks
        .as_array()
        .unwrap()
        .iter()
        .map(|check| check["what"].as_str().unwrap())
        .collect();
    assert!(
        whats.contains(&"PostgreSQL programs") && whats.contains(&"limits of jobs"),
        "{whats:?}"
    );

    let none = trainyard(&ground.folder, &["doctor", "--postgres-bin", "/nowhere"])
        .args(address)
        .output()
        .unwrap();
    assert_eq!(none.status.code(), Some(1), "{}", said(&none));
    assert!(
        said(&none).contains("MISSING") && said(&none).contains("-> "),
        "{}",
        said(&none)
    );
    assert!(
        said(&none).contains("/nowhere, and there is no such folder"),
        "the folder that was named is told: {}",
        said(&none)
    );

    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap().to_string();
    let output = trainyard(&ground.folder, &["doctor", "--listen", &listen])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("TRAINYARD_LISTEN"), "{}", said(&output));

    let mut closed = trainyard(&ground.folder, &["doctor"]);
    closed
        .args(address)
        .env("DATABASE_URL", "postgres://yard:hunter2@127.0.0.1:1/yard");
    let output = closed.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(!said(&output).contains("hunter2"), "{}", said(&output));
}

#[test]
fn what_is_not_understood_exits_with_two_and_what_fails_with_one() {
    let ground = Ground::new();
    let code = |words: &[&str]| trainyard(&ground.folder, words).output().unwrap().status.code();
    assert_eq!(code(&[]), Some(2));
    assert_eq!(code(&["dance"]), Some(2));
    assert_eq!(code(&["restore"]), Some(2));
    assert_eq!(code(&["keys", "list"]), Some(1), "there is no key file yet");
    assert_eq!(code(&["--version"]), Some(0));
}

#[test]
fn a_wrong_setting_is_named_with_its_value_and_the_way_out() {
    let ground = Ground::new();
    let cases = [
        (
            "DATABASE_URL",
            "mysql://yard:hunter2@db/yard",
            "postgres://user:password@host",
        ),
        ("TRAINYARD_METRICS_LISTEN", "0.0.0.0:9000", "loopback"),
        ("TRAINYARD_URL", "ftp://x", "https://"),
        ("TRAINYARD_LOG", "a=b=c", "info"),
        ("TRAINYARD_LISTEN", "localhost", "TRAINYARD_LISTEN"),
    ];
    for (name, value, way_out) in cases {
        let output = trainyard(&ground.folder, &["migrate"])
            .env(name, value)
            .output()
            .unwrap();
        assert!(!output.status.success());
        let words = said(&output);
        let named = words.contains(name) || words.contains("--listen");
        assert!(
            named && (words.contains(way_out) || words.contains(value)),
            "{name}: {words}"
        );
        assert!(!words.contains("hunter2"), "{words}");
    }
}

#[test]
fn a_rotation_by_command_leaves_one_key_and_says_what_old_backups_need() {
    let ground = Ground::new();
    let file = ground.folder.join("keys");
    let keys = KeyFile::open_or_create(&file, &mut rand::rng()).unwrap();
    let before = keys.ring().ids().next().unwrap().to_string();
    let migrated = trainyard(&ground.folder, &["migrate"]).output().unwrap();
    assert!(migrated.status.success(), "{}", said(&migrated));
    let rotated = trainyard(&ground.folder, &["keys", "rotate"]).output().unwrap();
    assert!(rotated.status.success(), "{}", said(&rotated));
    let told = said(&rotated);
    assert!(
        told.contains("Sealed 0 rows") && told.contains(&format!("Retired {before}")),
        "{told}"
    );
    assert!(
        told.contains("Backups made until now need the key file as it was"),
        "{told}"
    );
    let ids: Vec<String> = keys.ring().ids().map(ToString::to_string).collect();
    assert!(ids.len() == 1 && ids[0] != before, "{ids:?}");
    let again = trainyard(&ground.folder, &["keys", "rotate", "--continue"])
        .output()
        .unwrap();
    assert!(again.status.success(), "{}", said(&again));
    assert_eq!(
        keys.ring().ids().next().unwrap().to_string(),
        ids[0],
        "no further key was made"
    );
}
