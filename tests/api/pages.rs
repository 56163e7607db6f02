//! What pages make of records and addresses, where no browser is needed to see it.

use serde_json::json;

use crate::{
    world::{Person, World, hello, raw},
    world_parts::{attempt, cluster, grant, node},
};

/// As browsers write it.
const HTML: (&str, &str) = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");

async fn page(world: &World, person: &Person, path: &str) -> String {
    let ask = world.get(path).by(person).header(HTML.0, HTML.1);
    ask.send().await.expect(200).text
}

/// What the links of rows are called, in the order of the page.
fn rows(html: &str) -> Vec<String> {
    let links = html.split("<a class=\"row\"").skip(1);
    let name = |link: &str| link.split_once('>')?.1.split_once('<').map(|(name, _)| name.to_owned());
    links.filter_map(name).collect()
}

/// Where a link leads that begins so.
fn link(html: &str, begin: &str) -> Option<String> {
    let (_, rest) = html.split_once(begin)?;
    let (_, rest) = rest.split_once("href=\"")?;
    Some(rest.split_once('"')?.0.replace("&#38;", "&"))
}

/// All rows of all pages from one on, and how many pages they were on.
async fn walk(world: &World, person: &Person, path: &str) -> (Vec<String>, usize) {
    let (mut seen, mut pages, mut path) = (Vec::new(), 0, path.to_owned());
    loop {
        let html = page(world, person, &path).await;
        seen.extend(rows(&html));
        pages += 1;
        match link(&html, "<a rel=\"next\"") {
            Some(next) => path = next,
            None => return (seen, pages),
        }
    }
}

#[tokio::test]
async fn jobs_are_read_from_either_end_whatever_the_filter() {
    let world = World::new().await;
    let member = world.person("mia", &world.team, Some("member")).await;
    let (owner, team) = (member.user.0, raw(&world.team));
    world
        .run(&format!(
            "insert into jobs (id, team_id, owner_id, name, labels, document, retention, wanted, phase, reason, message,
                 priority, replicas, cpu_milli, memory_bytes, gpus, event_seq, created_at, queued_at)
             select ('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, '{team}', '{owner}', 'job-' || n,
                 case when n % 2 = 0 then '{{\"even\": \"yes\"}}'::jsonb else '{{}}'::jsonb end, '{{}}',
                 'standard', 'run', 'queued', '', '', 0, 1, 0, 0, 0, 1, now(), now()
             from generate_series(1, 120) n"
        ))
        .await;
    let all: Vec<String> = (1..=120).map(|number| format!("job-{number}")).collect();
    let even: Vec<String> = (1..=60).map(|number| format!("job-{}", 2 * number)).collect();
    for person in [&world.admin, &member] {
        for (filter, expected, pages) in [
            ("", &all, 3),
            ("&state=waiting", &all, 3),
            ("&label=even%3Dyes", &even, 2),
            ("&text=job-", &all, 3),
        ] {
            let oldest = walk(&world, person, &format!("/jobs?sort=submitted{filter}")).await;
            assert_eq!(oldest, (expected.clone(), pages), "{filter}");
            let mut newest = walk(&world, person, &format!("/jobs?sort=-submitted{filter}")).await;
            newest.0.reverse();
            assert_eq!(newest, (expected.clone(), pages), "{filter}");
        }
    }
    let html = page(&world, &member, "/jobs?state=waiting").await;
    assert!(
        html.contains("aria-sort=\"descending\""),
        "the newest come first unless something else is asked"
    );
    let turned = link(&html, "aria-sort=\"descending\"").unwrap();
    assert_eq!(
        turned, "/jobs?state=waiting&sort=submitted",
        "the head turns the order and keeps the filter"
    );
    let html = page(&world, &member, &turned).await;
    assert!(html.contains("aria-sort=\"ascending\""));
    assert!(
        html.contains("<input type=\"hidden\" name=\"sort\" value=\"submitted\">"),
        "the form keeps the order"
    );
}

#[tokio::test]
async fn a_search_from_the_oldest_on_goes_on_behind_its_window() {
    let world = World::new().await;
    let (owner, team) = (world.admin.user.0, raw(&world.team));
    world
        .run(&format!(
            "insert into jobs (id, team_id, owner_id, name, document, retention, wanted, phase, reason, message,
                 priority, replicas, cpu_milli, memory_bytes, gpus, event_seq, created_at, queued_at)
             select ('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, '{team}', '{owner}',
                 case when n = 11990 then 'needle' else 'hay' end, '{{}}',
                 'standard', 'run', 'queued', '', '', 0, 1, 0, 0, 0, 1, now(), now()
             from generate_series(1, 12000) n"
        ))
        .await;
    let found = walk(&world, &world.admin, "/jobs?sort=submitted&text=needle").await;
    assert_eq!(found, (vec!["needle".to_owned()], 2));
}

#[tokio::test]
async fn nodes_sort_by_any_column_over_all_pages() {
    let world = World::new().await;
    let earth = cluster(&world, "earth").await;
    world
        .run(&format!(
            "insert into nodes (id, cluster_id, name, identity, phase, reason, message, allocatable, first_seen_at, observed_at)
             select ('01900000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, '{}', 'n' || lpad(n::text, 3, '0'), n::text,
                 case when n = 77 then 'not_ready' else 'ready' end, '', 'It is well',
                 jsonb_build_object('gpus', n % 8), now(), now() - n * interval '1 second'
             from generate_series(1, 120) n",
            raw(&earth)
        ))
        .await;
    let admin = &world.admin;
    let (worst, pages) = walk(&world, admin, "/nodes?view=table").await;
    assert_eq!(
        (worst.len(), pages, worst[0].as_str(), worst[1].as_str()),
        (120, 3, "n077", "n001")
    );
    let (gpus, _) = walk(&world, admin, "/nodes?view=table&sort=-gpus").await;
    let mut expected: Vec<u32> = (1..=120).collect();
    expected.sort_by_key(|number| (std::cmp::Reverse(number % 8), *number));
    assert_eq!(
        gpus,
        expected
            .iter()
            .map(|number| format!("n{number:03}"))
            .collect::<Vec<_>>()
    );
    let (names, _) = walk(&world, admin, "/nodes?view=table&sort=-name").await;
    assert_eq!(
        (names.len(), names[0].as_str(), names[119].as_str()),
        (120, "n120", "n001")
    );
    let (seen, _) = walk(&world, admin, "/nodes?view=table&sort=seen").await;
    assert_eq!(seen[0], "n120", "what was not seen for longest");
}

#[tokio::test]
async fn clusters_sort_too() {
    let world = World::new().await;
    for name in ["mars", "earth", "venus"] {
        cluster(&world, name).await;
    }
    let (names, _) = walk(&world, &world.admin, "/clusters?sort=name").await;
    assert_eq!(names, ["earth", "mars", "venus"]);
    let (names, _) = walk(&world, &world.admin, "/clusters?sort=-name").await;
    assert_eq!(names, ["venus", "mars", "earth"]);
}

#[tokio::test]
async fn what_was_wrong_with_its_nodes_stands_on_a_jobs_timeline() {
    let world = World::new().await;
    let earth = cluster(&world, "earth").await;
    let (bad, other) = (node(&world, &earth, "bad").await, node(&world, &earth, "other").await);
    let job = world.submit(&world.admin, hello("one")).await["id"]
        .as_str()
        .unwrap()
        .to_owned();
    attempt(&world, &job, &earth, &bad).await;
    for id in [&bad, &other] {
        let pressure = json!({ "type": "MemoryPressure", "status": "true", "severity": "warning" });
        world
            .run(&format!(
                "insert into events (class, owner_id, seq, owner_kind, at, kind, message, data) values
                 ('installation', '{0}', 1, 'node', now(), 'condition.changed', 'Memory is short', '{pressure}'),
                 ('installation', '{0}', 2, 'node', now(), 'node.phase', 'The kubelet is silent', '{{\"to\": \"not_ready\"}}')",
                raw(id)
            ))
            .await;
    }
    let html = page(&world, &world.admin, &format!("/jobs/{job}")).await;
    for words in [
        "Node bad, memory pressure: ",
        "Node bad, not ready: ",
        "The kubelet is silent, from ",
    ] {
        assert!(html.contains(words), "{words}");
    }
    assert!(!html.contains("Node other"), "no replica was there");
}

#[tokio::test]
async fn a_check_tells_what_means_nothing_where_the_job_would_run() {
    let world = World::new().await;
    let machine = cluster(&world, "machine").await;
    grant(&world, &machine, &world.team).await;
    let mut document = hello("portable");
    document["roles"][0]["image"] = serde_json::json!("a:1");
    let encoded: String = (document.to_string().bytes())
        .map(|byte| format!("%{byte:02X}"))
        .collect();
    let ask = world.post("/jobs/new").by(&world.admin).header(HTML.0, HTML.1);
    let form = format!("do=check&document={encoded}");
    let ask = ask.body("application/x-www-form-urlencoded", form);
    let checked = ask.send().await.expect(200).text;
    assert!(
        checked.contains("(roles[0].image).</li>") && checked.contains("This document is sound"),
        "{checked}"
    );
}

#[tokio::test]
async fn a_form_that_meets_a_database_that_is_away_is_sent_again_as_it_was() {
    let world = World::new().await;
    let document = format!("{}\n", hello("kept"));
    let encoded: String = document.bytes().map(|byte| format!("%{byte:02X}")).collect();
    let submit = |wish: &str| {
        let form = format!("do={wish}&document={encoded}");
        let ask = world.post("/jobs/new").by(&world.admin).header(HTML.0, HTML.1);
        let ask = ask.header("content-length", &form.len().to_string());
        ask.body("application/x-www-form-urlencoded", form).send()
    };
    let sound = submit("check").await.expect(200);
    assert!(sound.text.contains("This document is sound"));
    world.db().pool().close().await;
    let away = submit("submit").await.expect(503);
    let typed = document.replace('"', "&#34;");
    for words in [
        "The database is away",
        "action=\"/jobs/new\"",
        &format!("\n{typed}</textarea>"),
        "name=\"do\" value=\"submit\"",
    ] {
        assert!(away.text.contains(words), "{words}: {}", away.text);
    }
    let read = world
        .get("/jobs")
        .by(&world.admin)
        .header(HTML.0, HTML.1)
        .send()
        .await
        .expect(503);
    assert!(read.text.contains("Try again") && !read.text.contains("<textarea"));
}

#[tokio::test]
async fn who_may_not_is_told_what_it_needs_and_who_gives_it() {
    let world = World::new().await;
    let viewer = world.person("vi", &world.team, Some("viewer")).await;
    let ask = world.get("/jobs/new").by(&viewer).header(HTML.0, HTML.1);
    let refused = ask.send().await.expect(403).text;
    for words in [
        "<h1>Not allowed</h1>",
        "This needs the role member in some team.",
        "An owner of the team, or an admin, can give you that role.",
    ] {
        assert!(refused.contains(words), "{words}: {refused}");
    }
    assert!(!refused.contains("Try again"), "trying again does not help");
}

#[tokio::test]
async fn the_page_of_numbers_links_to_a_table_that_is_there() {
    let world = World::new().await;
    let earth = cluster(&world, "earth").await;
    let node = node(&world, &earth, "one").await;
    world
        .run(&format!(
            "insert into metric_chunks (class, owner_id, attempt, role, index, series, seq, steps, times, vals, first_at, last_at, sealed)
             select 'installation', '{}', 0, '', 0, 'load', 1, array[null::bigint], array[(extract(epoch from now()) * 1000)::bigint],
                 array[0.5], now(), now(), false",
            raw(&node)
        ))
        .await;
    let html = page(&world, &world.admin, &format!("/nodes/{node}/numbers/load")).await;
    let table = html.split("href=\"").find(|link| link.contains("format=csv")).unwrap();
    let table = table.split('"').next().unwrap().replace("&#38;", "&");
    let rows = page(&world, &world.admin, &table).await;
    assert_eq!(rows.lines().count(), 2, "{rows}");
    assert!(rows.ends_with(",0.5\r\n"), "{rows}");
}
