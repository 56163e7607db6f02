//! The token that an attempt's processes get: what it opens, what it does not, and for how long.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::yard::{PATIENCE, Yard, shell};

/// Says what the API answers to it. The first attempt leaves its token to the second one and fails.
const REPORTS: &str = r#"
import json, os, sys, urllib.error, urllib.request

def ask(method, path, body=None, token=os.environ["TRAINYARD_TOKEN"]):
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(os.environ["TRAINYARD_URL"] + path, data, headers, method=method)
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code

own, other = "/api/v1/jobs/" + os.environ["TRAINYARD_JOB_ID"], "/api/v1/jobs/" + os.environ["OTHER"]
points = {"points": [{"series": "loss", "value": 0.5, "step": 7}]}
print("token", os.environ["TRAINYARD_TOKEN"])
print("metrics", ask("POST", own + "/metrics", points))
print("checkpoints", ask("POST", own + "/checkpoints", {"step": 7, "path": "/checkpoints/7"}))
print("read", ask("GET", own))
print("cancel", ask("POST", own + "/cancel", {}))
print("another job", ask("POST", other + "/metrics", points))
left = os.environ["TRAINYARD_VOLUME_LEFT"] + "/token"
if os.environ["TRAINYARD_ATTEMPT"] == "1":
    open(left, "w").write(os.environ["TRAINYARD_TOKEN"])
    sys.exit(1)
print("an old token", ask("POST", own + "/metrics", points, open(left).read()))
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempts_own_token_reports_and_ends_with_it() {
    let yard = Yard::open().await;
    let left = yard.world.data().join("left");
    fs::create_dir(&left).expect("a folder");
    fs::set_permissions(&left, fs::Permissions::from_mode(0o777)).expect("it opens");
    let other = yard.submit(&shell("other", "100m", "exec sleep 600", json!({})));
    yard.world
        .api
        .until(&other, PATIENCE, |job| job["phase"] == "running")
        .await;
    let document = json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "reports", "restart": { "max": 1, "backoff": "1s" },
        "roles": [{
            "name": "worker", "command": ["python3", "-c", REPORTS], "resources": { "cpu": "100m" },
            "volumes": [{ "name": "left", "mountPath": "/left", "source": { "hostPath": { "path": left } } }],
        }],
        "env": { "OTHER": other },
    });
    let job = yard.submit(&document.to_string());
    let ended = yard.ended(&job).await;
    assert_eq!(
        (&ended["phase"], &ended["attempt"]),
        (&json!("succeeded"), &json!(2)),
        "{ended:#}"
    );

    let answers = [
        "token ***",
        "metrics 201",
        "checkpoints 201",
        "read 403",
        "cancel 403",
        "another job 403",
    ];
    for attempt in [1, 2] {
        let lines = yard.world.api.lines(&job, attempt, 0, "stdout").await;
        assert_eq!(&lines[..6], answers, "attempt {attempt}");
        println!("attempt {attempt} with its own token: {}", lines.join(", "));
        if attempt == 2 {
            // Whoever recognised it a moment ago refuses what it asks for; everybody else does not know it.
            assert!(
                ["an old token 401", "an old token 403"].contains(&lines[6].as_str()),
                "{lines:?}"
            );
        }
    }
    let checkpoints = yard.get(&job, "checkpoints").await;
    let reported: Vec<&Value> = checkpoints["items"].as_array().expect("items").iter().collect();
    assert_eq!(reported.len(), 2, "{checkpoints:#}");
    assert!(
        reported.iter().all(|checkpoint| checkpoint["source"] == "api"),
        "{checkpoints:#}"
    );

    let token = fs::read_to_string(left.join("token")).expect("a token");
    assert!(token.starts_with("tyj_"), "{token}");
    let mut with_it = yard.world.api.clone();
    with_it.token = token;
    let deadline = Instant::now() + PATIENCE;
    while with_it.text("/api/v1/me", None).await.0 != 401 {
        assert!(
            Instant::now() < deadline,
            "the token of an ended attempt is still known"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    yard.cancel(&other).await;
}
