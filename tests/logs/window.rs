//! The page of a job's output without JavaScript: its links lead through all of it, in both directions.

use percent_encoding::percent_decode_str;
use trainyard::{
    db::Scope,
    web::pages::logs::{LogsPage, LogsQuery, load::load},
};

use crate::world::{World, at};

/// A flush of more lines than a page has, so that no time tells them apart.
#[tokio::test]
async fn links_to_older_and_newer_lines_skip_and_repeat_none() {
    let world = World::new().await;
    let outputs = world.attempt(1, 2).await;
    let (mut ingest, holding) = world.worker().await;
    for round in 0..2 {
        for output in &outputs {
            world.runtime.write(output, "a line\n".repeat(700).as_bytes());
        }
        ingest.flush(&holding, at(round), true).await.expect("a flush");
    }
    let show = async |query: LogsQuery| {
        let shown = load(&world.db, &Scope::Everything, world.job, &query, at(1000)).await;
        shown.expect("a page")
    };
    let anchors = |page: &LogsPage| -> Vec<String> { page.rows.iter().map(|row| row.anchor.clone()).collect() };

    let mut page = show(LogsQuery::default()).await;
    let mut back = vec![anchors(&page)];
    while let Some(link) = &page.older {
        page = show(LogsQuery {
            before: Some(value(link, "before")),
            ..LogsQuery::default()
        })
        .await;
        back.push(anchors(&page));
        assert!(back.len() < 20, "an end is reached");
    }
    back.reverse();
    let mut forward = vec![anchors(&page)];
    while let Some(link) = &page.newer {
        page = show(LogsQuery {
            since: Some(value(link, "since")),
            ..LogsQuery::default()
        })
        .await;
        forward.push(anchors(&page));
        assert!(forward.len() < 20, "an end is reached");
    }
    let (back, forward) = (back.concat(), forward.concat());
    assert_eq!(back.len(), 2 * 4 * 700);
    assert_eq!(back, forward);
    let mut once = back.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), back.len());
}

fn value(link: &str, name: &str) -> String {
    let (_, value) = link.split_once(&format!("&{name}=")).expect(link);
    percent_decode_str(value).decode_utf8().expect(link).into_owned()
}
