//! A new key for the secrets, broken off anywhere, under writers that go on.

use std::collections::BTreeMap;

use axum::http::Method;
use secrecy::ExposeSecret;
use serde_json::json;
use trainyard::{
    actions::rotate::{self, Rotated},
    db::{Db, Tx, secret_values},
    job_token,
    keys::{KeyFile, KeyRing, as_text},
};
use trainyard_core::model::{AttemptId, TeamId};

use crate::{
    world::{World, hello},
    world_parts::{self, attempt, cluster, grant, node},
};

/// More than two batches.
const SECRETS: usize = 230;

async fn put(world: &World, name: &str, value: &str) {
    world
        .ask(Method::PUT, &format!("/api/v1/secrets/{name}?team=default"))
        .by(&world.admin)
        .json(json!({ "values": { "key": value } }))
        .send()
        .await
        .expect(200);
}

async fn keys_of_rows(db: &Db) -> BTreeMap<String, i64> {
    let rows: Vec<(String, i64)> = sqlx::query_as("select key_id, count(*) from secrets group by key_id")
        .fetch_all(db.pool())
        .await
        .unwrap();
    rows.into_iter().collect()
}

async fn assert_readable(world: &World, file: &KeyFile) {
    let team: uuid::Uuid = sqlx::query_scalar("select id from teams where name = 'default'")
        .fetch_one(world.state.db.pool())
        .await
        .unwrap();
    for number in 0..SECRETS {
        let stored = secret_values::newest(&world.state.db, TeamId(team), &format!("s-{number}"))
            .await
            .unwrap()
            .unwrap();
        let plain = file.ring().decrypt(stored.id, &stored.sealed).unwrap();
        assert_eq!(as_text(&plain), Some(format!(r#"{{"key":"value {number}"}}"#).as_str()));
    }
}

#[tokio::test]
async fn a_rotation_can_be_broken_off_anywhere_and_gone_on_with() {
    let world = World::new().await;
    let (db, file) = (&world.state.db, world.state.actions.keys.as_ref());
    for number in 0..SECRETS {
        put(&world, &format!("s-{number}"), &format!("value {number}")).await;
    }
    let random = &mut rand::rng();
    let now = world.state.actions.now();
    let old = file.ring().ids().next().unwrap().clone();
    // Broken off after the new key was drawn, and again after a batch.
    file.rotate(random).unwrap();
    assert_readable(&world, file).await;
    let to = file.rotate(random).unwrap();
    let mut so_far = Rotated {
        to: to.clone(),
        sealed: 0,
        retired: Vec::new(),
        unreadable: Vec::new(),
        reporting: 0,
    };
    rotate::seal_batch(db, file, None, random, &mut so_far).await.unwrap();
    let mixed = keys_of_rows(db).await;
    assert_eq!((mixed[to.as_str()], mixed[old.as_str()]), (100, SECRETS as i64 - 100));
    assert_readable(&world, file).await;
    // Gone on with, by another process with the same file.
    let rotated = rotate::finish(db, file, random, now).await.unwrap();
    assert_eq!(rotated.sealed, SECRETS as u64 - 100);
    assert_eq!(rotated.retired.len(), 2);
    assert!(rotated.unreadable.is_empty());
    assert_eq!(keys_of_rows(db).await.into_keys().collect::<Vec<_>>(), [to.to_string()]);
    assert_eq!(
        file.ring().ids().cloned().collect::<Vec<_>>(),
        std::slice::from_ref(&to)
    );
    assert_readable(&world, file).await;
    // Once more: there is nothing left to do, and nothing is done.
    let again = rotate::finish(db, file, random, now).await.unwrap();
    assert_eq!((again.sealed, again.retired.len()), (0, 0));
    let audit = world
        .get("/api/v1/audit?action=keys.rotate")
        .by(&world.admin)
        .send()
        .await
        .expect(200);
    assert_eq!(audit.json()["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_running_attempts_token_keeps_its_key() {
    let world = World::new().await;
    let (db, file) = (&world.state.db, world.state.actions.keys.as_ref());
    let earth = cluster(&world, "earth").await;
    grant(&world, &earth, &world.team).await;
    let machine = node(&world, &earth, "machine").await;
    let job = world.submit(&world.admin, hello("reports")).await;
    let id = job["id"].as_str().unwrap();
    let attempt: AttemptId = attempt(&world, id, &earth, &machine).await.parse().unwrap();
    let token = job_token::issue(&file.ring(), attempt).unwrap();
    let random = &mut rand::rng();
    let now = chrono::Utc::now() + chrono::Duration::seconds(1);
    file.rotate(random).unwrap();
    for _ in 0..2 {
        let rotated = rotate::finish(db, file, random, now).await.unwrap();
        assert_eq!((rotated.reporting, rotated.retired.len()), (1, 0));
        assert_eq!(job_token::open(&file.ring(), token.expose_secret()), Some(attempt));
    }
    // Once it is over, nothing needs the key; what was admitted since has a token under the new one.
    let over = "update attempts set phase = 'ended', outcome = 'failed', ended_at = now() where id = ";
    world.run(&format!("{over}'{}'", attempt.0)).await;
    let later = world.submit(&world.admin, hello("later")).await;
    let later = world_parts::attempt(&world, later["id"].as_str().unwrap(), &earth, &machine).await;
    let later: AttemptId = later.parse().unwrap();
    let since = "update attempts set admitted_at = now() + interval '2 seconds' where id = ";
    world.run(&format!("{since}'{}'", later.0)).await;
    let rotated = rotate::finish(db, file, random, now).await.unwrap();
    assert_eq!((rotated.reporting, rotated.retired.len()), (0, 1));
}

#[tokio::test]
async fn who_seals_with_the_old_key_meanwhile_is_waited_for_and_what_is_unreadable_keeps_its_key() {
    let world = World::new().await;
    let (db, file) = (world.state.db.clone(), world.state.actions.keys.clone());
    put(&world, "s", "v").await;
    put(&world, "broken", "v").await;
    sqlx::query("update secrets set ciphertext = '\\x00' where name = 'broken'")
        .execute(db.pool())
        .await
        .unwrap();
    // A writer that has read the ring and not yet written.
    let mut writer = db.begin().await.unwrap();
    secret_values::begin_sealing(&mut writer).await.unwrap();
    let old = file.ring();
    file.rotate(&mut rand::rng()).unwrap();
    let now = world.state.actions.now();
    let random = &mut rand::rng();
    let rotation = rotate::finish(&db, &file, random, now);
    let (rotated, ()) = tokio::join!(rotation, write_late(&db, writer, &old));
    let rotated = rotated.unwrap();
    assert_eq!((rotated.sealed, rotated.unreadable.len()), (2, 1));
    // The broken row may be mended one day, so its key stays.
    assert!(rotated.retired.is_empty());
    assert_eq!(file.ring().ids().count(), 2);
}

/// Once the rotation waits: a row sealed with the key that was the first, and the end of its writer.
async fn write_late(db: &Db, mut writer: Tx<'static>, old: &KeyRing) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        let waits: bool = sqlx::query_scalar(
            "select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'advisory')",
        )
        .fetch_one(db.pool())
        .await
        .unwrap();
        if waits {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the rotation does not wait");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let id = uuid::Uuid::now_v7();
    let sealed = old.encrypt(id, b"{}", &mut rand::rng()).unwrap();
    sqlx::query(
        "insert into secrets (id, team_id, name, version, keys, key_id, nonce, ciphertext, created_by, created_at)
         select $1, team_id, 'late', 1, '{}', $2, $3, $4, created_by, created_at from secrets where name = 's'",
    )
    .bind(id)
    .bind(sealed.key_id.as_str())
    .bind(&sealed.nonce[..])
    .bind(&sealed.ciphertext)
    .execute(&mut *writer)
    .await
    .unwrap();
    writer.commit().await.unwrap();
}
