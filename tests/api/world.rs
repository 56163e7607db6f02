//! An installation with its people, and a client that speaks to its router.

use std::sync::Arc;

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode, header},
};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;
use trainyard::{
    actions::{bootstrap, tokens::Secret},
    clock::{Clock, SystemClock},
    db::{Db, partitions, tokens},
    keys::KeyFile,
    web::{self, Settings, WebState},
};
use trainyard_core::model::{TokenId, UserId};
use uuid::Uuid;

use crate::support::postgres::{TestDb, database};

pub struct World {
    pub state: WebState,
    pub router: Router,
    pub admin: Person,
    pub team: String,
    pub installation: Uuid,
    stop: CancellationToken,
    _keys: tempfile::TempDir,
    pub test_db: TestDb,
}

/// Somebody with a token.
#[derive(Debug, Clone)]
pub struct Person {
    pub user: UserId,
    pub token: String,
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The same answer, if it has this status.
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self
    }

    /// The code of a problem.
    pub fn code(&self) -> String {
        assert_eq!(self.header("content-type"), "application/problem+json", "{}", self.text);
        let problem = self.json();
        assert_eq!(problem["status"], self.status.as_u16());
        assert!(problem["request_id"].is_string() && problem["title"].is_string() && problem["detail"].is_string());
        problem["code"].as_str().unwrap().to_owned()
    }
}

/// A request in the making.
pub struct Ask<'a> {
    world: &'a World,
    request: axum::http::request::Builder,
    body: Body,
}

impl<'a> Ask<'a> {
    pub fn by(mut self, person: &Person) -> Self {
        self.request = self
            .request
            .header(header::AUTHORIZATION, format!("Bearer {}", person.token));
        self
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.request = self.request.header(name, value);
        self
    }

    pub fn json(self, body: Value) -> Self {
        self.body("application/json", body.to_string())
    }

    pub fn yaml(self, body: &str) -> Self {
        self.body("application/yaml", body.to_owned())
    }

    pub fn body(mut self, kind: &str, body: impl Into<Body>) -> Self {
        self.request = self.request.header(header::CONTENT_TYPE, kind);
        self.body = body.into();
        self
    }

    pub async fn send(self) -> Answer {
        let request = self.request.body(self.body).unwrap();
        let response = self.world.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let live = parts
            .headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind == "text/event-stream");
        let bytes = match live {
            // A live stream has no end; whoever wants to read one uses `stream`.
            true => Default::default(),
            false => axum::body::to_bytes(body, usize::MAX).await.unwrap(),
        };
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8_lossy(&bytes).into_owned(),
        }
    }

    /// The body as it comes.
    pub async fn stream(self) -> axum::body::BodyDataStream {
        let request = self.request.body(self.body).unwrap();
        let response = self.world.router.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body().into_data_stream()
    }
}

impl World {
    pub async fn new() -> Self {
        Self::with(Settings::default()).await
    }

    pub async fn with(settings: Settings) -> Self {
        let test_db = database().await;
        let db = test_db.db.clone();
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        partitions::ensure(&db, clock.now()).await.unwrap();
        let welcome = bootstrap::first_start(&db, clock.now()).await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let keys = Arc::new(KeyFile::open_or_create(&folder.path().join("keys"), &mut rand::rng()).unwrap());
        let token = bootstrap::local_token(&db, &welcome, clock.now()).await.unwrap();
        let stop = CancellationToken::new();
        let state = WebState::new(db, clock, keys, settings, stop.clone());
        tokio::spawn(state.clone().run(stop.clone()));
        let mut world = Self {
            router: web::router(state.clone()),
            state,
            admin: Person {
                user: welcome.user,
                token: token.expose_secret().to_owned(),
            },
            team: String::new(),
            installation: welcome.installation,
            stop,
            _keys: folder,
            test_db,
        };
        let teams = world
            .get("/api/v1/teams")
            .by(&world.admin)
            .send()
            .await
            .expect(200)
            .json();
        world.team = teams["items"][0]["id"].as_str().unwrap().to_owned();
        world
    }

    pub fn db(&self) -> &Db {
        &self.test_db.db
    }

    pub fn ask(&self, method: Method, path: &str) -> Ask<'_> {
        Ask {
            world: self,
            request: Request::builder().method(method).uri(path),
            body: Body::empty(),
        }
    }

    pub fn get(&self, path: &str) -> Ask<'_> {
        self.ask(Method::GET, path)
    }

    pub fn post(&self, path: &str) -> Ask<'_> {
        self.ask(Method::POST, path)
    }

    /// A new person, in a team if a role is named.
    pub async fn person(&self, name: &str, team: &str, role: Option<&str>) -> Person {
        let made = self
            .post("/api/v1/users")
            .by(&self.admin)
            .json(json!({ "name": name }))
            .send()
            .await
            .expect(201);
        let user: UserId = made.json()["id"].as_str().unwrap().parse().unwrap();
        if let Some(role) = role {
            let path = format!("/api/v1/teams/{team}/members/{user}");
            self.ask(Method::PUT, &path)
                .by(&self.admin)
                .json(json!({ "role": role }))
                .send()
                .await
                .expect(200);
        }
        Person {
            user,
            token: self.token(user, "owner").await,
        }
    }

    /// A token of somebody's, as signing in and asking for one would make it.
    pub async fn token(&self, user: UserId, role: &str) -> String {
        let secret = Secret::token();
        let token = tokens::NewToken {
            id: TokenId(Uuid::now_v7()),
            hash: secret.hash,
            user,
            name: "test",
            team: None,
            role,
            parent: None,
            expires_at: None,
        };
        let mut tx = self.db().begin().await.unwrap();
        tokens::insert(&mut tx, &token, self.state.actions.now()).await.unwrap();
        tx.commit().await.unwrap();
        secret.shown.expose_secret().to_owned()
    }

    pub async fn make_team(&self, name: &str) -> String {
        let made = self
            .post("/api/v1/teams")
            .by(&self.admin)
            .json(json!({ "name": name }))
            .send()
            .await
            .expect(201);
        made.json()["id"].as_str().unwrap().to_owned()
    }

    /// Submits and answers the job.
    pub async fn submit(&self, person: &Person, document: Value) -> Value {
        self.post("/api/v1/jobs")
            .by(person)
            .json(document)
            .send()
            .await
            .expect(201)
            .json()
    }

    /// One number out of the database.
    /// Waits until a count is what it should come to.
    pub async fn comes_to(&self, expected: i64, query: &'static str) {
        for _ in 0..600 {
            if self.count(query).await == expected {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
        assert_eq!(self.count(query).await, expected, "after 30 s: {query}");
    }

    pub async fn count(&self, query: &'static str) -> i64 {
        sqlx::query_scalar(query).fetch_one(self.db().pool()).await.unwrap()
    }

    pub async fn run(&self, statement: &str) {
        sqlx::raw_sql(sqlx::AssertSqlSafe(statement.to_owned()))
            .execute(self.db().pool())
            .await
            .unwrap();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// The smallest job.
pub fn hello(name: &str) -> Value {
    json!({
        "apiVersion": "trainyard.dev/v1",
        "kind": "Job",
        "name": name,
        "roles": [{ "name": "worker", "replicas": 2, "command": ["echo", "hello"] }]
    })
}

/// The UUID behind an id.
pub fn raw(id: &str) -> Uuid {
    use trainyard_core::model::{AttemptId, ClusterId, JobId, NodeId, TeamId};
    let of = |uuid: Option<Uuid>| uuid;
    of(id.parse::<JobId>().ok().map(|id| id.0))
        .or(id.parse::<TeamId>().ok().map(|id| id.0))
        .or(id.parse::<ClusterId>().ok().map(|id| id.0))
        .or(id.parse::<NodeId>().ok().map(|id| id.0))
        .or(id.parse::<UserId>().ok().map(|id| id.0))
        .or(id.parse::<AttemptId>().ok().map(|id| id.0))
        .unwrap_or_else(|| panic!("{id} is no id"))
}
