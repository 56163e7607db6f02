//! A secret that a job prints, whose job fails and is cloned: afterwards its value is nowhere.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgConnection};
use trainyard::{actions::bootstrap, db::Db};

use crate::{books, world::World};

/// It has characters that every kind of encoding writes in its own way.
const SECRET: &str = "s3cret+Value/with&signs=7f3a";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_printed_secret_is_found_nowhere() {
    let world = World::new(1, &[]).await;
    let api = &world.api;
    for value in ["the value that was replaced", SECRET] {
        api.put("/api/v1/secrets/wandb", &json!({ "values": { "api-key": value } }))
            .await;
    }
    let (half, rest) = SECRET.split_at(9);
    let token = world.data().join("token");
    std::fs::write(&token, "").expect("a file");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(&token, open).expect("the file opens");
    let script = format!(
        "printf '%s' \"$TRAINYARD_TOKEN\" >{token}; echo \"my token is $TRAINYARD_TOKEN\"; echo \"the key is $KEY\"; echo \"$KEY$KEY\" >&2; printf '%s' '{half}'; sleep 2; printf '%s\\n' '{rest}'; \
         printf 'step=1 loss=1 %s' \"$KEY\"; echo \"Error: login with $KEY failed\" >&2; exit 3",
        token = token.display()
    )
    // The document itself must not hold it, so the halves come from the environment.
    .replace(&format!("'{half}'"), "\"${KEY%${KEY#?????????}}\"")
    .replace(&format!("'{rest}'"), "\"${KEY#?????????}\"");
    let document = json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "talks",
        "roles": [{ "name": "worker", "command": ["sh", "-c", script] }],
        "env": { "KEY": { "secretRef": { "name": "wandb", "key": "api-key" } } },
    });
    assert!(!document.to_string().contains(SECRET));
    let first = api.submit(&document).await;
    let ended = api.ended(&first, Duration::from_secs(90)).await;
    assert_eq!(ended["phase"], "failed", "{ended:#}");
    let cloned = api.post(&format!("/api/v1/jobs/{first}/rerun"), &json!({})).await;
    let second = cloned["id"].as_str().expect("an id").to_owned();
    api.ended(&second, Duration::from_secs(90)).await;
    let mut searched = Vec::new();
    for job in [&first, &second] {
        books::stored(api, job).await;
        let lines = api.lines(job, 1, 0, "stdout").await;
        assert!(lines.iter().any(|line| line == "the key is ***"), "{lines:?}");
        assert!(lines.iter().any(|line| line == "my token is ***"), "{lines:?}");
        let paths = [
            "",
            "/attempts",
            "/attempts/1",
            "/post-mortem",
            "/replicas",
            "/events",
            "/why",
            "/usage",
            "/metrics",
            "/checkpoints",
            "/conditions",
            "/clone",
            "/logs",
            "/logs?raw=true",
            "/logs/streams",
            "/logs/search?text=key",
            "/incarnations",
        ];
        for path in paths {
            let (status, text) = api.text(&format!("/api/v1/jobs/{job}{path}"), None).await;
            assert_ne!(status, 401, "{path}");
            searched.push((format!("API {status} {path}"), text));
        }
    }
    for path in ["/api/v1/jobs", "/api/v1/audit", "/api/v1/secrets", "/api/v1/nodes"] {
        searched.push((format!("API {path}"), api.text(path, None).await.1));
    }
    let cookie = sign_in(&world).await;
    let answers = searched.len();
    for job in [&first, &second] {
        for path in ["", "/logs", "/logs?raw=true", "/first-error", "/rerun", "/cancel"] {
            let (status, text) = api.text(&format!("/jobs/{job}{path}"), Some(&cookie)).await;
            assert!(status < 400 || path == "/cancel", "page {path}: {status}");
            searched.push((format!("page {status} {path}"), text));
        }
    }
    for path in ["/jobs", "/search?q=key", "/nodes", "/clusters", "/settings"] {
        searched.push((format!("page {path}"), api.text(path, Some(&cookie)).await.1));
    }
    let pages = searched.len() - answers;
    let rows = every_row(&world, &mut searched).await;
    let chunks = every_chunk(&world, &mut searched).await;
    searched.push(("the program's log".to_owned(), world.log()));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let encoded = percent_encoding::utf8_percent_encode(SECRET, percent_encoding::NON_ALPHANUMERIC).to_string();
    let token = std::fs::read_to_string(&token).expect("the last attempt's token");
    assert!(token.starts_with("tyj_"), "{token:?}");
    let forms = [
        hex(token.as_bytes()),
        token,
        SECRET.to_owned(),
        hex(SECRET.as_bytes()),
        encoded,
        SECRET.replace('&', "&amp;"),
        SECRET.replace('&', "\\u0026"),
        data_encoding::BASE64.encode(SECRET.as_bytes()),
    ];
    let finds: Vec<&String> = searched
        .iter()
        .filter(|(_, text)| forms.iter().any(|form| text.contains(form)))
        .map(|(place, _)| place)
        .collect();
    println!(
        "{answers} answers of the API, {pages} pages, {rows} rows, {chunks} chunks: {} finds",
        finds.len()
    );
    assert!(finds.is_empty(), "{finds:?}");
    assert!(chunks >= 4 && rows > 100, "too little was looked at");
}

/// As a browser does it with a one-time link.
async fn sign_in(world: &World) -> String {
    let mut database = world.database().await;
    let user: uuid::Uuid = sqlx::query_scalar("select id from users")
        .fetch_one(&mut database)
        .await
        .expect("a user");
    let url = world.postgres.as_ref().expect("a Postgres").url();
    let db = Db::lazy(url.parse().expect("a URL"), 1);
    let link = bootstrap::signin_link(&db, trainyard_core::model::UserId(user), chrono::Utc::now()).await;
    world.api.sign_in(&link.expect("a link")).await
}

/// Every row of every table, as text. What is in chunks and other bytes is there in hexadecimal.
async fn every_row(world: &World, searched: &mut Vec<(String, String)>) -> usize {
    let mut database = world.database().await;
    let tables: Vec<String> = sqlx::query_scalar("select tablename::text from pg_tables where schemaname = 'public'")
        .fetch_all(&mut database)
        .await
        .expect("tables");
    let mut count = 0;
    for table in tables {
        let rows: Vec<String> = every(
            &mut database,
            &format!("select row_to_json(t)::text from \"{table}\" t"),
        )
        .await;
        count += rows.len();
        searched.extend(rows.into_iter().map(|row| (format!("table {table}"), row)));
    }
    count
}

async fn every(database: &mut PgConnection, statement: &str) -> Vec<String> {
    sqlx::query_scalar(AssertSqlSafe(statement.to_owned()))
        .fetch_all(database)
        .await
        .expect("rows")
}

/// Every chunk of output, decompressed.
async fn every_chunk(world: &World, searched: &mut Vec<(String, String)>) -> usize {
    let mut database = world.database().await;
    let chunks: Vec<(String, Vec<u8>)> = sqlx::query_as("select codec, data from log_chunks where data is not null")
        .fetch_all(&mut database)
        .await
        .expect("chunks");
    let count = chunks.len();
    for (codec, data) in chunks {
        let bytes = match codec.as_str() {
            "zstd" => zstd::decode_all(&data[..]).expect("a chunk"),
            _ => data,
        };
        searched.push(("a chunk".to_owned(), String::from_utf8_lossy(&bytes).into_owned()));
    }
    count
}

impl crate::api::Api {
    pub async fn put(&self, path: &str, body: &Value) -> Value {
        self.until_done(reqwest::Method::PUT, path, None, Some(body)).await
    }

    pub async fn post(&self, path: &str, body: &Value) -> Value {
        self.until_done(reqwest::Method::POST, path, None, Some(body)).await
    }
}
