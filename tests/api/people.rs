//! Signing in, tokens, teams and secrets.

use axum::http::Method;
use chrono::Utc;
use secrecy::ExposeSecret;
use serde_json::json;
use trainyard::actions::bootstrap;
use trainyard::db::upkeep;
use trainyard::keys::{KeyId, Sealed};
use uuid::Uuid;

use crate::world::{Person, World, hello};

#[tokio::test]
async fn the_first_start_happens_once_however_many_begin_it() {
    let world = World::new().await;
    let now = world.state.actions.now();
    let starts = (0..4).map(|_| bootstrap::first_start(world.db(), now));
    for welcome in futures::future::join_all(starts).await {
        let welcome = welcome.unwrap();
        assert_eq!(
            (welcome.user, welcome.installation, welcome.first),
            (world.admin.user, world.installation, false)
        );
    }
    assert_eq!(world.count("select count(*) from users").await, 1);
    assert_eq!(world.count("select count(*) from teams").await, 1);
}

#[tokio::test]
async fn a_link_signs_a_browser_in_once() {
    let world = World::new().await;
    let link = bootstrap::signin_link(world.db(), world.admin.user, world.state.actions.now())
        .await
        .unwrap();
    let form = format!("link={link}&next=%2Fjobs");
    let kind = "application/x-www-form-urlencoded";
    let send = || world.post("/sign-in").body(kind, form.clone()).send();
    let answer = send().await.expect(303);
    assert_eq!(answer.header("location"), "/jobs");
    let cookie = answer.header("set-cookie").to_owned();
    for part in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(
        !cookie.contains("Secure"),
        "over plain http the browser would not send it back"
    );
    send().await.expect(401);

    let cookie = cookie.split(';').next().unwrap();
    let me = world
        .get("/api/v1/me")
        .header("cookie", cookie)
        .send()
        .await
        .expect(200)
        .json();
    assert_eq!((&me["admin"], &me["token"]), (&json!(true), &json!(null)));

    // Unsafe requests of a browser need the session's own token.
    let create = || world.post("/api/v1/jobs").header("cookie", cookie).json(hello("x"));
    assert_eq!(create().send().await.expect(403).code(), "csrf");
    assert_eq!(
        create().header("x-csrf-token", "AAAA").send().await.expect(403).code(),
        "csrf"
    );
    let stored: Vec<u8> = sqlx::query_scalar("select csrf from sessions")
        .fetch_one(world.db().pool())
        .await
        .unwrap();
    let csrf = data_encoding::BASE64URL_NOPAD.encode(&stored);
    create().header("x-csrf-token", &csrf).send().await.expect(201);
    let foreign = create()
        .header("x-csrf-token", &csrf)
        .header("sec-fetch-site", "cross-site");
    assert_eq!(foreign.send().await.expect(403).code(), "csrf");

    let out = |form: String| world.post("/sign-out").header("cookie", cookie).body(kind, form).send();
    out("csrf=nonsense".into()).await.expect(403);
    out(format!("csrf={csrf}")).await.expect(303);
    world
        .get("/api/v1/me")
        .header("cookie", cookie)
        .send()
        .await
        .expect(401);
}

#[tokio::test]
async fn over_https_the_cookie_is_bound_to_the_host() {
    let settings = trainyard::web::Settings {
        public_url: "https://trainyard.example.org".into(),
        ..Default::default()
    };
    let world = World::with(settings).await;
    let link = bootstrap::signin_link(world.db(), world.admin.user, world.state.actions.now())
        .await
        .unwrap();
    let answer = world
        .post("/sign-in")
        .body("application/x-www-form-urlencoded", format!("link={link}"))
        .send()
        .await;
    assert!(
        answer.header("set-cookie").starts_with("__Host-trainyard="),
        "{}",
        answer.header("set-cookie")
    );
    assert!(answer.header("set-cookie").contains("; Secure"));
    assert!(answer.header("strict-transport-security").contains("max-age"));
}

#[tokio::test]
async fn guessing_links_is_slowed_down() {
    let world = World::new().await;
    let guess = || {
        world
            .post("/sign-in")
            .body("application/x-www-form-urlencoded", "link=guess")
            .send()
    };
    let mut statuses = Vec::new();
    for _ in 0..12 {
        statuses.push(guess().await.status.as_u16());
    }
    assert_eq!((statuses[0], statuses[11]), (401, 429), "{statuses:?}");
    assert!(guess().await.header("retry-after").parse::<u64>().unwrap() >= 1);
    // Behind a proxy the guesser and everybody else have one address: a good link works all the same.
    let link = bootstrap::signin_link(world.db(), world.admin.user, world.state.actions.now())
        .await
        .unwrap();
    let good = world
        .post("/sign-in")
        .body("application/x-www-form-urlencoded", format!("link={link}"));
    assert_eq!(good.send().await.status.as_u16(), 303);
}

#[tokio::test]
async fn a_token_is_shown_once_never_exceeds_its_maker_and_ends_at_once() {
    let world = World::new().await;
    let ada = world.person("Ada", &world.team, Some("owner")).await;
    let make = async |by: &Person, body: serde_json::Value| world.post("/api/v1/tokens").by(by).json(body).send().await;
    make(&ada, json!({ "name": "x", "role": "admin" })).await.expect(403);
    let made = make(&ada, json!({ "name": "weak", "role": "viewer", "team": world.team }))
        .await
        .expect(201)
        .json();
    let weak = Person {
        user: ada.user,
        token: made["token"].as_str().unwrap().to_owned(),
    };
    let listed = world.get("/api/v1/tokens").by(&ada).send().await.expect(200);
    assert!(!listed.text.contains(&weak.token[3..]), "a token is shown once");
    let dump = world
        .count("select count(*) from tokens where encode(hash, 'escape') like '%ty_%'")
        .await;
    assert_eq!(dump, 0);

    world.get("/api/v1/jobs").by(&weak).send().await.expect(200);
    world
        .post("/api/v1/jobs")
        .by(&weak)
        .json(hello("x"))
        .send()
        .await
        .expect(403);
    make(&weak, json!({ "name": "strong", "role": "owner", "team": world.team }))
        .await
        .expect(403);
    make(&weak, json!({ "name": "wide", "role": "viewer" }))
        .await
        .expect(403);
    let until = "2999-01-01T00:00:00Z";
    let short = json!({ "name": "short", "role": "owner", "expires_at": until });
    let short = make(&ada, short).await.expect(201).json();
    let strong = format!("/api/v1/tokens/{}", short["id"].as_str().unwrap());
    world.ask(Method::DELETE, &strong).by(&weak).send().await.expect(403);
    let short = Person {
        user: ada.user,
        token: short["token"].as_str().unwrap().to_owned(),
    };
    let child = make(&short, json!({ "name": "child", "role": "viewer" }))
        .await
        .expect(201)
        .json();
    assert_eq!(
        child["expires_at"], until,
        "a token does not outlive the one that made it"
    );

    let stranger = world.person("Sam", &world.team, None).await;
    let path = format!("/api/v1/tokens/{}", made["id"].as_str().unwrap());
    world.ask(Method::DELETE, &path).by(&stranger).send().await.expect(404);
    world.ask(Method::DELETE, &path).by(&ada).send().await.expect(204);
    world.get("/api/v1/jobs").by(&weak).send().await.expect(401);
}

#[tokio::test]
async fn what_a_token_made_is_revoked_with_it() {
    let world = World::new().await;
    let ada = world.person("Ada", &world.team, Some("member")).await;
    let make = async |by: &Person| {
        let made = world.post("/api/v1/tokens").by(by);
        let made = made.json(json!({ "name": "x", "role": "member" })).send().await;
        let made = made.expect(201).json();
        let person = Person {
            user: ada.user,
            token: made["token"].as_str().unwrap().to_owned(),
        };
        (person, made["id"].as_str().unwrap().to_owned())
    };
    let (first, first_id) = make(&ada).await;
    let (second, second_id) = make(&first).await;
    let (third, third_id) = make(&second).await;
    let (beside, _) = make(&ada).await;
    world.get("/api/v1/me").by(&third).send().await.expect(200);

    let path = format!("/api/v1/tokens/{first_id}");
    world.ask(Method::DELETE, &path).by(&ada).send().await.expect(204);
    for ended in [&first, &second, &third] {
        world.get("/api/v1/me").by(ended).send().await.expect(401);
    }
    for alive in [&ada, &beside] {
        world.get("/api/v1/me").by(alive).send().await.expect(200);
    }
    let audit = world
        .get("/api/v1/audit?action=token.revoke")
        .by(&world.admin)
        .send()
        .await;
    let audit = audit.expect(200).json();
    let ended = |entry: &serde_json::Value| (entry["subject"].clone(), entry["detail"]["with"].clone());
    let mut ended: Vec<_> = audit["items"].as_array().unwrap().iter().map(ended).collect();
    ended.reverse();
    assert_eq!(
        ended,
        [
            (json!(first_id), json!(null)),
            (json!(second_id), json!(first_id)),
            (json!(third_id), json!(first_id)),
        ]
    );
}

#[tokio::test]
async fn access_that_changes_elsewhere_is_noticed() {
    let world = World::new().await;
    let ada = world.person("Ada", &world.team, Some("member")).await;
    world.get("/api/v1/jobs").by(&ada).send().await.expect(200);
    // As another server would do it: the row, and a notification after the commit.
    let revoke = "update tokens set revoked_at = now() where user_id = ";
    world
        .run(&format!("{revoke}'{}'; notify trainyard_access", ada.user.0))
        .await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(20);
    while world.get("/api/v1/jobs").by(&ada).send().await.status != 401 {
        assert!(tokio::time::Instant::now() < deadline, "the revoked token still holds");
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_last_admin_stays_and_a_disabled_person_is_out() {
    let world = World::new().await;
    let change = async |by: &Person, user: &Person, body: serde_json::Value| {
        world
            .ask(Method::PATCH, &format!("/api/v1/users/{}", user.user))
            .by(by)
            .json(body)
            .send()
            .await
    };
    let answer = change(&world.admin, &world.admin, json!({ "admin": false }))
        .await
        .expect(409);
    assert_eq!(answer.code(), "last_one");
    let ada = world.person("Ada", &world.team, Some("member")).await;
    change(&world.admin, &ada, json!({ "disabled": true }))
        .await
        .expect(200);
    world.get("/api/v1/me").by(&ada).send().await.expect(401);
    change(
        &world.admin,
        &ada,
        json!({ "disabled": false, "admin": true, "name": "Ada L." }),
    )
    .await
    .expect(200);
    assert_eq!(
        world.get("/api/v1/me").by(&ada).send().await.expect(200).json()["name"],
        "Ada L."
    );
    change(&world.admin, &world.admin, json!({ "admin": false }))
        .await
        .expect(200);
    change(&world.admin, &ada, json!({ "admin": false })).await.expect(403);
}

#[tokio::test]
async fn a_secret_too_short_to_be_masked_is_stored_with_a_word() {
    let world = World::new().await;
    let body = json!({ "values": { "long": "long enough", "pin": "123" } });
    let put = world.ask(Method::PUT, "/api/v1/secrets/keys").by(&world.admin);
    let warnings = put.json(body).send().await.expect(200).json()["warnings"].clone();
    assert_eq!(warnings.as_array().unwrap().len(), 1, "{warnings}");
    assert!(
        warnings[0].as_str().unwrap().contains("'pin' has fewer than 4 bytes"),
        "{warnings}"
    );
}

#[tokio::test]
async fn a_secret_goes_in_and_never_comes_out() {
    let world = World::new().await;
    const VALUE: &str = "correct-horse-battery-staple";
    let put = async |value: &str| {
        let body = json!({ "values": { "api": value } });
        world
            .ask(Method::PUT, "/api/v1/secrets/keys")
            .by(&world.admin)
            .json(body)
            .send()
            .await
    };
    assert_eq!(put(VALUE).await.expect(200).json()["version"], 1);
    let second = put("another value of the same secret").await.expect(200);
    assert_eq!(second.json()["version"], 2);
    let mut document = hello("uses-it");
    document["env"] = json!({ "KEY": { "secretRef": { "name": "keys", "key": "api" } } });
    let job = world.submit(&world.admin, document.clone()).await;
    let mut told = second.text + &job.to_string();
    let id = job["id"].as_str().unwrap();
    for path in [
        "/api/v1/secrets",
        "/api/v1/audit",
        "/api/v1/jobs",
        &format!("/api/v1/jobs/{id}/events"),
    ] {
        told += &world.get(path).by(&world.admin).send().await.expect(200).text;
    }
    assert!(
        !told.contains(VALUE) && !told.contains("another value"),
        "no answer has a value"
    );
    let stored =
        "select count(*) from secrets s where s::text like '%horse%' or encode(ciphertext, 'escape') like '%horse%'";
    assert_eq!(world.count(stored).await, 0);
    assert_eq!(
        world
            .count("select count(*) from secrets where length(ciphertext) > 0")
            .await,
        2,
        "a running attempt may still print the old value"
    );
    // Nothing runs, so upkeep forgets it.
    let later = Utc::now() + chrono::Duration::minutes(2);
    assert_eq!(upkeep::replaced_secrets(world.db(), later).await.unwrap(), 1);
    assert_eq!(
        world
            .count("select count(*) from secrets where length(ciphertext) > 0")
            .await,
        1,
        "old values are gone"
    );

    // A worker with the key ring reads it, and only for the row that it was sealed for.
    let (row, key, nonce, ciphertext): (Uuid, String, Vec<u8>, Vec<u8>) =
        sqlx::query_as("select id, key_id, nonce, ciphertext from secrets where version = 2")
            .fetch_one(world.db().pool())
            .await
            .unwrap();
    let sealed = Sealed {
        key_id: KeyId::parse(&key).unwrap(),
        nonce: nonce.try_into().unwrap(),
        ciphertext,
    };
    let ring = world.state.actions.keys.ring();
    let plain = ring.decrypt(row, &sealed).unwrap();
    assert_eq!(plain.expose_secret(), br#"{"api":"another value of the same secret"}"#);
    assert!(ring.decrypt(Uuid::nil(), &sealed).is_err());

    world
        .ask(Method::DELETE, "/api/v1/secrets/keys")
        .by(&world.admin)
        .send()
        .await
        .expect(204);
    world
        .ask(Method::DELETE, "/api/v1/secrets/keys")
        .by(&world.admin)
        .send()
        .await
        .expect(404);
    world
        .post("/api/v1/jobs")
        .by(&world.admin)
        .json(document)
        .send()
        .await
        .expect(422);
    assert_eq!(
        put(VALUE).await.expect(200).json()["version"],
        3,
        "a name's versions go on"
    );
}

#[tokio::test]
async fn code_is_stored_once_per_team_and_content() {
    let world = World::new().await;
    let mut builder = tar::Builder::new(Vec::new());
    let script = b"print('hello')\n";
    let mut header = tar::Header::new_gnu();
    header.set_size(script.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, "train.py", &script[..]).unwrap();
    let archive = builder.into_inner().unwrap();
    let send = || {
        world
            .post("/api/v1/code")
            .by(&world.admin)
            .body("application/x-tar", archive.clone())
            .send()
    };
    let first = send().await.expect(201).json();
    assert_eq!(send().await.expect(200).json(), first);
    let digest = first["digest"].as_str().unwrap();
    world
        .get(&format!("/api/v1/code/{digest}"))
        .by(&world.admin)
        .send()
        .await
        .expect(200);
    let mut document = hello("with-code");
    document["code"] = json!({ "upload": digest });
    world.submit(&world.admin, document.clone()).await;

    let second = world.make_team("second").await;
    let ada = world.person("Ada", &second, Some("member")).await;
    world
        .get(&format!("/api/v1/code/{digest}"))
        .by(&ada)
        .send()
        .await
        .expect(404);
    world
        .post("/api/v1/jobs")
        .by(&ada)
        .json(document)
        .send()
        .await
        .expect(422);
    world
        .post("/api/v1/code")
        .by(&ada)
        .body("application/x-tar", archive.clone())
        .send()
        .await
        .expect(201);
    world
        .post("/api/v1/code")
        .by(&ada)
        .body("application/x-tar", "no tar")
        .send()
        .await
        .expect(422);
    world
        .post("/api/v1/code")
        .by(&ada)
        .body("text/plain", "no tar")
        .send()
        .await
        .expect(415);
}
