//! One installation, and a person in front of it: the command line, the API and a signed-in browser.

use std::{
    path::PathBuf,
    process::Stdio,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use crate::world::World;

/// More than any example takes on a machine with other things to do.
pub const PATIENCE: Duration = Duration::from_secs(240);

pub struct Yard {
    pub world: World,
    /// The cookie of a browser that used the one-time link.
    cookie: String,
}

/// A committed example, with some of its text replaced.
pub fn example(name: &str, changes: &[(&str, &str)]) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{name}/job.yaml"));
    let mut text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    for (old, new) in changes {
        assert!(text.contains(old), "examples/{name}/job.yaml has no '{old}' any more");
        text = text.replacen(old, new, 1);
    }
    text
}

/// A job of one role and one shell command.
pub fn shell(name: &str, cpu: &str, script: &str, more: Value) -> String {
    let mut document = json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": name,
        "roles": [{ "name": "worker", "command": ["sh", "-c", script], "resources": { "cpu": cpu } }],
        "stop": { "grace": "1s" },
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        document[field] = value.clone();
    }
    document.to_string()
}

impl Yard {
    pub async fn open() -> Self {
        let world = World::new(1, &[]).await;
        let mut yard = Self {
            world,
            cookie: String::new(),
        };
        let said = yard.run("token", &["link"], "");
        let link = said.split_whitespace().find_map(|word| word.split_once("/sign-in/"));
        let link = link.unwrap_or_else(|| panic!("no link: {said}")).1.to_owned();
        yard.cookie = yard.world.api.sign_in(&link).await;
        yard
    }

    /// `trainyard submit -f -`. Answers the job's id.
    pub fn submit(&self, document: &str) -> String {
        let created = self.run("submit", &["-o", "json", "-f", "-"], document);
        let created: Value = serde_json::from_str(&created).unwrap_or_else(|error| panic!("{error}: {created}"));
        created["id"].as_str().expect("an id").to_owned()
    }

    /// What a command of the program prints.
    pub fn run(&self, part: &str, arguments: &[&str], input: &str) -> String {
        let file = self.world.data().join("input");
        std::fs::write(&file, input).expect("a file");
        let mut command = self.world.command(part);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(std::fs::File::open(&file).expect("a file"));
        let done = command.output().expect("it runs");
        let (said, errors) = (text(&done.stdout), text(&done.stderr));
        assert!(done.status.success(), "trainyard {part}: {said}{errors}");
        said
    }

    pub async fn get(&self, job: &str, what: &str) -> Value {
        self.world.api.get(&format!("/api/v1/jobs/{job}/{what}")).await
    }

    pub async fn ask(&self, method: reqwest::Method, path: &str, body: Option<&Value>) -> Value {
        self.world.api.until_done(method, path, None, body).await
    }

    pub async fn cancel(&self, job: &str) {
        let path = format!("/api/v1/jobs/{job}/cancel");
        self.ask(reqwest::Method::POST, &path, Some(&json!({}))).await;
    }

    /// The job once it has ended and everything that it printed is stored.
    pub async fn ended(&self, job: &str) -> Value {
        let ended = self.world.api.ended(job, PATIENCE).await;
        let deadline = Instant::now() + PATIENCE;
        loop {
            let attempts = self.world.api.attempts(job).await;
            if attempts.iter().all(|attempt| !attempt["output_stored_at"].is_null()) {
                return ended;
            }
            assert!(Instant::now() < deadline, "its output is not stored: {attempts:#?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub async fn succeeded(&self, job: &str) {
        let ended = self.ended(job).await;
        assert_eq!(ended["phase"], "succeeded", "{ended:#}");
        let attempts = self.world.api.attempts(job).await;
        assert_eq!(attempts.len(), 1, "{attempts:#?}");
    }

    pub async fn lines(&self, job: &str, rank: i64) -> Vec<String> {
        self.world.api.lines(job, 1, rank, "stdout").await
    }

    /// What a rank printed after these words.
    pub async fn said(&self, job: &str, rank: i64, words: &str) -> String {
        let lines = self.lines(job, rank).await;
        let found = lines.iter().find_map(|line| line.strip_prefix(words));
        found
            .unwrap_or_else(|| panic!("rank {rank} of {job} never said '{words}': {lines:#?}"))
            .to_owned()
    }

    /// A page's words, without its markup, as one line.
    pub async fn page(&self, path: &str) -> String {
        let (status, html) = self.world.api.text(path, Some(&self.cookie)).await;
        assert_eq!(status, 200, "{path}: {html}");
        words(&html)
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn words(html: &str) -> String {
    let mut words = String::new();
    for part in html.split('<') {
        // Tags inside a sentence leave no gap; a block's are followed by white space anyway.
        words.push_str(part.split_once('>').map_or(part, |(_, text)| text));
    }
    for (entity, character) in [
        ("&#39;", "'"),
        ("&#34;", "\""),
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#38;", "&"),
    ] {
        words = words.replace(entity, character);
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
