//! Teams, tokens and the audit log on their pages: the API's words and bounds, and nothing that was typed is lost.

use serde_json::json;
use trainyard::db::queue;
use trainyard_core::model::ClusterId;

use crate::{
    world::{Answer, Person, World, hello, raw},
    world_parts::{cluster, grant},
};

const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

async fn page(world: &World, person: &Person, path: &str) -> String {
    let ask = world.get(path).by(person).header(HTML.0, HTML.1);
    ask.send().await.expect(200).text
}

async fn send(world: &World, person: &Person, path: &str, fields: &str) -> Answer {
    let ask = world.post(path).by(person).header(HTML.0, HTML.1);
    let ask = ask.header("content-length", &fields.len().to_string());
    ask.body("application/x-www-form-urlencoded", fields.to_owned())
        .send()
        .await
}

#[tokio::test]
async fn a_teams_page_has_the_forms_that_its_reader_may_send() {
    let world = World::new().await;
    let earth = cluster(&world, "earth").await;
    let path = format!("/teams/{}", world.team);
    let roles = [Some("viewer"), Some("member"), Some("owner")];
    let forms = ["/members\"", "/grants\"", "/secrets\""];
    for (role, shown) in roles
        .into_iter()
        .zip([[false; 3], [false, false, true], [true, false, true]])
    {
        let person = world.person(role.unwrap(), &world.team, role).await;
        let html = page(&world, &person, &path).await;
        assert_eq!(
            forms.map(|form| html.contains(&format!("{path}{form}"))),
            shown,
            "{role:?}"
        );
        assert!(html.contains(&format!("You are {} in it", role.unwrap())));
    }
    let html = page(&world, &world.admin, &path).await;
    assert!(forms.iter().all(|form| html.contains(&format!("{path}{form}"))));
    send(
        &world,
        &world.admin,
        &format!("{path}/grants"),
        &format!("cluster={earth}&level=privileged"),
    )
    .await
    .expect(303);
    let html = page(&world, &world.admin, &path).await;
    assert!(html.contains(&format!(
        "<a href=\"/clusters/{earth}\">earth</a></td><td data-name=\"Level\">privileged"
    )));
}

#[tokio::test]
async fn a_refused_form_keeps_what_was_typed_and_says_it_in_the_apis_words() {
    let world = World::new().await;
    let path = format!("/teams/{}/secrets", world.team);
    let answer = send(
        &world,
        &world.admin,
        &path,
        "name=wandb&key=my+key&value=kept-value&key=&value=",
    )
    .await;
    let html = answer.expect(422).text;
    let body = json!({ "values": { "my key": "kept-value" } });
    let ask = world.ask(axum::http::Method::PUT, "/api/v1/secrets/wandb?team=default");
    let api = ask.by(&world.admin).json(body).send().await.expect(422).json();
    let words = api["errors"][0]["message"].as_str().unwrap().replace('\'', "&#39;");
    for part in [
        &format!("<code>values.my key</code>: {words}"),
        "value=\"wandb\"",
        "value=\"my key\"",
        "kept-value</textarea>",
    ] {
        assert!(html.contains(part), "{part}: {html}");
    }
    let twice = send(&world, &world.admin, &path, "name=wandb&key=a&value=1&key=a&value=2").await;
    assert!(twice.expect(422).text.contains("this key stands here twice"));
    assert_eq!(world.count("select count(*) from secrets").await, 0);

    let nobody = send(
        &world,
        &world.admin,
        &format!("/teams/{}/members", world.team),
        "user=maya&role=owner",
    )
    .await;
    let html = nobody.expect(422).text;
    assert!(
        html.contains("value=\"maya\"") && html.contains("<option value=\"owner\" selected>"),
        "{html}"
    );
}

#[tokio::test]
async fn a_secret_is_put_by_its_form_and_never_read_back() {
    let world = World::new().await;
    let team = format!("/teams/{}", world.team);
    let put = send(
        &world,
        &world.admin,
        &format!("{team}/secrets"),
        "name=ssh&key=id&value=a%0D%0Ab&key=p&value=xyz",
    )
    .await;
    assert_eq!(put.expect(303).header("location"), format!("{team}?done=put-short"));
    let html = page(&world, &world.admin, &format!("{team}?secret=ssh")).await;
    for part in ["<code>id</code> <code>p</code>", "value=\"ssh\"", "value=\"id\""] {
        assert!(html.contains(part), "{part}");
    }
    assert!(!html.contains("xyz"));
    // What is forgotten is named first.
    let forget = format!("{team}/secrets/ssh/delete");
    let wrong = send(&world, &world.admin, &forget, "name=shh").await.expect(422).text;
    assert!(wrong.contains("The name that was typed"), "{wrong}");
    send(&world, &world.admin, &forget, "name=ssh").await.expect(303);
    assert_eq!(
        world
            .count("select count(*) from secrets where deleted_at is null")
            .await,
        0
    );
}

#[tokio::test]
async fn a_token_is_shown_once_and_ends_by_its_page() {
    let world = World::new().await;
    let mia = world.person("mia", &world.team, Some("member")).await;
    let made = send(
        &world,
        &mia,
        "/settings/tokens",
        "name=ci&role=viewer&team=default&days=7",
    )
    .await;
    let token = made.expect(200).text;
    let token = token
        .split("<code>ty_")
        .nth(1)
        .expect("it is shown")
        .split('<')
        .next()
        .unwrap();
    let html = page(&world, &mia, "/settings").await;
    assert!(html.contains(">ci<") && !html.contains(token), "it is shown once");
    let refused = send(&world, &mia, "/settings/tokens", "name=ci&role=viewer&team=&days=0").await;
    let refused = refused.expect(422).text;
    assert!(
        refused.contains("1 to 3,650 days") && refused.contains("value=\"ci\""),
        "{refused}"
    );
    let revoke = html.split("href=\"").find(|link| link.contains("/revoke\"")).unwrap();
    let revoke = revoke.split('"').next().unwrap();
    assert!(page(&world, &mia, revoke).await.contains("Revoke ci?"));
    send(&world, &mia, revoke, "").await.expect(303);
    assert!(page(&world, &mia, "/settings").await.contains(">revoked<"));
}

#[tokio::test]
async fn the_audit_page_sifts_and_pages_as_the_api_does() {
    let world = World::new().await;
    let mia = world.person("mia", &world.team, Some("owner")).await;
    world
        .run(&format!(
            "insert into audit (class, id, at, actor_id, action, subject_kind, subject_id, team_id, detail)
             select 'installation', ('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid,
                 '2026-01-01T00:00:00Z'::timestamptz + n * interval '1 hour', '{}', 'job.cancel', 'job', gen_random_uuid(), '{}',
                 jsonb_build_object('number', n)
             from generate_series(1, 120) n",
            mia.user.0,
            crate::world::raw(&world.team)
        ))
        .await;
    let numbers = |html: &str| -> Vec<u32> {
        let details = html.split("data-name=\"Detail\">number: ").skip(1);
        details
            .map(|rest| rest.split('<').next().unwrap().parse().unwrap())
            .collect()
    };
    let mut path = format!(
        "/audit?actor={}&since=2026-01-01+11:00&until=2026-01-05&action=job.cancel",
        mia.user
    );
    let (mut seen, mut pages) = (Vec::new(), 0);
    loop {
        let html = page(&world, &mia, &path).await;
        seen.extend(numbers(&html));
        pages += 1;
        let Some((_, next)) = html.split_once("<a rel=\"next\" href=\"") else {
            break;
        };
        path = next.split('"').next().unwrap().replace("&#38;", "&");
    }
    let expected: Vec<u32> = (11..=95).rev().collect();
    assert_eq!((seen, pages), (expected.clone(), 2));
    let query = format!(
        "?actor={}&since=2026-01-01T11:00:00Z&until=2026-01-05T00:00:00Z&limit=200",
        mia.user
    );
    let api = world
        .get(&format!("/api/v1/audit{query}"))
        .by(&mia)
        .send()
        .await
        .expect(200)
        .json();
    let items = api["items"].as_array().unwrap();
    assert_eq!(
        items.iter().filter(|item| item["action"] == "job.cancel").count(),
        expected.len()
    );
    let subject = items[0]["subject"].as_str().unwrap();
    let one = page(&world, &mia, &format!("/audit?subject={subject}")).await;
    assert_eq!(numbers(&one), [95]);
    for (query, words) in [
        ("since=soon", "This is no day or time"),
        ("actor=maya", "no user"),
        ("subject=x", "no id of a thing"),
    ] {
        let ask = world.get(&format!("/audit?{query}")).by(&mia).header(HTML.0, HTML.1);
        let told = ask.send().await.expect(400).text;
        assert!(told.to_lowercase().contains(&words.to_lowercase()), "{words}: {told}");
    }
}

#[tokio::test]
async fn a_cluster_that_is_taken_away_starts_nothing_that_waits_for_it() {
    let world = World::new().await;
    let earth = cluster(&world, "earth").await;
    grant(&world, &earth, &world.team).await;
    let any = world.submit(&world.admin, hello("any")).await;
    let mut named = hello("named");
    named["cluster"] = json!("earth");
    let named = world.submit(&world.admin, named).await;
    let id = |job: &serde_json::Value| job["id"].as_str().unwrap().to_owned();
    world
        .run(&format!(
            "update jobs set cluster_id = '{}' where id = '{}'",
            raw(&earth),
            raw(&id(&any))
        ))
        .await;
    let waits = async || {
        let id = ClusterId(raw(&earth));
        let rows = queue::front(world.db(), id, None, 10, chrono::Utc::now())
            .await
            .unwrap();
        rows.into_iter().map(|row| row.name).collect::<Vec<_>>()
    };
    assert_eq!(waits().await, ["any", "named"]);

    let path = format!("/api/v1/clusters/{earth}/grants/{}", world.team);
    world
        .ask(axum::http::Method::DELETE, &path)
        .by(&world.admin)
        .send()
        .await
        .expect(204);
    assert!(waits().await.is_empty());
    // One may go elsewhere; the other one wants this cluster and no other, and says what it lacks.
    let job = world
        .get(&format!("/api/v1/jobs/{}", id(&any)))
        .by(&world.admin)
        .send()
        .await;
    assert_eq!(job.expect(200).json()["cluster"], json!(null));
    let why = world
        .get(&format!("/api/v1/jobs/{}/why", id(&named)))
        .by(&world.admin)
        .send()
        .await;
    assert!(why.expect(200).text.contains("has no grant for the cluster earth"));

    grant(&world, &earth, &world.team).await;
    assert_eq!(waits().await, ["named"]);
}
