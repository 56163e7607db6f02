//! What a job's own processes report, and what is followed live.

use futures::StreamExt;
use secrecy::ExposeSecret;
use serde_json::json;
use trainyard::job_token;
use trainyard_core::model::AttemptId;

use crate::{
    world::{Person, World, hello, raw},
    world_parts::{attempt, cluster, grant, node},
};

async fn running(world: &World, name: &str) -> (String, Person) {
    let earth = cluster(world, &format!("earth-{name}")).await;
    grant(world, &earth, &world.team).await;
    let machine = node(world, &earth, "machine").await;
    let job = world.submit(&world.admin, hello(name)).await;
    let id = job["id"].as_str().unwrap().to_owned();
    let attempt: AttemptId = attempt(world, &id, &earth, &machine).await.parse().unwrap();
    let token = job_token::issue(&world.state.actions.keys.ring(), attempt).unwrap();
    let own = Person {
        user: world.admin.user,
        token: token.expose_secret().to_owned(),
    };
    (id, own)
}

#[tokio::test]
async fn a_jobs_own_token_reports_about_it_and_does_nothing_else() {
    let world = World::new().await;
    let (id, own) = running(&world, "one").await;
    let (other, _) = running(&world, "two").await;
    let path = format!("/api/v1/jobs/{id}");
    let checkpoint = json!({ "step": 120, "path": "/checkpoints/120" });
    let post = |path: &str, body: &serde_json::Value| world.post(path).by(&own).json(body.clone()).send();
    post(&format!("{path}/checkpoints"), &checkpoint).await.expect(201);
    post(&format!("{path}/checkpoints"), &checkpoint).await.expect(201);
    assert_eq!(
        world.count("select count(*) from checkpoints").await,
        1,
        "reported twice, recorded once"
    );
    let points = json!({ "replica": { "role": "worker", "index": 0 }, "points": [
        { "series": "loss", "value": 0.5, "step": 1 }, { "series": "loss", "value": 0.25, "step": 2 }
    ] });
    assert_eq!(
        post(&format!("{path}/metrics"), &points).await.expect(201).json()["stored"],
        2
    );

    let read = world
        .get(&format!("{path}/metrics?series=loss"))
        .by(&world.admin)
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&read["items"][0]["values"], &read["items"][0]["steps"]),
        (&json!([0.5, 0.25]), &json!([1, 2]))
    );
    let csv = world
        .get(&format!("{path}/metrics"))
        .by(&world.admin)
        .header("accept", "text/csv")
        .send()
        .await;
    assert_eq!(csv.expect(200).text.lines().count(), 3);
    // A link of a page can send no header; the numbers' page has this one.
    let link = world
        .get(&format!("{path}/metrics?attempt=1&series=loss&format=csv"))
        .by(&world.admin)
        .header("accept", "text/html,*/*;q=0.8")
        .send()
        .await;
    let rows: Vec<String> = link.expect(200).text.lines().map(str::to_owned).collect();
    assert_eq!(rows[0], "series,attempt,role,index,step,time_ms,value");
    assert!(
        rows[1].starts_with("loss,1,worker,0,1,") && rows[1].ends_with(",0.5"),
        "{rows:?}"
    );
    assert_eq!(world.get(&path).by(&world.admin).send().await.json()["step"], 2);

    post(&format!("/api/v1/jobs/{other}/checkpoints"), &checkpoint)
        .await
        .expect(403);
    post(&format!("{path}/cancel"), &json!({})).await.expect(403);
    world.get(&path).by(&own).send().await.expect(403);
    let wrong = Person {
        token: format!("{}x", own.token),
        ..own.clone()
    };
    world
        .post(&format!("{path}/checkpoints"))
        .by(&wrong)
        .json(checkpoint.clone())
        .send()
        .await
        .expect(401);

    world
        .run(&format!(
            "update jobs set phase = 'failed', ended_at = now() where id = '{}'",
            raw(&id)
        ))
        .await;
    world.state.actions.db.ping().await.unwrap();
    let late = world
        .post(&format!("{path}/checkpoints"))
        .by(&world.admin)
        .json(checkpoint)
        .send()
        .await;
    assert_eq!(late.expect(409).code(), "job_ended");
}

#[tokio::test]
async fn points_that_are_no_numbers_are_refused_by_path() {
    let world = World::new().await;
    let (id, own) = running(&world, "one").await;
    let path = format!("/api/v1/jobs/{id}/metrics");
    let send = |body: serde_json::Value| world.post(&path).by(&own).json(body).send();
    let answer = send(json!({ "points": [{ "series": "", "value": 1.0 }, { "series": "x", "value": 1, "step": -1 }] }));
    let problem = answer.await.expect(422).json();
    let paths: Vec<&str> = (problem["errors"].as_array().unwrap().iter())
        .map(|e| e["path"].as_str().unwrap())
        .collect();
    assert_eq!(paths, ["points[0].series", "points[1].step"]);
    send(json!({ "points": [] })).await.expect(422);
    let answer = send(json!({ "points": [{ "series": "x", "value": "high" }] }))
        .await
        .expect(422);
    assert_eq!(answer.json()["errors"][0]["path"], "points[0].value");
}

#[tokio::test]
async fn events_are_followed_from_any_number_on() {
    let world = World::new().await;
    let job = world.submit(&world.admin, hello("followed")).await;
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    let live = world
        .get(&format!("{path}/events"))
        .by(&world.admin)
        .header("accept", "text/event-stream");
    let mut live = live.stream().await;
    let mut text = String::new();
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut asked = false;
    while !text.contains("id: 2\n") {
        let chunk = tokio::time::timeout_at(deadline, live.next())
            .await
            .expect("events come")
            .unwrap()
            .unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
        if text.contains("id: 1\n") && !asked {
            asked = true;
            world
                .post(&format!("{path}/suspend"))
                .by(&world.admin)
                .send()
                .await
                .expect(202);
        }
    }
    assert_eq!(text.matches("event: event").count(), 2, "{text}");

    let page = world
        .get(&format!("{path}/events?limit=1"))
        .by(&world.admin)
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(
        (&page["items"][0]["seq"], &page["items"][0]["kind"]),
        (&json!(2), &json!("job.wanted"))
    );
    let next = page["next"].as_str().unwrap();
    let page = world
        .get(&format!("{path}/events?limit=1&cursor={next}"))
        .by(&world.admin)
        .send()
        .await
        .json();
    assert_eq!(page["items"][0]["kind"], "job.created");
    let resumed = world.get(&format!("{path}/events")).by(&world.admin);
    let mut resumed = resumed
        .header("accept", "text/event-stream")
        .header("last-event-id", "1")
        .stream()
        .await;
    let mut text = String::new();
    while !text.contains("id: 2\n") {
        let chunk = tokio::time::timeout_at(deadline, resumed.next())
            .await
            .expect("events come")
            .unwrap()
            .unwrap();
        text.push_str(std::str::from_utf8(&chunk).unwrap());
    }
    assert!(!text.contains("id: 1\n"), "{text}");
}

#[tokio::test]
async fn logs_of_a_job_without_output_are_empty_and_wrong_questions_are_named() {
    let world = World::new().await;
    let job = world.submit(&world.admin, hello("silent")).await;
    let path = format!("/api/v1/jobs/{}/logs", job["id"].as_str().unwrap());
    let read = async |path: String| world.get(&path).by(&world.admin).send().await;
    let page = read(path.clone()).await.expect(200).json();
    assert_eq!((&page["items"], &page["more"]), (&json!([]), &json!(false)));
    let lines = world
        .get(&path)
        .by(&world.admin)
        .header("accept", "application/x-ndjson");
    let lines = lines.send().await.expect(200);
    assert_eq!(page["next"], lines.header("x-next-cursor"));
    assert_eq!(lines.header("x-more"), "false");
    assert_eq!(
        read(format!("{path}/streams")).await.expect(200).json()["items"],
        json!([])
    );
    assert_eq!(
        read(format!("{path}/search?pattern=nan")).await.expect(200).json()["groups"],
        json!([])
    );
    assert_eq!(read(format!("{path}/download")).await.expect(200).text, "");
    for (query, wrong) in [
        ("?tail=5&line=3", "tail"),
        ("?line=3", "line"),
        ("?limit=0", "limit"),
        ("?tail=20001", "tail"),
        ("?tail=5&limit=4", "tail"),
        ("/follow?tail=20001", "tail"),
        ("/follow?tail=5&since=2026-01-01T00:00:00Z", "tail"),
        ("/search?pattern=x&per_stream=0", "per_stream"),
        ("/search?pattern=(&regex=true", "pattern"),
        ("/search", "pattern"),
    ] {
        let answer = read(format!("{path}{query}")).await;
        assert!(answer.status.is_client_error(), "{query}: {}", answer.text);
        assert_eq!(answer.json()["errors"][0]["path"], wrong, "{query}");
    }
    for query in ["?tail=5000", "/follow?since=2026-01-01T00:00:00Z"] {
        read(format!("{path}{query}")).await.expect(200);
    }
}

#[tokio::test]
async fn an_attempt_or_a_replica_that_nobody_is_gets_an_answer_that_says_so() {
    let world = World::new().await;
    let job = world.submit(&world.admin, hello("small")).await;
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    for (query, field, hint) in [
        ("/logs?attempt=7", "attempt", "it has none yet"),
        ("/logs?role=chief", "role", "the job has worker-0 to worker-1"),
        ("/logs?role=worker&index=2", "index", "the job has worker-0 to worker-1"),
        ("/logs/follow?index=9", "index", "the job has worker-0 to worker-1"),
        ("/logs/download?attempt=7", "attempt", "it has none yet"),
        (
            "/logs/search?pattern=x&role=chief",
            "role",
            "the job has worker-0 to worker-1",
        ),
        ("/replicas?attempt=7", "attempt", "it has none yet"),
        ("/incarnations?attempt=7", "attempt", "it has none yet"),
        ("/metrics?attempt=7", "attempt", "it has none yet"),
        ("/metrics?role=chief", "role", "the job has worker-0 to worker-1"),
        (
            "/metrics?role=worker&index=2&format=csv",
            "index",
            "the job has worker-0 to worker-1",
        ),
        ("/logs?rank=2", "rank", "it has the ranks 0 to 1"),
    ] {
        let answer = world.get(&format!("{path}{query}")).by(&world.admin).send().await;
        let answer = answer.expect(404);
        assert_eq!(answer.code(), "not_found", "{query}");
        let fault = &answer.json()["errors"][0];
        assert_eq!(
            (&fault["path"], &fault["hint"]),
            (&json!(field), &json!(hint)),
            "{query}"
        );
    }
    let mut mpi = hello("pi");
    mpi["framework"] = json!("mpi");
    mpi["roles"] = json!([
        { "name": "launcher", "command": ["mpirun", "pi"] },
        { "name": "worker", "replicas": 4, "command": ["true"] },
    ]);
    let mut alone = mpi.clone();
    alone["roles"].as_array_mut().unwrap().truncate(1);
    let mpi = world.submit(&world.admin, mpi).await;
    let output = format!("/api/v1/jobs/{}/logs", mpi["id"].as_str().unwrap());
    for (query, field, hint) in [
        ("?role=worker&index=3", "role", "ask for rank=3, without a role"),
        ("?role=worker&rank=2", "role", "ask for rank=2, without a role"),
        ("?role=worker", "role", "ask for a rank: it has the ranks 0 to 3"),
        ("?rank=4", "rank", "it has the ranks 0 to 3"),
        ("/search?pattern=x&rank=4", "rank", "it has the ranks 0 to 3"),
        ("/follow?rank=4", "rank", "it has the ranks 0 to 3"),
        ("/download?rank=4", "rank", "it has the ranks 0 to 3"),
    ] {
        let answer = world.get(&format!("{output}{query}")).by(&world.admin).send().await;
        let fault = &answer.expect(404).json()["errors"][0];
        assert_eq!(
            (&fault["path"], &fault["hint"]),
            (&json!(field), &json!(hint)),
            "{query}"
        );
    }
    // A rank that has printed nothing is an empty answer; how many a launcher alone starts, it says itself.
    let alone = world.submit(&world.admin, alone).await;
    let alone = format!("/api/v1/jobs/{}/logs?rank=4", alone["id"].as_str().unwrap());
    for path in [
        format!("{output}?rank=3"),
        format!("{output}?rank=3&role=launcher"),
        alone,
    ] {
        let answer = world.get(&path).by(&world.admin).send().await.expect(200);
        assert_eq!(answer.json()["items"], json!([]), "{path}");
    }
    for query in ["/logs?role=worker&index=1", "/logs?index=0", "/replicas"] {
        world
            .get(&format!("{path}{query}"))
            .by(&world.admin)
            .send()
            .await
            .expect(200);
    }
}
