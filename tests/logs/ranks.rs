//! What one rank of `mpirun` printed, out of the launcher's output, in every way that output is read.

use futures::TryStreamExt;
use percent_encoding::percent_decode_str;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde_json::json;
use trainyard::{
    db::{Scope, logs::StreamRow},
    hub::logs::Slow,
    logs::{
        download::{self, Shape},
        line::LogLine,
        merge::Begin,
        page::{Filter, LOOK, Page, Query, before, page},
        position::Position,
        search::{Limits, Needle, search},
        stream::From,
    },
    runtimes::OutputRef,
    web::pages::logs::{LogsPage, LogsQuery, load::load},
};

use crate::{
    follow::{Browser, server, worker},
    world::{World, at},
};

/// Two attempts of a launcher whose four ranks speak in turn, twice in a line, and not at all; the last line has no end.
async fn mixed(world: &World, random: &mut StdRng) -> Vec<OutputRef> {
    let mut all = Vec::new();
    let mut round = 0;
    for attempt in 1..=2 {
        let outputs = world.attempt_of(attempt, "launcher", 1).await;
        let (mut ingest, holding) = world.worker().await;
        for _ in 0..60 {
            for (output, stream) in outputs.iter().zip(["stdout", "stderr"]) {
                let mut text = String::new();
                for line in 0..random.random_range(0..12) {
                    let mut said = |round: i32| {
                        let rank = random.random_range(0..4);
                        format!("[1,{rank}]<{stream}>:round {round} line {line}")
                    };
                    text.push_str(&match (round + line) % 7 {
                        0 => "mpirun itself\n".to_owned(),
                        1 => format!("{}{}\n", said(round), said(round)),
                        // Its tag is overwritten where a terminal shows it.
                        2 => format!("{}\r50%\r100%\n", said(round)),
                        _ => format!("{}\n", said(round)),
                    });
                }
                // Lines that are torn between flushes.
                if random.random_ratio(1, 3) {
                    text.push_str("[1,2]<");
                    world.runtime.write(output, text.as_bytes());
                    ingest.flush(&holding, at(round.into()), true).await.expect("a flush");
                    round += 1;
                    text = format!("{stream}>:torn in {round}\n");
                }
                world.runtime.write(output, text.as_bytes());
            }
            ingest.flush(&holding, at(round.into()), true).await.expect("a flush");
            round += random.random_range(1..2000);
        }
        world.runtime.write(&outputs[0], b"[1,3]<stdout>:no end");
        ingest.flush(&holding, at(round.into()), true).await.expect("a flush");
        round += 1;
        all.extend(outputs);
    }
    all
}

fn query(mpi_rank: Option<u32>) -> Query {
    Query {
        begin: Begin::From(From::Start),
        until: None,
        lines: usize::MAX,
        bytes: usize::MAX,
        mpi_rank,
        look: LOOK,
    }
}

async fn read(world: &World, streams: &[StreamRow], query: &Query) -> (Page, Vec<LogLine>) {
    let page = page(&world.db, streams, query).await.expect("a page");
    let lines = page.lines(streams, true);
    (page, lines)
}

/// The definition, written down slowly. Lines are read raw here, so that tags are in them.
fn of(rank: u32, whole: &[LogLine]) -> Vec<LogLine> {
    let tags = [format!("[1,{rank}]<stdout>:"), format!("[1,{rank}]<stderr>:")];
    let speaks = |line: &&LogLine| tags.iter().any(|tag| line.text.contains(tag));
    whole.iter().filter(speaks).cloned().collect()
}

fn millis(line: &LogLine) -> i64 {
    line.at
        .parse::<chrono::DateTime<chrono::Utc>>()
        .expect("a time")
        .timestamp_millis()
}

fn finished(lines: &[LogLine]) -> Vec<LogLine> {
    lines.iter().filter(|line| !line.partial).cloned().collect()
}

#[tokio::test]
async fn a_ranks_lines_are_the_same_in_pages_tails_downloads_and_searches() {
    let mut random = StdRng::seed_from_u64(31);
    let world = World::new().await;
    mixed(&world, &mut random).await;
    let every = world.streams().await;
    let (_, whole) = read(&world, &every, &query(None)).await;
    assert!(of(3, &whole).len() > 100 && of(3, &whole).len() < whole.len() / 2);
    for rank in [0, 3, 7] {
        let expected = of(rank, &whole);
        let (page, lines) = read(&world, &every, &query(Some(rank))).await;
        assert!(lines == expected && !page.more, "rank {rank}");

        // Pages of odd sizes that look at little.
        let mut asked = query(Some(rank));
        let mut found = Vec::new();
        loop {
            asked.lines = random.random_range(1..40);
            asked.look = random.random_range(1..4000);
            let (page, lines) = read(&world, &every, &asked).await;
            assert!(lines.len() <= asked.lines);
            found.extend(lines);
            asked.begin = Begin::Position(page.next.to_string().parse().expect("a position"));
            if !page.more {
                break;
            }
        }
        // What has no end has no place, and is told with every page that reaches it.
        assert!(finished(&found) == finished(&expected), "rank {rank} in pages");

        for _ in 0..20 {
            let since = millis(&whole[random.random_range(0..whole.len())]);
            let mut asked = query(Some(rank));
            asked.begin = Begin::From(From::Time(since));
            let (_, lines) = read(&world, &every, &asked).await;
            let after: Vec<LogLine> = expected.iter().filter(|line| millis(line) >= since).cloned().collect();
            assert!(lines == after, "rank {rank} since {since}");

            let count = random.random_range(0..200);
            asked.begin = Begin::From(From::Tail(count as u64));
            asked.look = 32_000; // all that there is, and more than the first stretches
            let (page, lines) = read(&world, &every, &asked).await;
            assert!(
                lines == expected[expected.len().saturating_sub(count)..],
                "rank {rank}, {count}"
            );
            assert_eq!(page.older, count < expected.len());
            // Nothing lies behind a tail, and nothing of the unfinished line is lost.
            let mut behind = query(Some(rank));
            behind.begin = Begin::Position(page.next);
            assert_eq!(finished(&read(&world, &every, &behind).await.1), []);

            asked.until = Some(before(&every, &Begin::From(From::Time(since))));
            let (_, lines) = read(&world, &every, &asked).await;
            let mut earlier = finished(&expected);
            earlier.retain(|line| millis(line) < since);
            assert!(
                lines == earlier[earlier.len().saturating_sub(count)..],
                "rank {rank} until {since}"
            );
        }

        for (shape, count) in [(Shape::Text, 0), (Shape::Ndjson { raw: true }, 1)] {
            let parts = download::lines(&world.db, every.clone(), Begin::From(From::Start), shape, Some(rank));
            let parts: Vec<bytes::Bytes> = parts.try_collect().await.expect("a download");
            let text = String::from_utf8(parts.concat()).expect("text");
            assert_eq!(text.lines().count(), expected.len(), "rank {rank} in a download");
            if count == 1 {
                let lines = text
                    .lines()
                    .map(|line| serde_json::from_str::<LogLine>(line).expect(line));
                assert!(lines.eq(expected.iter().cloned()));
            }
        }

        for (pattern, is_regex) in [("line 3", false), (r"line [3-5](\D|$)", true)] {
            let needle = Needle::new(pattern, is_regex, false)
                .expect("a pattern")
                .said_by(Some(rank));
            let matches = regex::Regex::new(pattern).expect("a regex");
            let limits = Limits {
                lines: 7,
                lines_per_stream: 10_000,
                ..Limits::default()
            };
            let (mut found, mut cursor) = (Vec::new(), None);
            loop {
                let part = search(&world.db, &every, &needle, cursor, limits)
                    .await
                    .expect("a search");
                found.extend(part.groups.into_iter().flat_map(|group| group.lines));
                cursor = part.next;
                if cursor.is_none() {
                    break;
                }
            }
            let places = |lines: &[LogLine]| -> Vec<(i32, &'static str, u64)> {
                let place = |line: &LogLine| (line.attempt, line.stream.as_str(), line.offset);
                let mut places: Vec<_> = lines.iter().map(place).collect();
                places.sort_unstable();
                places
            };
            let expected: Vec<LogLine> = expected
                .iter()
                .filter(|line| matches.is_match(&line.text))
                .cloned()
                .collect();
            assert_eq!(places(&found), places(&expected), "{pattern} of rank {rank}");
        }
    }
}

#[tokio::test]
async fn a_rank_that_speaks_rarely_is_read_in_bounded_steps_from_both_ends() {
    let world = World::new().await;
    let outputs = world.attempt_of(1, "launcher", 1).await;
    let (mut ingest, holding) = world.worker().await;
    for round in 0..200 {
        let mut text = "[1,0]<stdout>:a line that nobody asked for\n".repeat(100);
        if round % 60 == 5 {
            text.push_str(&format!("[1,1]<stdout>:round {round}\n"));
        }
        world.runtime.write(&outputs[0], text.as_bytes());
        ingest.flush(&holding, at(round), true).await.expect("a flush");
    }
    let every = world.streams().await;
    let total = every.iter().map(|row| row.bytes).sum::<u64>();
    let texts = |lines: &[LogLine]| -> Vec<String> { lines.iter().map(|line| line.text.clone()).collect() };
    let wanted = [5, 65, 125, 185].map(|round| format!("[1,1]<stdout>:round {round}"));
    let look = 64 << 10;

    let mut asked = Query { look, ..query(Some(1)) };
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let (page, lines) = read(&world, &every, &asked).await;
        found.extend(texts(&lines));
        asked.begin = Begin::Position(page.next);
        pages += 1;
        if !page.more {
            break;
        }
    }
    assert_eq!(found, wanted);
    let steps = total / look;
    assert!(
        (steps / 2..=steps * 2).contains(&pages),
        "{pages} pages of {steps} steps"
    );

    asked.begin = Begin::From(From::Tail(4));
    let (mut found, mut pages) = (Vec::new(), 0);
    loop {
        let (page, lines) = read(&world, &every, &asked).await;
        found.extend(texts(&lines).into_iter().rev());
        pages += 1;
        if !page.older {
            break;
        }
        // Both ways to go on are one.
        let start = page.start(&every);
        let since = page.looked_since.expect("fewer lines than asked for, and a time");
        assert_eq!(start, before(&every, &Begin::From(From::Time(since))));
        asked.until = Some(start);
    }
    found.reverse();
    assert_eq!(found, wanted);
    assert!(
        (steps / 2..=steps * 2).contains(&pages),
        "{pages} tails of {steps} steps"
    );

    // With all that is looked at, one tail has them.
    let tail = Query {
        begin: Begin::From(From::Tail(3)),
        ..query(Some(1))
    };
    let (page, lines) = read(&world, &every, &tail).await;
    assert_eq!(texts(&lines), wanted[1..]);
    assert!(page.older && page.looked_since.is_none());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_of_a_rank_gets_each_of_its_lines_once() {
    let world = World::new().await;
    let outputs = world.attempt_of(1, "launcher", 1).await;
    let working = worker(&world).await;
    let running = server(&world);
    let said = |number: i32| {
        let rank = number % 4;
        let end = if number % 3 == 0 { "\r100%\n" } else { "\n" };
        format!("[1,{rank}]<stdout>:number {number}{end}")
    };
    let printing = async {
        for number in 0..800 {
            world.runtime.write(&outputs[0], said(number).as_bytes());
            if number % 8 == 0 {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        }
        world.runtime.write(&outputs[0], b"[1,2]<stdout>:no end");
        for output in &outputs {
            world.runtime.end(output);
        }
        world.end_attempt(outputs[0].attempt).await;
        world.end_job().await;
    };
    let reading = async {
        let filter = Filter {
            rank: Some(2),
            ..Filter::default()
        };
        let mut random = StdRng::seed_from_u64(5);
        let (mut numbers, mut id, mut unfinished): (Vec<u64>, Option<String>, usize) = (Vec::new(), None, 0);
        loop {
            let begin = match &id {
                None => Begin::From(From::Start),
                Some(id) => Begin::Position(id.parse::<Position>().expect("a position")),
            };
            let stream = running
                .hub
                .follow_logs(world.key, filter.clone().under_mpirun(), begin, Slow::ReadsAll);
            let mut browser = Browser::new(stream);
            for _ in 0..random.random_range(1..12) {
                let Some(message) = browser.next().await else { break };
                if message.event == "end" {
                    return (numbers, unfinished);
                }
                for line in &message.data {
                    match line["partial"] == json!(true) {
                        true => unfinished += 1,
                        false => numbers.push(line["line"].as_u64().expect("a line") - 1),
                    }
                }
                id = message.id.or(id);
            }
        }
    };
    let ((), (numbers, unfinished)) = tokio::join!(printing, reading);
    assert_eq!(numbers, (0..800).filter(|number| number % 4 == 2).collect::<Vec<_>>());
    assert!(unfinished > 0, "what has no end is shown, too");
    working.cancel();
}

#[tokio::test]
async fn the_page_of_an_mpi_jobs_output_keeps_the_rank_that_is_chosen() {
    let world = World::new().await;
    let document = json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "pi", "framework": "mpi",
        "roles": [
            { "name": "launcher", "replicas": 1, "command": ["mpirun"] },
            { "name": "worker", "replicas": 4, "command": ["true"] },
        ],
    });
    sqlx::query("update jobs set document = $1::text::json")
        .bind(document.to_string())
        .execute(world.db.pool())
        .await
        .expect("a document");
    let outputs = world.attempt_of(1, "launcher", 1).await;
    let (mut ingest, holding) = world.worker().await;
    for round in 0..400 {
        let text: String = (0..12)
            .map(|line| format!("[1,{}]<stdout>:{round} {line}\n", line % 3))
            .collect();
        world.runtime.write(&outputs[0], text.as_bytes());
        ingest.flush(&holding, at(round), true).await.expect("a flush");
    }
    let show = async |query: LogsQuery| -> LogsPage {
        let shown = load(&world.db, &Scope::Everything, world.job, &query, at(1000)).await;
        shown.expect("a page")
    };
    let rank = |rank: &str| LogsQuery {
        rank: Some(rank.to_owned()),
        ..LogsQuery::default()
    };
    let text = |page: &LogsPage| -> Vec<String> {
        let of_row =
            |row: &trainyard::web::pages::logs::LogRow| row.segments.iter().map(|part| part.text.as_str()).collect();
        page.rows.iter().map(of_row).collect()
    };
    let mut page = show(rank("2")).await;
    let offered: Vec<(String, bool)> = (page.ranks.iter())
        .map(|one| (one.value.clone(), one.selected))
        .collect();
    let wanted = ["", "0", "1", "2", "3"].map(|value| (value.to_owned(), value == "2"));
    assert_eq!(offered, wanted);
    let mut all = text(&page);
    while let Some(link) = page.older.clone() {
        let (_, position) = link.split_once("&before=").expect("a position");
        assert!(link.contains("&rank=2&"), "{link}");
        let position = percent_decode_str(position).decode_utf8().expect("text").into_owned();
        page = show(LogsQuery {
            before: Some(position),
            ..rank("2")
        })
        .await;
        all.splice(0..0, text(&page));
    }
    let expected: Vec<String> = (0..400)
        .flat_map(|round| {
            (0..12)
                .filter(|line| line % 3 == 2)
                .map(move |line| format!("[1,2]<stdout>:{round} {line}"))
        })
        .collect();
    assert!(all == expected, "{} of {} lines", all.len(), expected.len());
    assert!(page.download.ends_with("?attempt=1&rank=2"), "{}", page.download);
    assert!(
        page.viewer_config.contains("/logs/live?attempt=1&rank=2&from="),
        "{}",
        page.viewer_config
    );

    // A slot's output is its rank's.
    let slot = LogsQuery {
        replica: Some("worker-2".to_owned()),
        ..LogsQuery::default()
    };
    assert_eq!(text(&show(slot).await), expected[expected.len() - 500..]);
    let silent = show(rank("3")).await;
    assert_eq!(
        (silent.rows.len(), silent.none.as_str()),
        (0, "Rank 3 of mpirun has printed nothing.")
    );
    let found = show(LogsQuery {
        search: Some("]<stdout>:399 ".to_owned()),
        ..rank("2")
    })
    .await;
    let found = found.found.expect("a search");
    assert_eq!(found.groups.len(), 1);
    assert_eq!(found.groups[0].hits.len(), 4, "{}", found.summary);
}
