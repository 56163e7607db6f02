//! What every request has in common: forms of refusal, headers, limits, health.

use std::time::Duration;

use axum::http::Method;
use serde_json::json;
use trainyard::web::{Settings, admission::Bound, rate::Limit};

use crate::world::{World, hello};

#[tokio::test]
async fn every_refusal_has_its_form() {
    let world = World::new().await;
    let unknown = world.get("/api/v1/trains").send().await.expect(404);
    assert_eq!(unknown.code(), "no_route");
    let method = world
        .ask(Method::PUT, "/api/v1/jobs")
        .by(&world.admin)
        .send()
        .await
        .expect(405);
    assert_eq!(method.code(), "method_not_allowed");
    let allow = method.header("allow").to_owned();
    assert!(allow.contains("GET") && allow.contains("POST"), "{allow}");
    let accept = world
        .get("/api/v1/jobs")
        .by(&world.admin)
        .header("accept", "image/png")
        .send()
        .await
        .expect(406);
    assert_eq!(accept.code(), "not_acceptable");
    let media = world
        .post("/api/v1/jobs")
        .by(&world.admin)
        .body("text/html", "<p>")
        .send()
        .await
        .expect(415);
    assert_eq!(media.code(), "unsupported_media_type");
    let none = world.get("/api/v1/jobs").send().await.expect(401);
    assert_eq!(
        (none.code().as_str(), none.header("www-authenticate")),
        ("unauthenticated", "Bearer")
    );
    let large = format!("{{\"x\": \"{}\"}}", "y".repeat(2 << 20));
    let large = world
        .post("/api/v1/jobs")
        .by(&world.admin)
        .body("application/json", large)
        .send()
        .await
        .expect(413);
    assert_eq!(large.code(), "too_large");
    let broken = world
        .post("/api/v1/teams")
        .by(&world.admin)
        .body("application/json", "{\"name\": ")
        .send()
        .await;
    let broken = broken.expect(422).json();
    assert_eq!(
        (&broken["errors"][0]["code"], &broken["errors"][0]["line"]),
        (&json!("syntax"), &json!(1))
    );
    let id = "job_00000000000000000000000000";
    assert_eq!(
        world
            .get(&format!("/api/v1/jobs/{id}"))
            .by(&world.admin)
            .send()
            .await
            .expect(404)
            .code(),
        "not_found"
    );
    assert_eq!(
        world
            .get("/api/v1/jobs/nonsense")
            .by(&world.admin)
            .send()
            .await
            .expect(404)
            .code(),
        "not_found"
    );
}

#[tokio::test]
async fn a_browser_gets_a_page_and_nothing_in_it_is_markup() {
    let world = World::new().await;
    let answer = world
        .get("/%3Cscript%3Ealert(1)%3C/script%3E")
        .header("accept", "text/html")
        .send()
        .await
        .expect(404);
    assert!(answer.header("content-type").starts_with("text/html"));
    assert!(!answer.text.contains("<script>"), "{}", answer.text);
    let api = world
        .get("/api/v1/jobs")
        .header("accept", "text/html,*/*")
        .send()
        .await
        .expect(401);
    assert_eq!(api.header("content-type"), "application/problem+json");
    let out = world
        .post("/sign-out")
        .header("accept", "text/html")
        .send()
        .await
        .expect(401);
    assert!(out.header("content-type").starts_with("text/html"));
}

#[tokio::test]
async fn headers_keep_browsers_from_harm_and_ids_come_back() {
    let world = World::new().await;
    let answer = world
        .get("/api/v1/me")
        .by(&world.admin)
        .header("x-request-id", "mine-7")
        .send()
        .await
        .expect(200);
    assert_eq!(answer.header("x-request-id"), "mine-7");
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert_eq!(answer.header("referrer-policy"), "same-origin");
    let policy = answer.header("content-security-policy");
    assert!(
        policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe-inline"),
        "{policy}"
    );
    let odd = world
        .get("/api/v1/me")
        .by(&world.admin)
        .header("x-request-id", "a b<c>")
        .send()
        .await;
    assert_eq!(odd.header("x-request-id").len(), 32);
    let problem = world
        .get("/api/v1/nothing")
        .header("x-request-id", "mine-8")
        .send()
        .await;
    assert_eq!(problem.json()["request_id"], "mine-8");
    for number in 0..30 {
        world.submit(&world.admin, hello(&format!("job-{number}"))).await;
    }
    let list = world
        .get("/api/v1/jobs")
        .by(&world.admin)
        .header("accept-encoding", "gzip")
        .send()
        .await
        .expect(200);
    assert_eq!(list.header("content-encoding"), "gzip");
}

#[tokio::test]
async fn documentation_is_served_without_inline_script() {
    let world = World::new().await;
    let index = world.get("/docs/index.html").send().await.expect(200);
    assert!(index.text.contains("swagger"), "{}", index.text);
    let inline = index
        .text
        .split("<script")
        .skip(1)
        .filter(|script| !script.split('>').next().unwrap().contains("src="));
    assert_eq!(inline.count(), 0, "{}", index.text);
    assert!(
        !index
            .header("content-security-policy")
            .contains("script-src 'self' 'unsafe-inline'")
    );
    world.get("/docs/swagger-ui.css").send().await.expect(200);
    world.get("/docs/nothing.js").send().await.expect(404);
    let document = world.get("/api/v1/openapi.json").send().await.expect(200).json();
    assert!(document["paths"]["/api/v1/jobs"]["post"].is_object());
    assert_eq!(
        world.get("/api/v1/schemas/job").send().await.expect(200).json()["title"],
        "JobDocument"
    );
}

#[tokio::test]
async fn health_needs_no_database_and_readiness_asks_it() {
    let world = World::new().await;
    world.get("/healthz").send().await.expect(200);
    let ready = world.get("/readyz").send().await.expect(200).json();
    assert_eq!((&ready["status"], &ready["schema"]), (&json!("ready"), &json!(1)));
    world.run("delete from _sqlx_migrations").await;
    assert_eq!(world.get("/readyz").send().await.expect(503).code(), "not_started");

    world.db().pool().close().await;
    world.get("/healthz").send().await.expect(200);
    for path in ["/readyz", "/api/v1/jobs"] {
        let away = world.get(path).by(&world.admin).send().await.expect(503);
        assert_eq!(away.code(), "database_unavailable");
        assert!(away.header("retry-after").parse::<u64>().is_ok());
        assert!(
            !away.text.to_lowercase().contains("pool") && !away.text.contains("sqlx"),
            "{}",
            away.text
        );
    }
}

#[tokio::test]
async fn callers_who_hurry_too_much_are_told_when_to_come_back() {
    let settings = Settings {
        rate: Limit {
            per_second: 0.001,
            burst: 20.0,
        },
        ..Settings::default()
    };
    let world = World::with(settings).await;
    let mut last = world.get("/api/v1/me").by(&world.admin).send().await;
    for _ in 0..20 {
        last = world.get("/api/v1/me").by(&world.admin).send().await;
    }
    assert_eq!(last.expect(429).code(), "rate_limited");
}

#[tokio::test]
async fn when_too_many_wait_the_rest_is_refused_early_and_the_gone_are_forgotten() {
    let settings = Settings {
        admission: Bound {
            at_once: 1,
            waiting: 1,
            patience: Duration::from_secs(60),
        },
        ..Settings::default()
    };
    let world = World::with(settings).await;
    let job = world.submit(&world.admin, hello("held")).await;
    let id = crate::world::raw(job["id"].as_str().unwrap());
    let path = format!("/api/v1/jobs/{}/cancel", job["id"].as_str().unwrap());
    // Somebody holds the job's row, so the first wish has to wait inside and the second in the line.
    let mut holder = world.db().begin().await.unwrap();
    sqlx::query("select 1 from jobs where id = $1 for update")
        .bind(id)
        .execute(&mut *holder)
        .await
        .unwrap();
    let mut first = Box::pin(world.post(&path).by(&world.admin).send());
    let mut second = Box::pin(world.post(&path).by(&world.admin).send());
    let waiting =
        "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while world.count(waiting).await == 0 {
        assert!(tokio::time::Instant::now() < deadline, "the first wish reaches the row");
        assert!(
            tokio::time::timeout(Duration::from_millis(5), &mut first)
                .await
                .is_err()
        );
    }
    assert!(futures::poll!(&mut second).is_pending());
    let third = world.get("/api/v1/me").by(&world.admin).send().await.expect(503);
    assert_eq!(
        (third.code().as_str(), third.header("retry-after")),
        ("overloaded", "1")
    );
    world.get("/healthz").send().await.expect(200);
    // The clients go away: what they asked for is dropped, and their places are free.
    drop(first);
    drop(second);
    world.get("/api/v1/me").by(&world.admin).send().await.expect(200);
    holder.rollback().await.unwrap();
    assert_eq!(
        world.count("select count(*) from jobs where wanted = 'run'").await,
        1,
        "nobody's wish was written"
    );
}

/// Every fault of a body as `code path value`.
async fn faults(world: &World, method: Method, path: &str, body: &str) -> (Vec<String>, String) {
    let ask = world.ask(method, path).by(&world.admin).header("if-match", "*");
    let answer = ask.body("application/json", body.to_owned()).send().await.expect(422);
    assert_eq!(answer.code(), "invalid_body");
    let told = answer.json()["errors"].as_array().unwrap().clone();
    let told = told.iter().map(|fault| {
        let words = [&fault["code"], &fault["path"], &fault["value"]];
        words.map(|word| word.as_str().unwrap_or("-")).join(" ")
    });
    (told.collect(), answer.text)
}

#[tokio::test]
async fn all_faults_of_any_body_come_at_once_with_field_value_and_way_out() {
    let world = World::new().await;
    let job = world.submit(&world.admin, hello("one")).await;
    let job = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    let (told, text) = faults(
        &world,
        Method::PATCH,
        &job,
        "{\n  \"priority\": \"7\",\n  \"prio\": 1\n}",
    )
    .await;
    assert_eq!(told, ["wrong_type priority 7", "unknown_field prio prio"]);
    for words in ["leave the quotes out", "did you mean 'priority'?", "\"line\":3"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let points =
        "{\"points\": [{\"series\": \"\", \"value\": \"high\", \"at\": \"today\"}, {\"step\": -1, \"value\": 1}],
        \"replica\": {\"role\": 1}}";
    let (told, _) = faults(&world, Method::POST, &format!("{job}/metrics"), points).await;
    assert_eq!(
        told,
        [
            "out_of_range points[0].series ",
            "wrong_type points[0].value high",
            "wrong_form points[0].at today",
            "missing_field points[1].series -",
            "out_of_range points[1].step -1",
            "missing_field replica.index -",
            "wrong_type replica.role 1",
        ]
    );
    let token = "{\"name\": 1, \"role\": \"onwer\", \"team\": \"none\"}";
    let (told, text) = faults(&world, Method::POST, "/api/v1/tokens", token).await;
    assert_eq!(
        told,
        ["wrong_type name 1", "unknown_word role onwer", "wrong_form team none"]
    );
    assert!(text.contains("did you mean 'owner'?"), "{text}");
    let (told, _) = faults(&world, Method::POST, "/api/v1/teams", "[1]").await;
    assert_eq!(told, ["wrong_type  -"]);
    let (told, _) = faults(&world, Method::POST, "/api/v1/teams", "{\"name\": \"a\"} x").await;
    assert_eq!(told, ["syntax  -"]);
    let large: Vec<String> = (0..10_000)
        .map(|step| format!("{{\"series\":\"loss\",\"value\":0.5,\"step\":{step}}}"))
        .collect();
    let large = format!("{{\"points\": [{}, 7]}}", large.join(","));
    let (told, _) = faults(&world, Method::POST, &format!("{job}/metrics"), &large).await;
    assert_eq!(told, ["out_of_range points -", "wrong_type points[10000] 7"]);
}

#[tokio::test]
async fn a_fault_in_a_secret_shows_nothing_of_it() {
    let world = World::new().await;
    for (body, path) in [
        ("{\"values\": {\"pin\": 48151623}}", "values.pin"),
        ("{\"values\": \"48151623\"}", "values"),
        ("{\"values\": {\"pin\": [\"48151623\"]}}", "values.pin"),
    ] {
        let (told, text) = faults(&world, Method::PUT, "/api/v1/secrets/keys", body).await;
        assert_eq!(told, [format!("wrong_type {path} -")]);
        assert!(!text.contains("48151623"), "{text}");
    }
}
