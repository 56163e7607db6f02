//! Months in the life of an installation: what goes, what stays, and what people are told.

use chrono::{Datelike, Months, Utc};
use serde_json::{Value, json};
use trainyard::{
    config::Keep,
    db::{feed, holdings, installation, partitions},
};
use trainyard_core::{document::units::MemoryQuantity, model::WorkerId};
use uuid::Uuid;

use crate::world::{World, document};

/// A job of a retention class that prints and succeeds.
async fn finished(world: &mut World, name: &str, retention: &str, text: &str) -> String {
    let job = world
        .submit(document(name, 1, "1", json!({ "retention": retention })))
        .await;
    world.pass(1.0).await;
    world.runtime.print(&job, 1, 0, text);
    world.runtime.exit(&job, 1, 0, 0);
    world.pass(5.0).await;
    world.assert_phase(&job, "succeeded").await;
    job
}

async fn output(world: &World, job: &str) -> Vec<String> {
    let lines = world.get(&format!("/api/v1/jobs/{job}/logs")).await;
    let items = lines["items"].as_array().expect("lines").clone();
    let text = |line: &Value| line["text"].as_str().expect("a text").to_owned();
    items.iter().map(text).collect()
}

async fn count(world: &World, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(world.db.pool()).await.expect(query)
}

async fn is_there(world: &World, table: &str) -> bool {
    sqlx::query_scalar("select to_regclass($1) is not null")
        .bind(table)
        .fetch_one(world.db.pool())
        .await
        .expect("an answer")
}

/// Gives all events their places, as the sequencer does.
async fn sequence(world: &World) {
    let now = world.now();
    let id = installation::read(&world.db).await.expect("a row").id;
    let term = std::time::Duration::from_secs(15);
    let worker = WorkerId(Uuid::now_v7());
    let holding = holdings::acquire(&world.db, holdings::SEQUENCER, id, 0, worker, term, now)
        .await
        .expect("an answer")
        .expect("nobody else holds it");
    while feed::sequence(&world.db, &holding, 1000, now).await.expect("places") > 0 {}
}

#[tokio::test]
async fn output_goes_by_its_class_and_its_reader_is_told() {
    let mut world = World::new().await;
    let short = finished(&mut world, "short", "short", "of no use for long\n").await;
    let standard = finished(&mut world, "standard", "standard", "of some use\n").await;
    let open = world
        .submit(document("open", 1, "1", json!({ "retention": "short" })))
        .await;
    world.pass(1.0).await;
    world.runtime.print(&open, 1, 0, "still running\n");
    world.later(6).await;
    assert_eq!(output(&world, &short).await, ["of no use for long"]);
    world.later(2).await;
    let today = world.now().format("%Y-%m-%d");
    assert_eq!(
        output(&world, &short).await,
        [format!(
            "19 bytes of output are missing here: retention removed it on {today}"
        )]
    );
    let (_, page) = world.send("GET", &format!("/jobs/{short}/logs"), None).await;
    assert!(page.contains("retention removed it on"), "{page}");
    assert_eq!(output(&world, &standard).await, ["of some use"]);
    assert_eq!(output(&world, &open).await, ["still running"]);
    world.assert_phase(&open, "running").await;
    // Again, and nothing more comes of it.
    world.later(0).await;
    assert_eq!(output(&world, &short).await.len(), 1);
}

#[tokio::test]
async fn what_takes_too_much_room_goes_oldest_and_short_first() {
    let keep = Keep {
        logs: MemoryQuantity::bytes(100),
        ..Keep::default()
    };
    let mut world = World::keeping(keep).await;
    let long = finished(&mut world, "long", "long", &"l".repeat(39)).await;
    let older = finished(&mut world, "older", "short", &"o".repeat(39)).await;
    let newer = finished(&mut world, "newer", "short", &"n".repeat(39)).await;
    world.look_after().await;
    assert!(output(&world, &older).await[0].contains("retention removed"));
    assert_eq!(output(&world, &newer).await, ["n".repeat(39)]);
    assert_eq!(output(&world, &long).await, ["l".repeat(39)]);
    let another = finished(&mut world, "another", "long", &"a".repeat(79)).await;
    world.look_after().await;
    assert!(output(&world, &newer).await[0].contains("retention removed"));
    assert!(output(&world, &long).await[0].contains("retention removed"));
    assert_eq!(output(&world, &another).await, ["a".repeat(79)]);
}

#[tokio::test]
async fn ranges_that_hold_nothing_to_keep_are_dropped_and_new_ones_are_made() {
    // The ids of this test's records are of now, whatever its clock says.
    let made = Utc::now();
    let month = format!("{:04}{:02}", made.year(), made.month());
    let mut world = World::new().await;
    let job = finished(&mut world, "standard", "standard", "step=1 loss=0.5\n").await;
    let open = world
        .submit(document("open", 1, "1", json!({ "retention": "long" })))
        .await;
    let before = feed::end(&world.db).await.expect("an end");
    world.later(130).await;
    assert!(
        is_there(&world, &format!("events_standard_{month}")).await,
        "its events have no places in the feed yet"
    );
    sequence(&world).await;
    world.look_after().await;
    for (table, there) in [
        ("events_standard", false),
        ("metric_chunks_standard", false),
        ("log_chunks_standard", false),
        ("log_streams_standard", true),
        ("log_chunks_long", true),
        ("events_long", true),
        ("audit_installation", true),
        ("events_installation", true),
    ] {
        let name = format!("{table}_{month}");
        assert_eq!(is_there(&world, &name).await, there, "{name}");
    }
    assert!(output(&world, &job).await[0].contains("retention removed it on"));
    assert!(world.events(&job).await.is_empty());
    assert!(!world.events(&open).await.is_empty());
    let scope = trainyard::db::Scope::Everything;
    let (read, _) = feed::of_all(&world.db, &scope, before + 1, 10)
        .await
        .expect("an answer");
    assert_eq!(read, feed::Events::Reset);
    let ahead = world.now() + Months::new(2);
    let name = format!("log_chunks_short_{:04}{:02}", ahead.year(), ahead.month());
    assert!(is_there(&world, &name).await, "{name}");
    // What still arrives for a month that is gone finds a place.
    let checkpoint = json!({ "points": [{ "series": "late", "value": 1.0 }] });
    world
        .send("POST", &format!("/api/v1/jobs/{job}/metrics"), Some(&checkpoint))
        .await;
    world.later(700).await;
    assert!(
        is_there(&world, &format!("log_chunks_long_{month}")).await,
        "a job of that month runs"
    );
    assert!(!is_there(&world, &format!("audit_installation_{month}")).await);
    world.assert_phase(&open, "running").await;
}

#[tokio::test]
async fn what_serves_for_a_time_is_removed_in_batches() {
    let mut world = World::new().await;
    let now = world.now();
    let statements = [
        "insert into idempotency_keys (actor_id, route, key, body_digest, subject_id, created_at)
         select gen_random_uuid(), 'r', 'k' || n, sha256('x'), gen_random_uuid(),
            $1 - interval '1 hour' * (n % 50) from generate_series(1, 12000) n",
        "insert into workers (id, machine_id, version, started_at, heartbeat_at)
         select gen_random_uuid(), 'gone', '0', $1, $1 - interval '40 minutes' * n from generate_series(1, 4) n",
        "insert into sessions (hash, user_id, csrf, created_at, last_seen_at, expires_at)
         select sha256(n::text::bytea), (select id from users limit 1), sha256('x'), $1, $1, $1 + interval '1 hour' * (n - 2)
         from generate_series(1, 3) n",
        "insert into signin_links (hash, user_id, created_at, expires_at)
         select sha256(n::text::bytea), (select id from users limit 1), $1, $1 - interval '20 hours' * n
         from generate_series(0, 2) n",
        "insert into log_follows (job_id, until_at)
         select gen_random_uuid(), $1 - interval '40 minutes' * n from generate_series(1, 3) n",
        "insert into metric_chunks (class, owner_id, attempt, role, index, series, seq, steps, times, vals, first_at, last_at)
         select 'installation', (select id from nodes limit 1), 0, '', 0, 'load_1m', n, '{null}', '{0}', '{1}',
            $1 - interval '1 day' * n, $1 - interval '1 day' * n from generate_series(1, 60) n",
    ];
    for statement in statements {
        let done = sqlx::query(statement).bind(now).execute(world.db.pool()).await;
        done.unwrap_or_else(|error| panic!("{statement}: {error}"));
    }
    world.look_after().await;
    // 12,000 keys take three batches, which follow each other at once.
    for (query, left) in [
        ("select count(*) from idempotency_keys", 6240),
        ("select count(*) from workers where machine_id = 'gone'", 1),
        ("select count(*) from sessions", 1),
        (
            "select count(*) from signin_links where expires_at < (select max(expires_at) from signin_links)",
            1,
        ),
        ("select count(*) from log_follows", 1),
        ("select count(*) from metric_chunks where series = 'load_1m'", 30),
        (
            "select count(*) from tasks where kind = 'upkeep' and lease_token is null",
            1,
        ),
    ] {
        assert_eq!(count(&world, query).await, left, "{query}");
    }
}

#[tokio::test]
async fn ten_workers_at_once_do_it_once_and_hinder_nobody() {
    let mut world = World::new().await;
    for number in 0..4 {
        finished(&mut world, &format!("job-{number}"), "short", "text\n").await;
    }
    world.clock.advance(std::time::Duration::from_secs(40 * 86_400));
    let workers = world.colleagues(10);
    for _ in 0..3 {
        let rounds = workers.iter().map(|worker| async move {
            worker.ask_for_upkeep().await.expect("a task");
            worker.perform_due().await.expect("the work is done")
        });
        futures::future::join_all(rounds).await;
        let ahead = world.now() + chrono::Duration::days(60);
        // The same without the task between them, as when a lease ran out under one that slept.
        let together = workers.iter().map(|_| partitions::ensure(&world.db, ahead));
        for made in futures::future::join_all(together).await {
            made.expect("made");
        }
    }
    assert_eq!(
        count(&world, "select count(*) from tasks where kind = 'upkeep'").await,
        1
    );
    assert_eq!(
        count(
            &world,
            "select count(*) from tasks where failures > 0 or last_error is not null"
        )
        .await,
        0
    );
    assert_eq!(count(&world, "select count(*) from log_chunks").await, 0);
}
