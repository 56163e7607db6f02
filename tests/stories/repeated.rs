//! The same story with every step taken once, twice, and done without anybody seeing it: the records are the same.

use serde_json::{Value, json};

use crate::{
    simulated::Manner,
    world::{World, document},
};

#[tokio::test]
async fn every_step_taken_twice_leaves_the_same_records() {
    let plain = told(Manner::Plain).await;
    assert_eq!(plain, told(Manner::Twice).await);
    assert_eq!(plain, told(Manner::Unseen).await);
    println!(
        "{} records are the same after each step once, twice, and unseen",
        plain.len()
    );
}

/// A job that fails, is retried, suspended, resumed and succeeds, beside one that is cancelled: all records, without
/// times and ids.
async fn told(manner: Manner) -> Vec<String> {
    let mut world = World::in_manner(manner).await;
    let more = json!({
        "restart": { "max": 2, "backoff": "5s" }, "checkpoints": { "signal": "USR1", "wait": "30s" }
    });
    let job = world.submit(document("story", 2, "1", more)).await;
    world.pass(6.0).await;
    world.assert_phase(&job, "running").await;
    world.runtime.print(
        &job,
        1,
        0,
        "step=10 loss=1\ncheckpoint step=10 path=/c/10\nstep=13 loss=1\n",
    );
    world.runtime.exit(&job, 1, 1, 3);
    world.pass(20.0).await;
    world.assert_phase(&job, "running").await;
    world.runtime.print(&job, 2, 0, "step=11 loss=1\n");
    world.wish(&job, "suspend").await;
    world.pass(4.0).await;
    world.runtime.print(&job, 2, 0, "checkpoint step=12 path=/c/12\n");
    world.pass(8.0).await;
    world.assert_phase(&job, "suspended").await;
    world.wish(&job, "resume").await;
    world.pass(6.0).await;
    world.assert_phase(&job, "running").await;
    let other = world.submit(document("other", 1, "1", json!({}))).await;
    world.pass(6.0).await;
    world.wish(&other, "cancel").await;
    world.runtime.exit_all(&job, 3, 0);
    world.pass(8.0).await;
    world.assert_phase(&job, "succeeded").await;
    world.assert_phase(&other, "cancelled").await;

    let mut records = Vec::new();
    for job in [&job, &other] {
        let found = world.job(job).await;
        records.push(parts(&found, &["name", "phase", "reason", "attempt", "step"]));
        for attempt in world.attempts(job).await {
            let number = attempt["number"].as_i64().expect("a number");
            let fields = [
                "number",
                "phase",
                "outcome",
                "reason",
                "stop_cause",
                "resume_step",
                "last_step",
                "kept_step",
            ];
            records.push(parts(&attempt, &fields));
            for replica in world.replicas(job, number).await {
                records.push(parts(
                    &replica,
                    &["rank", "phase", "reason", "exit_code", "exit_signal", "step"],
                ));
            }
        }
        for event in world.events(job).await {
            records.push(parts(&event, &["kind", "type", "data"]));
        }
        let mut usage = world.get(&format!("/api/v1/jobs/{job}/usage")).await["items"]
            .as_array()
            .expect("it")
            .clone();
        usage.sort_by_key(|interval| interval["from"].to_string());
        // An attempt that ran for no time at all may have an interval of no length or none.
        usage.retain(|interval| interval["from"] != interval["to"]);
        for interval in usage {
            records.push(parts(&interval, &["attempt", "phase", "kept"]));
        }
        let lines = world.get(&format!("/api/v1/jobs/{job}/logs")).await;
        for line in lines["items"].as_array().expect("lines") {
            records.push(parts(line, &["attempt", "rank", "stream", "text"]));
        }
    }
    records
}

fn parts(record: &Value, fields: &[&str]) -> String {
    let without_times = |value: &Value| match value {
        Value::Object(fields) => {
            let kept = fields
                .iter()
                .filter(|(name, _)| !["at", "cluster", "first_failure"].contains(&name.as_str()));
            Value::Object(kept.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        other => other.clone(),
    };
    let told: Vec<String> = fields
        .iter()
        .map(|field| format!("{field}={}", without_times(&record[*field])))
        .collect();
    told.join(" ")
}
