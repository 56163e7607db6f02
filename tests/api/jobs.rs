//! Reading jobs and wishing things of them.

use axum::http::Method;
use serde_json::{Value, json};

use crate::{
    world::{World, hello, raw},
    world_parts::{attempt, cluster, grant, node},
};

fn names(page: &Value) -> Vec<String> {
    page["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|job| job["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn pages_are_newest_first_and_go_on_where_the_last_one_ended() {
    let world = World::new().await;
    for number in 0..7 {
        world.submit(&world.admin, hello(&format!("job-{number}"))).await;
    }
    let mut seen = Vec::new();
    let mut path = "/api/v1/jobs?limit=3".to_owned();
    loop {
        let page = world.get(&path).by(&world.admin).send().await.expect(200).json();
        seen.extend(names(&page));
        assert!(page["items"][0].get("document").is_none(), "no row has the document");
        match page["next"].as_str() {
            Some(next) => path = format!("/api/v1/jobs?limit=3&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(
        seen,
        (0..7).rev().map(|number| format!("job-{number}")).collect::<Vec<_>>()
    );

    let first = world.get("/api/v1/jobs?limit=3").by(&world.admin).send().await.json();
    let other = format!(
        "/api/v1/jobs?limit=3&state=queued&cursor={}",
        first["next"].as_str().unwrap()
    );
    let answer = world.get(&other).by(&world.admin).send().await.expect(400);
    assert_eq!(
        answer.json()["errors"][0]["path"],
        "cursor",
        "a cursor holds for its filters alone"
    );
}

#[tokio::test]
async fn every_filter_finds_what_it_should_and_nothing_else() {
    let world = World::new().await;
    let second = world.make_team("second").await;
    let ada = world.person("Ada", &second, Some("member")).await;
    let earth = cluster(&world, "earth").await;
    grant(&world, &earth, &second).await;
    let mut labelled = hello("labelled");
    labelled["labels"] = json!({ "project": "vision", "stage": "test" });
    world.submit(&world.admin, labelled).await;
    let mut on_earth = hello("on-earth");
    on_earth["cluster"] = json!("earth");
    world.submit(&ada, on_earth).await;
    let failed = world.submit(&ada, hello("broken")).await;
    let id = raw(failed["id"].as_str().unwrap());
    world
        .run(&format!(
            "update jobs set phase = 'failed', ended_at = now(), message = 'Rank 1 ran out of memory' where id = '{id}'"
        ))
        .await;

    let list = async |query: &str| {
        let answer = world
            .get(&format!("/api/v1/jobs?{query}"))
            .by(&world.admin)
            .send()
            .await
            .expect(200);
        let mut found = names(&answer.json());
        found.sort();
        found
    };
    let all = ["broken", "labelled", "on-earth"];
    assert_eq!(list("").await, all);
    assert_eq!(list("state=failed").await, ["broken"]);
    assert_eq!(list("state=failed&state=queued").await, all);
    assert_eq!(list("state=running").await, Vec::<String>::new());
    assert_eq!(list("team=second").await, ["broken", "on-earth"]);
    assert_eq!(list(&format!("team={second}&state=failed")).await, ["broken"]);
    assert_eq!(list("cluster=earth").await, ["on-earth"]);
    assert_eq!(list(&format!("owner={}", ada.user)).await, ["broken", "on-earth"]);
    assert_eq!(list("owner=me").await, ["labelled"]);
    assert_eq!(list(&format!("owner={}&state=queued", ada.user)).await, ["on-earth"]);
    assert_eq!(list("label=project%3Dvision").await, ["labelled"]);
    assert_eq!(
        list("label=project%3Dvision&label=stage%3Dprod").await,
        Vec::<String>::new()
    );
    assert_eq!(list("label=project%3Dvision&state=queued&owner=me").await, ["labelled"]);
    assert_eq!(list("text=OUT+of+memory").await, ["broken"]);
    assert_eq!(list("text=earth").await, ["on-earth"]);
    assert_eq!(list("name=on-earth").await, ["on-earth"]);
    assert!(list("name=earth").await.is_empty());
    assert_eq!(
        list("from=2000-01-01T00:00:00Z&to=2001-01-01T00:00:00Z").await,
        Vec::<String>::new()
    );
    assert_eq!(list("from=2000-01-01T00:00:00Z").await, all);

    // A member sees their teams' jobs and no others, whatever they ask for.
    let seen = world.get("/api/v1/jobs").by(&ada).send().await.expect(200).json();
    assert_eq!(names(&seen), ["broken", "on-earth"]);
    let seen = world
        .get(&format!("/api/v1/jobs?owner={}", world.admin.user))
        .by(&ada)
        .send()
        .await
        .expect(200);
    assert_eq!(names(&seen.json()), Vec::<String>::new());
    world.get("/api/v1/jobs?team=default").by(&ada).send().await.expect(404);

    for wrong in [
        "state=gone",
        "label=x",
        "owner=ada",
        "limit=0",
        "limit=201",
        "from=yesterday",
        "colour=red",
    ] {
        let answer = world
            .get(&format!("/api/v1/jobs?{wrong}"))
            .by(&world.admin)
            .send()
            .await
            .expect(400);
        assert_eq!(
            answer.json()["errors"][0]["path"],
            wrong.split('=').next().unwrap(),
            "{wrong}"
        );
    }
}

#[tokio::test]
async fn a_page_that_looked_far_enough_may_be_short_and_goes_on() {
    let world = World::new().await;
    let owner = world.admin.user.0;
    let team = raw(&world.team);
    // More than one window of other jobs, and the wanted one behind them.
    world
        .run(&format!(
            "insert into jobs (id, team_id, owner_id, name, labels, document, retention, wanted, phase, reason, message,
                 priority, replicas, cpu_milli, memory_bytes, gpus, event_seq, created_at, queued_at)
             select ('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, '{team}', '{owner}',
                 case when n = 5 then 'needle' else 'hay' end,
                 case when n = 5 then '{{\"rare\": \"yes\"}}'::jsonb else '{{\"common\": \"yes\"}}'::jsonb end, '{{}}',
                 'standard', 'run', 'queued', '', '', 0, 1, 0, 0, 0, 1, now(), now()
             from generate_series(1, 12000) n"
        ))
        .await;
    let mut pages = 0;
    let mut path = "/api/v1/jobs?text=needle".to_owned();
    let found = loop {
        pages += 1;
        let page = world.get(&path).by(&world.admin).send().await.expect(200).json();
        if !names(&page).is_empty() {
            break names(&page);
        }
        let next = page["next"].as_str().expect("there is more to look at");
        path = format!("/api/v1/jobs?text=needle&cursor={next}");
    };
    assert_eq!((found, pages), (vec!["needle".to_owned()], 2));
    // A label has an index of its own: rare or common, the first page has it.
    let rare = world
        .get("/api/v1/jobs?label=rare%3Dyes")
        .by(&world.admin)
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(
        (names(&rare), rare["next"].clone()),
        (vec!["needle".to_owned()], Value::Null)
    );
    let common = world
        .get("/api/v1/jobs?label=common%3Dyes&limit=10")
        .by(&world.admin)
        .send()
        .await
        .json();
    assert_eq!(common["items"].as_array().unwrap().len(), 10);
}

#[tokio::test]
async fn a_job_has_a_version_that_saves_reading_it_again() {
    let world = World::new().await;
    let job = world.submit(&world.admin, hello("versioned")).await;
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    let etag = world
        .get(&path)
        .by(&world.admin)
        .send()
        .await
        .expect(200)
        .header("etag")
        .to_owned();
    world
        .get(&path)
        .by(&world.admin)
        .header("if-none-match", &etag)
        .send()
        .await
        .expect(304);
    world
        .post(&format!("{path}/suspend"))
        .by(&world.admin)
        .send()
        .await
        .expect(202);
    let changed = world
        .get(&path)
        .by(&world.admin)
        .header("if-none-match", &etag)
        .send()
        .await
        .expect(200);
    assert_eq!(changed.json()["wanted"], "suspend");

    // While it runs its steps go on without a new version, so it is always read.
    let etag = changed.header("etag").to_owned();
    world
        .run(&format!(
            "update jobs set phase = 'running', step = 7 where id = '{}'",
            raw(job["id"].as_str().unwrap())
        ))
        .await;
    let moved = world
        .get(&path)
        .by(&world.admin)
        .header("if-none-match", &etag)
        .send()
        .await
        .expect(200);
    assert_eq!(moved.json()["step"], 7);
}

#[tokio::test]
async fn a_wish_is_written_with_event_audit_and_poke_and_moves_no_phase() {
    let world = World::new().await;
    let earth = cluster(&world, "earth").await;
    grant(&world, &earth, &world.team).await;
    let machine = node(&world, &earth, "machine").await;
    let job = world.submit(&world.admin, hello("wished")).await;
    let id = job["id"].as_str().unwrap();
    attempt(&world, id, &earth, &machine).await;
    world.run("delete from tasks").await;

    let path = format!("/api/v1/jobs/{id}");
    let answer = world
        .post(&format!("{path}/cancel"))
        .by(&world.admin)
        .send()
        .await
        .expect(202)
        .json();
    assert_eq!(
        (&answer["wanted"], &answer["phase"]),
        (&json!("cancel"), &json!("running"))
    );
    assert_eq!((&answer["generation"], &answer["event_seq"]), (&json!(2), &json!(2)));
    let query = "select count(*) from tasks where kind = 'job' and machine_id = 'machine-of-earth'";
    assert_eq!(world.count(query).await, 1, "the machine that runs it has to look");
    assert_eq!(
        world
            .count("select count(*) from audit where action = 'job.cancel'")
            .await,
        1
    );
    assert_eq!(
        world
            .count("select count(*) from events where seq = 2 and kind = 'job.wanted'")
            .await,
        1
    );

    // Asking twice is asking once.
    world
        .post(&format!("{path}/cancel"))
        .by(&world.admin)
        .send()
        .await
        .expect(202);
    assert_eq!(
        world.count("select count(*) from events").await
            - world
                .count("select count(*) from events where owner_kind <> 'job'")
                .await,
        2
    );
    assert_eq!(
        world
            .post(&format!("{path}/resume"))
            .by(&world.admin)
            .send()
            .await
            .expect(409)
            .code(),
        "superseded"
    );
    world
        .ask(Method::DELETE, &path)
        .by(&world.admin)
        .send()
        .await
        .expect(202);
    assert_eq!(
        world
            .post(&format!("{path}/cancel"))
            .by(&world.admin)
            .send()
            .await
            .expect(409)
            .code(),
        "superseded"
    );

    world
        .run(&format!(
            "update jobs set phase = 'cancelled', ended_at = now(), wanted = 'cancel' where id = '{}'",
            raw(id)
        ))
        .await;
    world
        .post(&format!("{path}/cancel"))
        .by(&world.admin)
        .send()
        .await
        .expect(202);
    assert_eq!(
        world
            .post(&format!("{path}/suspend"))
            .by(&world.admin)
            .send()
            .await
            .expect(409)
            .code(),
        "job_ended"
    );
}

#[tokio::test]
async fn a_change_of_priority_has_to_name_what_it_changes() {
    let world = World::new().await;
    let job = world.submit(&world.admin, hello("moved")).await;
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    let change = |etag: Option<&str>, body: Value| {
        let ask = world.ask(Method::PATCH, &path).by(&world.admin).json(body);
        match etag {
            Some(etag) => ask.header("if-match", etag).send(),
            None => ask.send(),
        }
    };
    assert_eq!(
        change(None, json!({ "priority": 5 })).await.expect(428).code(),
        "if_match_required"
    );
    assert_eq!(
        change(Some("\"7-7\""), json!({ "priority": 5 }))
            .await
            .expect(412)
            .code(),
        "stale"
    );
    let answer = change(Some("\"1-1\""), json!({ "priority": 5 })).await.expect(200);
    assert_eq!(
        (answer.json()["priority"].clone(), answer.header("etag")),
        (json!(5), "\"2-2\"")
    );
    assert_eq!(
        change(Some("\"1-1\""), json!({ "priority": 6 }))
            .await
            .expect(412)
            .code(),
        "stale"
    );
    assert_eq!(
        change(Some("*"), json!({ "priority": 9999 })).await.expect(422).json()["errors"][0]["path"],
        "priority"
    );
    let answer = change(Some("*"), json!({ "priority": "high" })).await.expect(422);
    assert_eq!(answer.json()["errors"][0]["path"], "priority");
    let answer = change(Some("*"), json!({ "priority": 1, "name": "x" }))
        .await
        .expect(422);
    assert!(answer.json()["errors"][0]["message"].as_str().unwrap().contains("name"));
}

#[tokio::test]
async fn a_rerun_and_a_clone_know_where_they_came_from() {
    let world = World::new().await;
    let job = world.submit(&world.admin, hello("origin")).await;
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    let rerun = || {
        world
            .post(&format!("{path}/rerun"))
            .by(&world.admin)
            .header("idempotency-key", "r")
            .send()
    };
    let again = rerun().await.expect(201).json();
    assert_eq!(again["origin"], json!({ "how": "rerun", "job": job["id"] }));
    assert_eq!(again["document"], job["document"]);
    assert_eq!(rerun().await.expect(201).json()["id"], again["id"]);

    let draft = world
        .get(&format!("{path}/clone"))
        .by(&world.admin)
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!(draft["document"], job["document"]);
    let submit_to = draft["submit_to"].as_str().unwrap();
    let copy = world
        .post(submit_to)
        .by(&world.admin)
        .json(draft["document"].clone())
        .send()
        .await
        .expect(201)
        .json();
    assert_eq!(copy["origin"], json!({ "how": "clone", "job": job["id"] }));
    let yaml = world
        .get(&format!("{path}/clone"))
        .by(&world.admin)
        .header("accept", "application/yaml")
        .send()
        .await;
    assert!(yaml.expect(200).text.contains("name: origin"));
}

#[tokio::test]
async fn why_says_what_holds_a_job_up() {
    let world = World::new().await;
    let job = world.submit(&world.admin, hello("waiting")).await;
    let path = format!("/api/v1/jobs/{}/why", job["id"].as_str().unwrap());
    let why = world.get(&path).by(&world.admin).send().await.expect(200).json();
    assert_eq!(why["phase"], "queued");
    assert!(why["why"]["reasons"][0]["next"].is_string(), "{why}");

    let earth = cluster(&world, "earth").await;
    grant(&world, &earth, &world.team).await;
    let mut document = hello("held-up");
    document["cluster"] = json!("earth");
    let job = world.submit(&world.admin, document).await;
    let path = format!("/api/v1/jobs/{}/why", job["id"].as_str().unwrap());
    let why = world.get(&path).by(&world.admin).send().await.expect(200).json();
    assert_eq!(why["why"]["reasons"][0]["code"], "worker_gone", "{why}");
    assert!(why["sentence"].as_str().unwrap().contains("earth"), "{why}");
}

#[tokio::test]
async fn a_list_says_the_state_in_words_when_it_is_asked_to() {
    let world = World::new().await;
    let earth = cluster(&world, "earth").await;
    grant(&world, &earth, &world.team).await;
    let machine = node(&world, &earth, "machine").await;
    let job = world.submit(&world.admin, hello("stuck")).await;
    let id = job["id"].as_str().unwrap();
    attempt(&world, id, &earth, &machine).await;
    world
        .run(&format!(
            "insert into conditions (subject_kind, subject_id, type, status, severity, reason, message, since, observed_at)
             values ('job', '{}', 'hung', 'true', 'critical', 'no_output', 'Silent for long', now(), now())",
            raw(id)
        ))
        .await;
    let read = async |path: &str| world.get(path).by(&world.admin).send().await.expect(200).json();
    let plain = read("/api/v1/jobs").await;
    assert!(plain["items"][0].get("sentence").is_none(), "{plain}");
    let told = read("/api/v1/jobs?sentence=true").await;
    let sentence = told["items"][0]["sentence"].as_str().unwrap();
    assert!(
        sentence.starts_with("Running") && sentence.contains("hung"),
        "{sentence}"
    );

    // Of what has ended, the answer to "why" is the same sentence.
    world.submit(&world.admin, hello("over")).await;
    world
        .run("update jobs set phase = 'cancelled', message = 'Maya cancelled it', ended_at = now() where name = 'over'")
        .await;
    let over = read("/api/v1/jobs?sentence=true&state=cancelled").await["items"][0].clone();
    let why = read(&format!("/api/v1/jobs/{}/why", over["id"].as_str().unwrap())).await;
    assert_eq!(why["sentence"], over["sentence"]);
    assert!(why["sentence"].as_str().unwrap().starts_with("Cancelled"), "{why}");
}

#[tokio::test]
async fn attempts_replicas_and_nodes_are_read() {
    let world = World::new().await;
    let earth = cluster(&world, "earth").await;
    grant(&world, &earth, &world.team).await;
    let machine = node(&world, &earth, "machine").await;
    let job = world.submit(&world.admin, hello("running")).await;
    let path = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    attempt(&world, job["id"].as_str().unwrap(), &earth, &machine).await;
    let read = async |path: String| world.get(&path).by(&world.admin).send().await.expect(200).json();

    assert_eq!(read(format!("{path}/attempts")).await["items"][0]["number"], 1);
    assert_eq!(read(format!("{path}/attempts/1")).await["cluster"]["name"], "earth");
    world
        .get(&format!("{path}/attempts/2"))
        .by(&world.admin)
        .send()
        .await
        .expect(404);
    let first = read(format!("{path}/replicas?limit=1")).await;
    assert_eq!(first["items"][0]["node"]["name"], "machine");
    let second = read(format!(
        "{path}/replicas?limit=1&cursor={}",
        first["next"].as_str().unwrap()
    ))
    .await;
    assert_eq!(
        (&second["items"][0]["rank"], &second["next"]),
        (&json!(1), &Value::Null)
    );
    assert_eq!(
        read(format!("{path}/incarnations")).await["items"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let usage = read(format!("{path}/usage")).await;
    assert_eq!(usage["items"][0]["phase"], "queued");
    assert!(usage["totals"]["queued"].as_f64().unwrap() >= 0.0);

    assert_eq!(read("/api/v1/nodes".into()).await["items"][0]["troubles"], 1);
    let on_node = read(format!("/api/v1/nodes/{machine}/replicas")).await;
    assert_eq!(on_node["items"].as_array().unwrap().len(), 2);
    assert_eq!(
        read(format!("/api/v1/nodes/{machine}/conditions")).await["items"][0]["type"],
        "DiskFull"
    );
    let seen = read(format!("/api/v1/clusters/{earth}")).await;
    assert_eq!((&seen["nodes"], &seen["jobs_active"]), (&json!(1), &json!(1)));
    world
        .get(&format!("{path}/post-mortem"))
        .by(&world.admin)
        .send()
        .await
        .expect(404);
}
