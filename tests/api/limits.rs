//! What one client may hold, and for how long: bodies that come slowly, waits, live streams, long walks.

use std::{convert::Infallible, time::Duration};

use axum::{
    body::{Body, BodyDataStream},
    http::Method,
};
use futures::{StreamExt, stream};
use serde_json::json;
use tokio::{sync::oneshot, time::timeout};
use trainyard::web::{Settings, admission::Bound, sse};

use crate::{
    world::{Person, World, hello, raw},
    world_parts as parts,
};

/// Longer than anything here takes; what does not come by then never comes.
const NEVER: Duration = Duration::from_secs(20);

/// A body that comes in two parts: says when it was asked for the second, and waits until it may go on.
fn halting(first: &'static str, second: &'static str) -> (Body, oneshot::Receiver<()>, oneshot::Sender<()>) {
    let (asked, is_asked) = oneshot::channel();
    let (go, may_go) = oneshot::channel();
    let second = async move {
        asked.send(()).ok();
        may_go.await.ok();
        Ok::<_, Infallible>(second)
    };
    let body = stream::once(async move { Ok(first) }).chain(stream::once(second));
    (Body::from_stream(body), is_asked, go)
}

/// What a stream says until it says this, or until its end.
async fn said(stream: &mut BodyDataStream, words: &str) -> String {
    let mut text = String::new();
    let reading = async {
        while !text.contains(words)
            && let Some(chunk) = stream.next().await
        {
            text.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
        }
    };
    let came = timeout(NEVER, reading).await.is_ok();
    assert!(came, "neither '{words}' nor an end after: {text}");
    text
}

async fn live(world: &World, person: &Person, path: &str) -> BodyDataStream {
    let ask = world.get(path).by(person).header("accept", "text/event-stream");
    ask.stream().await
}

#[tokio::test]
async fn a_form_that_does_not_come_is_given_up() {
    let settings = Settings {
        body_time: Duration::from_millis(50),
        ..Settings::default()
    };
    let world = World::with(settings).await;
    let form = "application/x-www-form-urlencoded";
    for (path, status) in [("/nothing", 404), ("/sign-in", 400)] {
        let (body, _asked, _go) = halting("link=", "x");
        let slow = world
            .post(path)
            .header("accept", "text/html")
            .header("content-length", "100000")
            .body(form, body)
            .send();
        timeout(NEVER, slow).await.expect("an answer").expect(status);
    }
}

#[tokio::test]
async fn whoever_sends_slowly_keeps_nobody_out() {
    let settings = Settings {
        admission: Bound {
            at_once: 1,
            waiting: 0,
            patience: NEVER,
        },
        ..Settings::default()
    };
    let world = World::with(settings).await;
    for (path, kind, (first, second), status) in [
        (
            "/api/v1/tokens",
            "application/json",
            ("{\"name\": \"slow\", ", "\"role\": \"viewer\"}"),
            201,
        ),
        ("/sign-in", "application/x-www-form-urlencoded", ("link=", "x"), 401),
    ] {
        let (body, asked, go) = halting(first, second);
        let mut slow = Box::pin(world.post(path).by(&world.admin).body(kind, body).send());
        tokio::select! {
            answer = &mut slow => panic!("{path}: answered before its body was there: {answer:?}"),
            asked = asked => asked.unwrap(),
        }
        world.get("/api/v1/me").by(&world.admin).send().await.expect(200);
        go.send(()).unwrap();
        slow.await.expect(status);
    }
}

#[tokio::test]
async fn only_a_few_wait_for_a_check() {
    let settings = Settings {
        waits: 1,
        ..Settings::default()
    };
    let world = World::with(settings).await;
    let cluster = parts::cluster(&world, "here").await;
    let ask = || {
        let check = json!({ "kind": "cluster.look", "cluster": cluster });
        let ask = world.post("/api/v1/checks").by(&world.admin);
        Box::pin(ask.header("prefer", "wait=30").json(check).send())
    };
    let mut first = ask();
    tokio::select! {
        answer = &mut first => panic!("nobody answers checks here: {answer:?}"),
        () = world.comes_to(1, "select count(*) from checks") => {}
    }
    tokio::select! {
        second = ask() => drop(second.expect(202)),
        answer = &mut first => panic!("the second waits as long as the first: {answer:?}"),
    }
}

#[tokio::test]
async fn a_live_stream_ends_with_the_right_to_it() {
    let world = World::new().await;
    let ada = world.person("Ada", &world.team, Some("member")).await;
    let sam = world.person("Sam", &world.team, Some("member")).await;
    let job = world.submit(&world.admin, hello("watched")).await;
    let job = format!("/api/v1/jobs/{}", job["id"].as_str().unwrap());
    let events = format!("{job}/events");
    let mut sams = live(&world, &sam, &events).await;
    said(&mut sams, "id: 1\n").await;
    let mut adas = Vec::new();
    for path in [
        events.as_str(),
        &format!("{job}/logs/follow"),
        "/api/v1/feed",
        "/jobs/live",
    ] {
        let mut stream = live(&world, &ada, path).await;
        said(&mut stream, ": open\n").await;
        adas.push((path.to_owned(), stream));
    }
    said(&mut adas[0].1, "id: 1\n").await;
    let member = format!("/api/v1/teams/{}/members/{}", world.team, ada.user);
    world
        .ask(Method::DELETE, &member)
        .by(&world.admin)
        .send()
        .await
        .expect(204);
    for (path, stream) in &mut adas {
        let text = said(stream, "no stream says this").await;
        assert!(text.ends_with("event: again\ndata: {}\n\n"), "{path}: {text}");
    }
    // Who may still look goes on undisturbed.
    let suspend = format!("{job}/suspend");
    world.post(&suspend).by(&world.admin).send().await.expect(202);
    let text = said(&mut sams, "id: 2\n").await;
    assert!(text.contains("id: 2\n") && !text.contains("again"), "{text}");
}

#[tokio::test]
async fn a_live_stream_lasts_for_its_time() {
    let mut settings = Settings::default();
    settings.live.lasting = Duration::from_millis(50);
    let world = World::with(settings).await;
    for path in ["/api/v1/feed", "/jobs/live"] {
        let text = said(&mut live(&world, &world.admin, path).await, "no stream says this").await;
        assert!(text.ends_with("event: again\ndata: {}\n\n"), "{path}: {text}");
    }
}

#[tokio::test]
async fn one_user_may_have_so_many_live_streams_open() {
    let mut settings = Settings::default();
    settings.live = sse::Bound {
        per_user: 2,
        ..settings.live
    };
    let world = World::with(settings).await;
    let ada = world.person("Ada", &world.team, Some("viewer")).await;
    let one = live(&world, &ada, "/jobs/live").await;
    let _two = live(&world, &ada, "/api/v1/feed").await;
    let three = world.get("/jobs/live").by(&ada).send().await.expect(429);
    assert_eq!(
        (three.code().as_str(), three.header("retry-after")),
        ("rate_limited", "5")
    );
    let _another = live(&world, &world.admin, "/jobs/live").await;
    drop(one);
    let _three = live(&world, &ada, "/jobs/live").await;
}

#[tokio::test]
async fn a_token_that_is_revoked_on_a_page_ends_at_once() {
    let world = World::new().await;
    let ada = world.person("Ada", &world.team, Some("member")).await;
    let made = world.post("/api/v1/tokens").by(&ada);
    let made = made.json(json!({ "name": "x", "role": "viewer" })).send().await;
    let made = made.expect(201).json();
    let token = Person {
        user: ada.user,
        token: made["token"].as_str().unwrap().to_owned(),
    };
    world.get("/api/v1/me").by(&token).send().await.expect(200);
    let path = format!("/settings/tokens/{}/revoke", made["id"].as_str().unwrap());
    world.post(&path).by(&ada).send().await.expect(303);
    world.get("/api/v1/me").by(&token).send().await.expect(401);
}

#[tokio::test]
async fn one_look_at_the_feed_covers_so_many_places() {
    let world = World::new().await;
    let tiny = world.make_team("tiny").await;
    let ada = world.person("Ada", &tiny, Some("viewer")).await;
    world
        .run(&format!(
            "insert into events (class, owner_id, seq, owner_kind, team_id, at, kind, message, feed_position)
             select 'standard', '01900000-0000-7000-8000-000000000001', n, 'job',
                 case when n = 11000 then '{}'::uuid else '{}'::uuid end, now(), 'job.phase', 'It moves', n
             from generate_series(1, 12000) n;
             update installation set feed_position = 12000",
            raw(&tiny),
            raw(&world.team)
        ))
        .await;
    let mut looks = Vec::new();
    for after in [0, 10_000, 12_000] {
        let page = world.get(&format!("/api/v1/feed?after={after}")).by(&ada).send().await;
        let page = page.expect(200).json();
        looks.push((page["items"].as_array().unwrap().len(), page["next"].as_i64().unwrap()));
    }
    assert_eq!(looks, [(0, 10_000), (1, 12_000), (0, 12_000)]);
    // A live view goes on by itself.
    let text = said(&mut live(&world, &ada, "/api/v1/feed").await, "\nevent: event\n").await;
    assert!(text.contains("id: 11000\n"), "{text}");
}

#[tokio::test]
async fn one_look_at_the_audit_log_covers_so_many_lines() {
    let world = World::new().await;
    world
        .run(
            "insert into audit (class, id, at, action, subject_kind)
             select 'installation', ('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, now(),
                 case when n = 5 then 'needle' else 'hay' end, 'job'
             from generate_series(1, 12000) n",
        )
        .await;
    let mut pages = Vec::new();
    let mut path = "/api/v1/audit?action=needle".to_owned();
    loop {
        let page = world.get(&path).by(&world.admin).send().await.expect(200).json();
        pages.push(page["items"].as_array().unwrap().len());
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/audit?action=needle&cursor={next}");
    }
    assert_eq!(pages, [0, 1]);
}
