//! Headless Chromium, driven through chromedriver. Both are children of the test and die with it.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use serde_json::{Value, json};

pub struct Browser {
    driver: Child,
    http: reqwest::Client,
    session: String,
}

impl Browser {
    pub async fn start() -> Self {
        // Both die with the test, even if it is killed: the driver by the kernel's word, the browser when its pipe closes.
        let mut driver = Command::new("setpriv")
            .args(["--pdeathsig", "TERM", "chromedriver", "--port=0"])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("chromedriver is missing: install the package chromium-driver");
        let mut said = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = loop {
            let line = said.next().expect("chromedriver ended early").unwrap();
            if let Some(rest) = line.split("started successfully on port ").nth(1) {
                break rest.trim_end_matches('.').to_owned();
            }
        };
        // What it prints later must not fill the pipe.
        std::thread::spawn(move || said.for_each(drop));
        let http = trainyard::tls::client().build().expect("a client");
        let base = format!("http://127.0.0.1:{port}/session");
        let arguments = [
            "--headless=new",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--hide-scrollbars",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--force-color-profile=srgb",
        ];
        let answer: Value = http
            .post(&base)
            .json(&json!({ "capabilities": { "alwaysMatch": {
                "browserName": "chrome",
                "goog:chromeOptions": { "args": arguments },
                "goog:loggingPrefs": { "browser": "ALL" },
                "unhandledPromptBehavior": "accept",
                // A look at 5,000 cells takes long on a machine that does other things as well.
                "timeouts": { "script": 300_000 },
            } } }))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let id = answer["value"]["sessionId"]
            .as_str()
            .unwrap_or_else(|| panic!("no session: {answer}"));
        Self {
            driver,
            http,
            session: format!("{base}/{id}"),
        }
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let answer: Value = self
            .http
            .post(format!("{}/{path}", self.session))
            .json(&body)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert!(answer["value"]["error"].is_null(), "{path}: {}", answer["value"]);
        answer["value"].clone()
    }

    pub async fn cdp(&self, command: &str, parameters: Value) -> Value {
        self.post("goog/cdp/execute", json!({ "cmd": command, "params": parameters }))
            .await
    }

    pub async fn look(&self, theme: &str, width: u32) {
        self.cdp(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": theme }] }),
        )
        .await;
        self.cdp(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": if width < 700 { 844 } else { 900 }, "deviceScaleFactor": 1, "mobile": false }),
        )
        .await;
    }

    pub async fn open(&self, url: &str) {
        self.post("url", json!({ "url": url })).await;
    }

    pub async fn run(&self, script: &str) -> Value {
        self.post("execute/sync", json!({ "script": script, "args": [] })).await
    }

    /// Looks until a script's expression holds, for two minutes at most: a busy machine is slow.
    pub async fn until(&self, what: &str, expression: &str) {
        let patience = Instant::now() + Duration::from_secs(120);
        while self.run(&format!("return Boolean({expression})")).await != true {
            let here = async || self.run("return location.href + '\\n' + document.body.innerText").await;
            assert!(
                Instant::now() < patience,
                "not so after two minutes: {what}\n{}",
                here().await
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn run_async(&self, script: &str) -> Value {
        self.post("execute/async", json!({ "script": script, "args": [] }))
            .await
    }

    pub async fn press(&self, keys: &str) {
        let actions: Vec<Value> = keys
            .chars()
            .flat_map(|key| {
                [
                    json!({ "type": "keyDown", "value": key }),
                    json!({ "type": "keyUp", "value": key }),
                ]
            })
            .collect();
        self.post(
            "actions",
            json!({ "actions": [{ "type": "key", "id": "k", "actions": actions }] }),
        )
        .await;
    }

    /// What the console said since the last time that is an error or a refusal.
    pub async fn complaints(&self) -> Vec<String> {
        self.post("se/log", json!({ "type": "browser" }))
            .await
            .as_array()
            .into_iter()
            .flatten()
            .filter(|entry| entry["level"] == "SEVERE" || entry["level"] == "WARNING")
            .map(|entry| entry["message"].as_str().unwrap_or_default().to_owned())
            .collect()
    }

    pub async fn screenshot(&self, file: &std::path::Path, whole: bool) {
        let shot = self
            .cdp(
                "Page.captureScreenshot",
                json!({ "format": "png", "captureBeyondViewport": whole }),
            )
            .await;
        let bytes = data_encoding::BASE64
            .decode(shot["data"].as_str().unwrap().as_bytes())
            .unwrap();
        std::fs::write(file, bytes).unwrap();
    }

    pub async fn quit(mut self) {
        let _ = self.http.delete(&self.session).send().await;
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // A failed test skips `quit`: chromedriver ends its browser when it is asked to end by a signal.
        let pid = nix::unistd::Pid::from_raw(self.driver.id() as i32);
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.driver.wait();
    }
}
