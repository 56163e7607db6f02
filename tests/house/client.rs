//! The commands that ask a server, as a person or a script has them: words, JSON, and exit codes.

use std::{
    fs,
    process::{Command, Output},
};

use serde_json::Value;

use crate::{
    ground::{Ground, until},
    up::Up,
};

fn trainyard(ground: &Ground, words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trainyard"))
        .args(words)
        .env("XDG_CONFIG_HOME", ground.folder.join("config"))
        .env_remove("TRAINYARD_SERVER")
        .env_remove("TRAINYARD_TOKEN")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a script reads from standard error: one object, and the exit code.
fn refused(output: &Output) -> (Option<i32>, Value) {
    let words = text(&output.stderr);
    assert!(output.stdout.is_empty(), "{}", text(&output.stdout));
    let problem = serde_json::from_str(&words).unwrap_or_else(|error| panic!("{error}: {words}"));
    (output.status.code(), problem)
}

#[tokio::test]
async fn errors_are_json_for_scripts_and_a_state_is_said_as_the_pages_say_it() {
    let mut ground = Ground::new();
    let mut up = Up::start(&mut ground);
    up.answers("/readyz").await;
    let left = ground.folder.join("config/trainyard/client.json");
    until("`up` left a token", async || {
        fs::read(&left).is_ok_and(|file| !file.is_empty())
    })
    .await;
    let file = ground.folder.join("job.yaml");
    let file = file.to_str().unwrap();
    let document = |cpu: &str| {
        format!(
            "apiVersion: trainyard.dev/v1\nkind: Job\nname: large\nroles:\n  - name: worker\n    command: [echo, hello]\n    resources: {{ cpu: {cpu} }}\n"
        )
    };

    fs::write(file, document("lots")).unwrap();
    let (code, problem) = refused(&trainyard(&ground, &["submit", "-f", file, "-o", "json"]));
    assert_eq!((code, problem["status"].as_u64()), (Some(1), Some(422)), "{problem}");
    assert_eq!(problem["errors"][0]["path"], "roles[0].resources.cpu", "{problem}");
    assert!(
        problem["request_id"].is_string(),
        "the problem document is whole: {problem}"
    );
    let (code, problem) = refused(&trainyard(&ground, &["job", "nobody", "-o", "json"]));
    assert_eq!(
        (code, problem["code"].as_str()),
        (Some(4), Some("not_found")),
        "{problem}"
    );
    let (code, problem) = refused(&trainyard(&ground, &["jobs", "--limit", "none", "--output=json"]));
    assert_eq!((code, problem["code"].as_str()), (Some(2), Some("usage")), "{problem}");
    let (code, problem) = refused(&trainyard(
        &ground,
        &["jobs", "-ojson", "--server", "http://127.0.0.1:1"],
    ));
    assert_eq!(
        (code, problem["code"].as_str()),
        (Some(3), Some("unreachable")),
        "{problem}"
    );
    assert!(problem["hint"].as_str().unwrap().contains("trainyard up"), "{problem}");

    // More than any machine of ours has.
    fs::write(file, document("900")).unwrap();
    let submitted = trainyard(&ground, &["submit", "-f", file, "-o", "json"]);
    let job: Value = serde_json::from_slice(&submitted.stdout).unwrap();
    let id = job["id"].as_str().unwrap();
    for words in [&["jobs"][..], &["job", id]] {
        until("it is told that nothing is large enough", async || {
            let told = text(&trainyard(&ground, words).stdout);
            told.contains("900 cores") && !told.contains("no worker has looked")
        })
        .await;
    }

    fs::write(file, document("900").replace("large\n", "large\nqueue: $QUEUE\n")).unwrap();
    for words in [&["--dry-run"][..], &[]] {
        let told = text(
            &trainyard(
                &ground,
                &[&["submit", "-f", file, "--set", "QUEUE=gold"], words].concat(),
            )
            .stdout,
        );
        assert!(
            told.contains("\nWarning: A local cluster has no queue 'gold'"),
            "{told}"
        );
    }

    let (code, slip) = refused(&trainyard(
        &ground,
        &["submit", "-f", file, "-o", "json", "--set", "Q=gold"],
    ));
    assert_eq!(code, Some(2), "{slip}");
    assert!(
        slip["title"].as_str().unwrap().ends_with("named Q; it has QUEUE"),
        "{slip}"
    );

    let short = ground.folder.join("pin");
    fs::write(&short, "123\n").unwrap();
    let put = trainyard(
        &ground,
        &["secret", "put", "keys", "--from", &format!("pin={}", short.display())],
    );
    let told = text(&put.stdout);
    assert!(
        put.status.success() && told.contains("Warning: The value of 'pin'"),
        "{told}"
    );
    let folder = ground.folder.to_str().unwrap();
    let tokens = text(&trainyard(&ground, &["token", "--data", folder, "list"]).stdout);
    let owner = tokens
        .lines()
        .next()
        .and_then(|head| head.find("OWNER"))
        .unwrap_or_else(|| panic!("{tokens}"));
    assert!(
        tokens
            .lines()
            .nth(1)
            .is_some_and(|row| row[owner..].starts_with("Admin")),
        "{tokens}"
    );

    let said = |words: &[&str]| {
        let output = trainyard(&ground, &[&["logs", id], words].concat());
        (output.status.code(), text(&output.stderr))
    };
    let (code, words) = said(&["--replica", "chief-0"]);
    assert!(
        code == Some(4) && words.contains("chief") && words.contains("worker-0"),
        "{words}"
    );
    let (code, words) = said(&["--replica", "worker-5", "--grep", "x"]);
    assert!(
        code == Some(4) && words.contains('5') && words.contains("worker-0"),
        "{words}"
    );
    let (code, words) = said(&["--attempt", "7", "--follow"]);
    assert!(
        code == Some(4) && words.contains('7') && words.contains("none yet"),
        "{words}"
    );
    assert_eq!(said(&["--replica", "worker-0"]).0, Some(0), "it has said nothing yet");

    let counts = "apiVersion: trainyard.dev/v1\nkind: Job\nname: counts\nroles:\n  - name: worker\n    command: [seq, '3000']\n    resources: { cpu: 100m }\n";
    fs::write(file, counts).unwrap();
    assert!(trainyard(&ground, &["submit", "-f", file]).status.success());
    let lines = |words: &[&str]| {
        let output = trainyard(&ground, &[&["logs", "counts"], words].concat());
        let told = text(&output.stderr);
        assert!(output.status.success(), "{words:?}: {told}");
        text(&output.stdout).lines().count()
    };
    until("its output is stored", async || lines(&[]) == 3000).await;
    assert_eq!(lines(&["--follow", "--since", "10m"]), 3000);
    assert_eq!(lines(&["--tail", "2000"]), 2000);
    let ones = (1..=3000)
        .filter(|number: &i32| number.to_string().contains('1'))
        .count();
    assert_eq!(lines(&["--grep", "1"]), ones);
}
