//! What must be true of a job once it is over, read back through the API: every line once, every attempt run once, and
//! usage without gap or overlap.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::{api::Api, world::World};

/// What was found wrong over many jobs. The tests assert on the sums, so that a red run says how red.
#[derive(Debug, Default)]
pub struct Tally {
    pub jobs: u64,
    pub attempts: u64,
    pub lines: u64,
    pub lost: u64,
    pub doubled: u64,
    /// Lines that nobody printed, or out of order.
    pub strange: u64,
    /// Attempts that ran never or more than once.
    pub misrun: u64,
    /// The first few, in words.
    pub words: Vec<String>,
}

impl Tally {
    pub fn add(&mut self, other: Tally) {
        self.jobs += other.jobs;
        self.attempts += other.attempts;
        self.lines += other.lines;
        self.lost += other.lost;
        self.doubled += other.doubled;
        self.strange += other.strange;
        self.misrun += other.misrun;
        self.words.extend(other.words);
        self.words.truncate(20);
    }

    pub fn is_clean(&self) -> bool {
        self.lost + self.doubled + self.strange + self.misrun == 0 && self.words.is_empty()
    }

    fn fault(&mut self, words: String) {
        self.words.push(words);
    }
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} jobs, {} attempts, {} lines: lost {}, doubled {}, out of place {}, attempts not run once {}",
            self.jobs, self.attempts, self.lines, self.lost, self.doubled, self.strange, self.misrun
        )?;
        self.words.iter().try_for_each(|words| write!(f, "\n  {words}"))
    }
}

/// Where replicas write down that they ran: the one trace that Trainyard has no hand in.
pub struct Witness(PathBuf);

impl Witness {
    pub fn new(world: &World) -> Self {
        let path = world.data().join("ran");
        std::fs::write(&path, "").expect("a file");
        // Replicas have an account of their own where the tests run as root.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(&path, open).expect("the file opens");
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// How often each attempt ran, by its id.
    pub fn runs(&self) -> HashMap<String, u64> {
        let text = std::fs::read_to_string(&self.0).expect("the file");
        let mut runs = HashMap::new();
        for attempt in text.lines() {
            *runs.entry(attempt.to_owned()).or_default() += 1;
        }
        runs
    }
}

/// A job whose one replica prints `lines` numbered lines on each stream, `burst` of them at a time.
pub fn printer(name: &str, lines: u32, burst: u32, pause: f64, code: i32, witness: &Witness) -> Value {
    let script = format!(
        "echo \"$TRAINYARD_ATTEMPT_ID\" >>{witness}\n\
         i=0\n\
         while [ $i -lt {lines} ]; do\n\
           i=$((i+1))\n\
           echo \"out $i\"\n\
           echo \"err $i\" >&2\n\
           [ $((i % {burst})) -ne 0 ] || sleep {pause}\n\
         done\n\
         exit {code}",
        witness = witness.path().display()
    );
    json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": name,
        "roles": [{ "name": "worker", "command": ["sh", "-c", script], "resources": { "cpu": "100m" } }],
        "restart": { "max": 0 }, "stop": { "grace": "5s" }
    })
}

/// Checks one ended job of a [`printer`] whole.
pub async fn check(api: &Api, id: &str, lines: u32, runs: &HashMap<String, u64>) -> Tally {
    let mut tally = Tally {
        jobs: 1,
        ..Tally::default()
    };
    let job = api.job(id).await;
    let attempts = stored(api, id).await;
    for attempt in &attempts {
        tally.attempts += 1;
        let number = attempt["number"].as_i64().expect("a number");
        let ran = runs.get(attempt["id"].as_str().expect("an id")).copied().unwrap_or(0);
        if ran != 1 {
            tally.misrun += 1;
            tally.fault(format!("{id} attempt {number} ran {ran} times: {attempt}"));
        }
        for (stream, word) in [("stdout", "out"), ("stderr", "err")] {
            let found = api.lines(id, number, 0, stream).await;
            compare(
                &mut tally,
                &format!("{id} attempt {number} {stream}"),
                &found,
                word,
                lines,
            );
        }
    }
    check_usage(api, &job, &attempts, &mut tally).await;
    tally
}

/// The attempts of an ended job, once all they wrote is stored.
pub async fn stored(api: &Api, id: &str) -> Vec<Value> {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        let attempts = api.attempts(id).await;
        if attempts.iter().all(|attempt| !attempt["output_stored_at"].is_null()) {
            return attempts;
        }
        assert!(
            Instant::now() < deadline,
            "the output of {id} is not stored: {attempts:#?}"
        );
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

pub fn compare(tally: &mut Tally, whose: &str, found: &[String], word: &str, lines: u32) {
    let mut seen = vec![0u64; lines as usize + 1];
    let mut last = 0;
    let before = (tally.lost, tally.doubled, tally.strange);
    for line in found {
        tally.lines += 1;
        let number = line
            .strip_prefix(word)
            .and_then(|rest| rest.trim_start().parse::<usize>().ok());
        match number.filter(|number| (1..=lines as usize).contains(number)) {
            Some(number) => {
                seen[number] += 1;
                tally.strange += u64::from(number < last);
                last = number;
            }
            None => {
                tally.strange += 1;
                tally.fault(format!("{whose}: nobody printed {line:?}"));
            }
        }
    }
    for times in &seen[1..] {
        tally.lost += u64::from(*times == 0);
        tally.doubled += times.saturating_sub(1);
    }
    let after = (tally.lost, tally.doubled, tally.strange);
    if after != before {
        let found = found.len();
        tally.fault(format!(
            "{whose}: {found} lines instead of {lines}; lost, doubled, out of place went from {before:?} to {after:?}"
        ));
    }
}

fn time(value: &Value) -> Option<DateTime<Utc>> {
    value.as_str().and_then(|text| text.parse().ok())
}

/// Intervals touch each other from submission to end, and sum to replicas times running time.
async fn check_usage(api: &Api, job: &Value, attempts: &[Value], tally: &mut Tally) {
    let id = job["id"].as_str().expect("an id");
    let mut intervals = api.all(&format!("/api/v1/jobs/{id}/usage")).await;
    intervals.sort_by_key(|interval| (time(&interval["from"]), time(&interval["to"])));
    let mut until = time(&job["created_at"]);
    for interval in &intervals {
        if time(&interval["from"]) != until {
            tally.fault(format!("{id}: a gap or an overlap before {interval}: {intervals:#?}"));
        }
        until = time(&interval["to"]);
    }
    if until.is_none() || until != time(&job["ended_at"]) {
        tally.fault(format!("{id}: usage ends at {until:?}, the job at {}", job["ended_at"]));
    }
    let replicas = job["replicas"].as_f64().expect("replicas");
    let mut ran = 0.0;
    for attempt in attempts {
        if let Some((from, to)) = time(&attempt["running_at"]).zip(time(&attempt["ended_at"])) {
            ran += (to - from).as_seconds_f64() * replicas;
        }
    }
    let totals = api.get(&format!("/api/v1/jobs/{id}/usage")).await["totals"].clone();
    let told = totals["replica_seconds"].as_f64().expect("a sum");
    if (told - ran).abs() > 1.0 {
        tally.fault(format!(
            "{id}: usage says {told} replica seconds, attempts ran {ran}: {intervals:#?}"
        ));
    }
}
