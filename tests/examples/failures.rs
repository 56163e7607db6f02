//! Ranks that fail, are killed or are slow, and what is said of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::yard::{PATIENCE, Yard, example, shell};

/// One rank takes a step every two seconds, and after eight of them an evaluation of five steps' time.
const EVALUATES: &str = r#"
import time
for step in range(1, 12):
    time.sleep(2 if step != 9 else 10)
    print(f"step={step} loss={1 / step:.3f}", flush=True)
"#;

/// It says what is wrong on one stream and goes on and on with the other.
const DROWNED: &str = r#"
printf 'Traceback (most recent call last):\n  File "train.py", line 3\nKeyError: 0x17\n' >&2
sleep 1; seq -f 'closing shard %.0f' 300; exit 1
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_killed_and_slow_ranks_are_told_apart() {
    let yard = Yard::open().await;
    let evaluates = json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "evaluates",
        "roles": [{ "name": "worker", "command": ["python3", "-c", EVALUATES], "resources": { "cpu": "100m" } }],
        "restart": { "max": 2 }, "deadlines": { "silence": "1m" },
    });
    let evaluates = yard.submit(&evaluates.to_string());
    let fails = yard.submit(&example(
        "fails",
        &[
            ("PACE: 0.25", "PACE: 0.02"),
            ("metrics:", "restart: { max: 1, backoff: 1s }\nmetrics:"),
        ],
    ));
    // The kernel's way of ending a rank, at a step that is certain.
    let fault = "raise RuntimeError(f\"a simulated fault at step {step}\")";
    let killed = "os.kill(os.getpid(), signal.SIGKILL)";
    let keeps = yard.submit(&example("checkpoint", &[("PACE: 0.25", "PACE: 0.05"), (fault, killed)]));

    let drowned = yard.submit(&shell("drowned", "100m", DROWNED, json!({})));

    let flag = flagged_as_slow(&yard, &evaluates).await;
    one_rank_of_four(&yard, &fails).await;
    a_traceback_below_other_output(&yard, &drowned).await;
    yard.succeeded(&evaluates).await;
    let words = yard.get(&evaluates, "events").await.to_string();
    assert!(!words.contains("hung"), "{words}");
    println!("a slow evaluation: {flag} It went on and succeeded, one attempt.");

    let ended = yard.ended(&keeps).await;
    assert_eq!(ended["phase"], "succeeded", "{ended:#}");
    resumed_at_20(&yard, &keeps).await;
}

async fn one_rank_of_four(yard: &Yard, job: &str) {
    let ended = yard.ended(job).await;
    assert_eq!(ended["phase"], "failed", "{ended:#}");
    let attempts = yard.world.api.attempts(job).await;
    assert_eq!(attempts.len(), 2, "{attempts:#?}");
    for number in [1, 2] {
        let told = post_mortem(yard, job, number).await;
        assert_eq!(told["first_failure"]["rank"], 2, "{told:#}");
        let parts: Vec<&Value> = told["replicas"].as_array().expect("replicas").iter().collect();
        let victims = parts.iter().filter(|replica| replica["part"] == "victim").count();
        assert_eq!(victims, 3, "{told:#}");
        println!(
            "one failing rank of four, attempt {number}: {} {}",
            told["summary"].as_str().unwrap_or_default(),
            told["policy_sentence"].as_str().unwrap_or_default()
        );
    }
    let page = yard.page(&format!("/jobs/{job}")).await;
    let summary = post_mortem(yard, job, 2).await["summary"]
        .as_str()
        .expect("words")
        .to_owned();
    assert!(page.contains(&summary), "the page does not say '{summary}': {page}");
}

async fn a_traceback_below_other_output(yard: &Yard, job: &str) {
    yard.ended(job).await;
    let told = post_mortem(yard, job, 1).await;
    let summary = told["summary"].as_str().expect("words");
    assert!(summary.contains("It printed \"KeyError: 0x17\""), "{told:#}");
    let lines = told["replicas"][0]["last_lines"].as_array().expect("lines");
    assert_eq!((lines.len(), &lines[2]), (50, &json!("KeyError: 0x17")), "{told:#}");
    println!("300 lines after its traceback: {summary}");
}

async fn resumed_at_20(yard: &Yard, job: &str) {
    let mut attempts = yard.world.api.attempts(job).await;
    attempts.sort_by_key(|attempt| attempt["number"].as_i64());
    let steps = (
        &attempts[0]["last_step"],
        &attempts[0]["kept_step"],
        &attempts[1]["resume_step"],
    );
    assert_eq!(steps, (&json!(27), &json!(20), &json!(20)), "{attempts:#?}");
    let lines = yard.world.api.lines(job, 2, 0, "stdout").await;
    let resumed = &lines[0];
    assert!(
        resumed.starts_with("attempt 2: going on after step 20 from "),
        "{lines:#?}"
    );
    assert!(lines[1].starts_with("step=21 "), "{lines:#?}");
    let told = post_mortem(yard, job, 1).await;
    assert_eq!(
        (&told["steps_lost"], &told["first_failure"]["rank"]),
        (&json!(7), &json!(1)),
        "{told:#}"
    );
    println!(
        "rank 1 killed at step 27: {}",
        told["summary"].as_str().unwrap_or_default()
    );
    println!("the next attempt said: {resumed}");
    let page = yard.page(&format!("/jobs/{job}?attempt=1")).await;
    let at = page
        .find("7 steps")
        .unwrap_or_else(|| panic!("the page does not tell of 7 lost steps: {page}"));
    println!("and its page: {}", page[at..].chars().take(60).collect::<String>());
}

/// Waits until the job is said to be slow, and answers with which words.
async fn flagged_as_slow(yard: &Yard, job: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = yard.get(job, "conditions").await;
        let conditions = found["items"].as_array().expect("conditions");
        let slow = conditions
            .iter()
            .find(|condition| condition["type"] == "slow" && condition["status"] == "true");
        // On a busy machine other steps may be late as well.
        let evaluates = |slow: &&Value| slow["message"].as_str().is_some_and(|words| words.contains("(step 8)"));
        if let Some(slow) = slow.filter(evaluates) {
            let job = yard.world.api.job(job).await;
            assert_eq!(job["phase"], "running", "flagged, not killed");
            return slow["message"].as_str().expect("words").to_owned();
        }
        assert!(Instant::now() < deadline, "{found:#}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// It is frozen once the last output is stored.
async fn post_mortem(yard: &Yard, job: &str, attempt: i64) -> Value {
    let path = format!("/api/v1/jobs/{job}/post-mortem?attempt={attempt}");
    let deadline = Instant::now() + PATIENCE;
    loop {
        let (status, text) = yard.world.api.text(&path, None).await;
        if status == 200 {
            return serde_json::from_str(&text).expect("JSON");
        }
        assert!(Instant::now() < deadline, "{status} {text}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
