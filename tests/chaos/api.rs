//! The REST API as a client that comes back when it is told to.

use std::time::{Duration, Instant};

use reqwest::{Method, Response, StatusCode};
use serde_json::Value;

/// Longer than any restart of what is behind the API may take, on a machine with other things to do.
const PATIENCE: Duration = Duration::from_secs(90);

#[derive(Clone)]
pub struct Api {
    client: reqwest::Client,
    base: String,
    pub token: String,
}

/// What one request met.
#[derive(Debug)]
pub enum Answer {
    Done(Value),
    /// 503 or 429; whether Retry-After was there.
    ComeBack {
        status: StatusCode,
        retry_after: bool,
    },
    /// The server was away: nobody knows whether the request was carried out.
    Broken,
}

impl Api {
    pub fn new(port: u16) -> Self {
        Self {
            client: trainyard::tls::client()
                .timeout(Duration::from_secs(60))
                .build()
                .expect("a client"),
            base: format!("http://127.0.0.1:{port}"),
            token: String::new(),
        }
    }

    /// Waits until the server answers and its database is there.
    pub async fn ready(&self) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Ok(answer) = self.client.get(format!("{}/readyz", self.base)).send().await
                && answer.status().is_success()
            {
                return;
            }
            assert!(Instant::now() < deadline, "the server does not become ready");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    pub async fn once(&self, method: Method, path: &str, key: Option<&str>, body: Option<&Value>) -> Answer {
        let mut request = self
            .client
            .request(method, format!("{}{path}", self.base))
            .bearer_auth(&self.token);
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let Ok(response) = request.send().await else {
            return Answer::Broken;
        };
        let status = response.status();
        if matches!(status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) {
            let retry_after = response.headers().contains_key("retry-after");
            return Answer::ComeBack { status, retry_after };
        }
        let Ok(text) = response.text().await else {
            return Answer::Broken;
        };
        assert!(status.is_success(), "{path}: {status} {text}");
        Answer::Done(serde_json::from_str(&text).unwrap_or(Value::Null))
    }

    /// Again and again until it is done.
    pub async fn until_done(&self, method: Method, path: &str, key: Option<&str>, body: Option<&Value>) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.once(method.clone(), path, key, body).await {
                Answer::Done(value) => return value,
                other => assert!(Instant::now() < deadline, "{path}: {other:?}"),
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub async fn get(&self, path: &str) -> Value {
        self.until_done(Method::GET, path, None, None).await
    }

    /// Submits once, whatever happens meanwhile, since the key says that it is the same request. Answers the id.
    pub async fn submit(&self, document: &Value) -> String {
        let key = uuid::Uuid::new_v4().to_string();
        let job = self
            .until_done(Method::POST, "/api/v1/jobs", Some(&key), Some(document))
            .await;
        job["id"].as_str().expect("an id").to_owned()
    }

    pub async fn job(&self, job: &str) -> Value {
        self.get(&format!("/api/v1/jobs/{job}")).await
    }

    /// Waits until a job is over, and answers it.
    pub async fn ended(&self, job: &str, patience: Duration) -> Value {
        self.until(job, patience, |job| !job["ended_at"].is_null()).await
    }

    pub async fn until(&self, job: &str, patience: Duration, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + patience;
        loop {
            let found = self.job(job).await;
            if wanted(&found) {
                return found;
            }
            assert!(Instant::now() < deadline, "it never came: {found:#}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Every item of a list, over all its pages.
    pub async fn all(&self, path: &str) -> Vec<Value> {
        let sign = if path.contains('?') { '&' } else { '?' };
        let mut items = Vec::new();
        let mut cursor = String::new();
        loop {
            let page = self.get(&format!("{path}{sign}limit=200{cursor}")).await;
            items.extend(page["items"].as_array().expect("items").iter().cloned());
            match page["next"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return items,
            }
        }
    }

    /// Any address's status and text; with a cookie as a browser asks, otherwise with the token.
    pub async fn text(&self, path: &str, cookie: Option<&str>) -> (u16, String) {
        let request = self.client.get(format!("{}{path}", self.base));
        let request = match cookie {
            Some(cookie) => request.header("cookie", cookie).header("accept", "text/html"),
            None => request.bearer_auth(&self.token),
        };
        let answer = request.send().await.expect("an answer");
        (answer.status().as_u16(), answer.text().await.expect("a body"))
    }

    /// Uses a one-time link up, and answers the session's cookie.
    pub async fn sign_in(&self, link: &str) -> String {
        let client = trainyard::tls::client()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .expect("a client");
        let request = client.post(format!("{}/sign-in", self.base));
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        let answer = request.body(format!("link={link}")).send().await.expect("an answer");
        let cookie = answer
            .headers()
            .get("set-cookie")
            .and_then(|cookie| cookie.to_str().ok());
        let cookie = cookie.unwrap_or_else(|| panic!("no session: {}", answer.status()));
        cookie.split(';').next().unwrap_or_default().to_owned()
    }

    pub async fn attempts(&self, job: &str) -> Vec<Value> {
        self.all(&format!("/api/v1/jobs/{job}/attempts")).await
    }

    /// The lines of one stream of one attempt, as a download has them.
    pub async fn lines(&self, job: &str, attempt: i64, rank: i64, stream: &str) -> Vec<String> {
        let path = format!("{}/api/v1/jobs/{job}/logs/download", self.base);
        let query = format!("attempt={attempt}&rank={rank}&stream={stream}");
        let deadline = Instant::now() + PATIENCE;
        loop {
            let request = self.client.get(format!("{path}?{query}")).bearer_auth(&self.token);
            let sent = request.header("accept", "application/octet-stream").send().await;
            if let Ok(text) = whole(sent).await {
                return text.lines().map(str::to_owned).collect();
            }
            assert!(Instant::now() < deadline, "{job}: no download");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Follows a job's output, as an open page does, until the future is dropped.
    pub async fn follow(&self, job: &str) {
        loop {
            let request = self.client.get(format!("{}/api/v1/jobs/{job}/logs/follow", self.base));
            let request = request.bearer_auth(&self.token).header("accept", "text/event-stream");
            if let Ok(mut answer) = request.timeout(Duration::from_secs(600)).send().await {
                while let Ok(Some(_)) = answer.chunk().await {}
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
}

async fn whole(sent: Result<Response, reqwest::Error>) -> Result<String, reqwest::Error> {
    sent?.error_for_status()?.text().await
}
