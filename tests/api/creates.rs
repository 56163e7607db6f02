//! Submitting: what is written, what is refused and how it is told.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::{
    world::{World, hello, raw},
    world_parts::{cluster, grant},
};

#[tokio::test]
async fn a_create_writes_everything_that_belongs_to_it() {
    let world = World::new().await;
    let answer = world
        .post("/api/v1/jobs")
        .by(&world.admin)
        .json(hello("first"))
        .send()
        .await
        .expect(201);
    let job = answer.json();
    assert_eq!(
        answer.header("location"),
        format!("/api/v1/jobs/{}", job["id"].as_str().unwrap())
    );
    assert_eq!(answer.header("etag"), "\"1-1\"");
    assert_eq!(
        (&job["phase"], &job["wanted"], &job["replicas"]),
        (&json!("queued"), &json!("run"), &json!(2))
    );
    assert_eq!(job["document"]["team"], "default", "the team is filled in");

    let read = world
        .get(answer.header("location"))
        .by(&world.admin)
        .send()
        .await
        .expect(200);
    let mut answered = job.clone();
    answered.as_object_mut().unwrap().remove("warnings");
    assert_eq!(read.json(), answered, "what was answered is what is read");

    for (what, query) in [
        (
            "event",
            "select count(*) from events where seq = 1 and kind = 'job.created' and actor_id is not null",
        ),
        (
            "usage",
            "select count(*) from usage_intervals where seq = 1 and phase = 'queued' and to_at is null",
        ),
        (
            "audit",
            "select count(*) from audit where action = 'job.create' and subject_id is not null",
        ),
        ("task", "select count(*) from tasks where kind = 'job'"),
        (
            "age",
            "select count(*) from jobs j join events e on e.owner_id = j.id and e.at = j.created_at",
        ),
    ] {
        assert_eq!(world.count(query).await, 1, "{what}");
    }
    // Who places it is told when the create is committed, so perhaps a moment after its answer.
    world
        .comes_to(1, "select count(*) from tasks where kind = 'place'")
        .await;
}

#[tokio::test]
async fn hundreds_at_once_are_written_once_each() {
    let world = World::new().await;
    let documents = (0..300).map(|number| hello(&format!("job-{number}")));
    let answers = join_all(documents.map(|body| world.post("/api/v1/jobs").by(&world.admin).json(body).send())).await;
    assert!(answers.iter().all(|answer| answer.status == 201));
    assert_eq!(world.count("select count(distinct name) from jobs").await, 300);
    assert_eq!(world.count("select count(*) from events").await, 300);
    assert_eq!(world.count("select count(*) from usage_intervals").await, 300);
    assert_eq!(world.count("select count(*) from tasks where kind = 'job'").await, 300);
    let transactions = world.count("select count(distinct xmin::text) from jobs").await;
    assert!(transactions < 300, "creates shared statements: {transactions}");
}

#[tokio::test]
async fn one_bad_row_does_not_fail_its_neighbours() {
    let world = World::new().await;
    // Nothing that passes the checks is refused by the tables, so the tables get a rule that no check knows.
    world
        .run("alter table jobs add constraint no_bad_names check (name not like 'bad%')")
        .await;
    let names = (0..60).map(|number| {
        if number % 20 == 7 {
            format!("bad-{number}")
        } else {
            format!("good-{number}")
        }
    });
    let answers = join_all(names.map(|name| {
        let ask = world.post("/api/v1/jobs").by(&world.admin).json(hello(&name));
        async move { (name, ask.send().await) }
    }))
    .await;
    for (name, answer) in answers {
        let expected = if name.starts_with("bad") { 500 } else { 201 };
        assert_eq!(answer.status.as_u16(), expected, "{name}: {}", answer.text);
        assert!(!answer.text.contains("no_bad_names"), "a database's words stay inside");
    }
    assert_eq!(world.count("select count(*) from jobs").await, 57);
    assert_eq!(world.count("select count(*) from tasks where kind = 'job'").await, 57);
}

#[tokio::test]
async fn the_same_key_gets_the_same_answer_and_another_body_is_refused() {
    let world = World::new().await;
    let ask = |name: &str, key: &str| {
        world
            .post("/api/v1/jobs")
            .by(&world.admin)
            .header("idempotency-key", key)
            .json(hello(name))
            .send()
    };
    let first = ask("once", "k1").await.expect(201);
    let id = raw(first.json()["id"].as_str().unwrap());
    world
        .run(&format!(
            "update jobs set phase = 'starting', event_seq = 9 where id = '{id}'"
        ))
        .await;
    let again = ask("once", "k1").await.expect(201);
    assert_eq!(again.json(), first.json(), "whatever became of the job since");
    assert_eq!(
        (
            first.header("idempotency-replayed"),
            again.header("idempotency-replayed")
        ),
        ("", "true")
    );
    assert_eq!(ask("other", "k1").await.expect(422).code(), "idempotency_key_reused");
    ask("once", "k2").await.expect(201);
    assert_eq!(world.count("select count(*) from jobs").await, 2);

    // Many at once under one key, in one batch or several.
    let answers = join_all((0..20).map(|_| ask("racing", "k3"))).await;
    let ids: std::collections::BTreeSet<String> = answers
        .into_iter()
        .map(|answer| answer.expect(201).json()["id"].to_string())
        .collect();
    assert_eq!(ids.len(), 1);

    // A day later the key is free.
    world
        .run("update idempotency_keys set created_at = created_at - interval '25 hours'")
        .await;
    ask("other", "k1").await.expect(201);
    assert_eq!(world.count("select count(*) from jobs").await, 4);
    ask("x", "").await.expect(400);

    // Somebody else's key is another key.
    let other = world.person("Bea", &world.team, Some("member")).await;
    let theirs = world
        .post("/api/v1/jobs")
        .by(&other)
        .header("idempotency-key", "k2")
        .json(hello("theirs"));
    theirs.send().await.expect(201);
}

#[tokio::test]
async fn all_faults_come_at_once_with_line_and_column() {
    let world = World::new().await;
    let document = "apiVersion: trainyard.dev/v1\nkind: Job\nname: Not A Name\nroles:\n  - name: worker\n    replica: 2\n    command: [python3, train.py]\n    resources: {cpu: lots}\n";
    let answer = world
        .post("/api/v1/jobs")
        .by(&world.admin)
        .yaml(document)
        .send()
        .await
        .expect(422);
    assert_eq!(answer.code(), "invalid_body");
    let errors = answer.json()["errors"].as_array().unwrap().clone();
    let at = |path: &str| {
        let error = errors
            .iter()
            .find(|error| error["path"] == path)
            .unwrap_or_else(|| panic!("{path}: {errors:?}"));
        (
            error["line"].as_u64().unwrap(),
            error["column"].as_u64().is_some(),
            error["message"].is_string(),
        )
    };
    assert_eq!(at("name"), (3, true, true));
    assert_eq!(at("roles[0].replica"), (6, true, true));
    assert_eq!(at("roles[0].resources.cpu"), (8, true, true));
    assert_eq!(world.count("select count(*) from jobs").await, 0);
    assert_eq!(
        world
            .count("select count(*) from audit where action = 'job.create'")
            .await,
        0
    );
}

#[tokio::test]
async fn a_document_that_names_what_is_not_there_is_refused_with_what_is() {
    let world = World::new().await;
    let mut document = hello("refers");
    document["cluster"] = json!("moon");
    document["env"] = json!({ "KEY": { "secretRef": { "name": "keys", "key": "api" } } });
    document["code"] = json!({ "upload": format!("sha256:{}", "0".repeat(64)) });
    let answer = world
        .post("/api/v1/jobs")
        .by(&world.admin)
        .json(document.clone())
        .send()
        .await
        .expect(422);
    let errors = answer.json()["errors"].clone();
    let codes: Vec<&str> = errors
        .as_array()
        .unwrap()
        .iter()
        .map(|error| error["code"].as_str().unwrap())
        .collect();
    assert_eq!(codes, ["unknown_cluster", "unknown_secret", "unknown_code"]);
    let places = errors.as_array().unwrap().iter();
    let placed = places.filter(|error| error["line"].as_u64() == Some(1) && error["column"].as_u64() > Some(1));
    assert_eq!(placed.count(), 3, "each with its place in the text: {errors}");

    let cluster = crate::world_parts::cluster(&world, "earth").await;
    crate::world_parts::grant(&world, &cluster, &world.team).await;
    let answer = world
        .post("/api/v1/jobs")
        .by(&world.admin)
        .json(document)
        .send()
        .await
        .expect(422);
    assert!(
        answer.json()["errors"][0]["hint"].as_str().unwrap().contains("earth"),
        "{}",
        answer.text
    );

    // The grant has poked placement, since it may help jobs that wait for any cluster.
    let places = world
        .count("select coalesce(sum(pokes), 0)::bigint from tasks where kind = 'place'")
        .await;
    let mut document = hello("fits");
    document["cluster"] = json!("earth");
    let job = world.submit(&world.admin, document).await;
    assert_eq!(job["cluster"]["id"], cluster.as_str());
    world
        .comes_to(1, "select count(*) from tasks where kind = 'queue'")
        .await;
    assert_eq!(
        world
            .count("select coalesce(sum(pokes), 0)::bigint from tasks where kind = 'place'")
            .await,
        places
    );
}

#[tokio::test]
async fn a_dry_run_checks_everything_and_writes_nothing() {
    let world = World::new().await;
    let answer = world
        .post("/api/v1/jobs?dry_run=true")
        .by(&world.admin)
        .json(hello("dry"))
        .send()
        .await
        .expect(200);
    assert_eq!(answer.json()["document"]["restart"]["max"], 0, "defaults are filled in");
    let mut wrong = hello("dry");
    wrong["cluster"] = json!("moon");
    world
        .post("/api/v1/jobs?dry_run=true")
        .by(&world.admin)
        .json(wrong)
        .send()
        .await
        .expect(422);
    let viewer = world.person("Vic", &world.team, Some("viewer")).await;
    let second = world.make_team("second").await;
    let path = format!("/api/v1/teams/{second}/members/{}", viewer.user);
    world
        .ask(axum::http::Method::PUT, &path)
        .by(&world.admin)
        .json(json!({ "role": "member" }))
        .send()
        .await;
    let mut theirs = hello("dry");
    theirs["team"] = json!("default");
    world
        .post("/api/v1/jobs?dry_run=true")
        .by(&viewer)
        .json(theirs)
        .send()
        .await
        .expect(403);
    assert_eq!(world.count("select count(*) from jobs").await, 0);
    assert_eq!(world.count("select count(*) from tasks").await, 0);
}

#[tokio::test]
async fn what_means_nothing_where_a_job_would_run_is_told_and_taken() {
    let world = World::new().await;
    let mut document = hello("portable");
    document["roles"][0]["image"] = json!("a:1");
    document["queue"] = json!("gold");
    let send = async |path: &str, document: &Value| {
        let ask = world.post(path).by(&world.admin).json(document.clone());
        ask.send().await.json()["warnings"].clone()
    };
    let dry = "/api/v1/jobs?dry_run=true";
    assert_eq!(send(dry, &document).await, json!([]), "it can run nowhere yet");

    let machine = cluster(&world, "machine").await;
    grant(&world, &machine, &world.team).await;
    let told = send(dry, &document).await;
    assert_eq!(told.as_array().unwrap().len(), 2, "{told}");
    assert!(told[0].as_str().unwrap().ends_with("(queue)"), "{told}");
    assert!(told[1].as_str().unwrap().ends_with("(roles[0].image)"), "{told}");
    assert_eq!(send("/api/v1/jobs", &document).await, told);
    assert_eq!(send(dry, &hello("plain")).await, json!([]));

    let cloud = cluster(&world, "cloud").await;
    grant(&world, &cloud, &world.team).await;
    let id = raw(&cloud);
    world
        .run(&format!(
            "update clusters set provider = 'eks', machine_id = null where id = '{id}'"
        ))
        .await;
    assert_eq!(send(dry, &document).await, told, "it may still land on the machine");
    document["cluster"] = json!("cloud");
    assert_eq!(send(dry, &document).await, json!([]));
}

#[tokio::test]
async fn without_a_team_the_only_one_is_meant_and_two_have_to_be_told_apart() {
    let world = World::new().await;
    let second = world.make_team("second").await;
    let person = world.person("Ada", &second, Some("member")).await;
    assert_eq!(world.submit(&person, hello("a")).await["team"]["name"], "second");
    let path = format!("/api/v1/teams/{}/members/{}", world.team, person.user);
    world
        .ask(axum::http::Method::PUT, &path)
        .by(&world.admin)
        .json(json!({ "role": "member" }))
        .send()
        .await
        .expect(200);
    let answer = world
        .post("/api/v1/jobs")
        .by(&person)
        .json(hello("a"))
        .send()
        .await
        .expect(422);
    assert_eq!(answer.json()["errors"][0]["path"], "team");
    assert!(
        answer.json()["errors"][0]["hint"]
            .as_str()
            .unwrap()
            .contains("default, second")
    );
    let mut named = hello("a");
    named["team"] = json!("nowhere");
    let answer = world
        .post("/api/v1/jobs")
        .by(&person)
        .json(named)
        .send()
        .await
        .expect(422);
    assert_eq!(answer.json()["errors"][0]["code"], "unknown_team");
}
