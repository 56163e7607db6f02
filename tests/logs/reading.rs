//! However rows are cut, the same lines are read: from anywhere, in pages, merged, searched, downloaded.

use std::time::Duration;

use futures::TryStreamExt;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use trainyard::{
    db::{
        Scope,
        logs::{self, StreamRow, keep},
    },
    logs::{
        download::{self, Shape},
        line::{Form, LogLine},
        merge::Begin,
        page::{Filter, LOOK, Page, Query, before, page, streams},
        search::{Limits, Needle, search},
        stream::From,
    },
    runtimes::OutputRef,
    worker::seal::{self, StreamToSeal},
};
use trainyard_core::model::{LogStream, Retention};

use crate::world::{World, at};

const LONGEST: usize = 64 * 1024;

/// (line, offset, text, missing, partial): what a reader should get of a stream's bytes.
type Shown = (u64, u64, String, u64, bool);

/// The definition of lines, written down slowly.
fn expected_lines(bytes: &[u8]) -> Vec<Shown> {
    let mut lines = Vec::new();
    let mut offset = 0;
    let mut rest = bytes;
    while !rest.is_empty() {
        let end = rest.iter().position(|&byte| byte == b'\n');
        let line = &rest[..end.unwrap_or(rest.len())];
        // A progress bar that grew too long is its newest state, from the return before it on.
        let ends = |bytes: &[u8]| bytes.iter().rposition(|&byte| byte != b'\r').map_or(0, |at| at + 1);
        let newest = line[..ends(line)].iter().rposition(|&byte| byte == b'\r').unwrap_or(0);
        let line = if line.len() > LONGEST { &line[newest..] } else { line };
        let mut kept = &line[..line.len().min(LONGEST)];
        if line.len() > LONGEST {
            // Not a torn character at the end: dropping up to three bytes makes the text end well.
            for drop in 0..4 {
                let tail = &kept[kept.len() - drop..];
                let begins = std::str::from_utf8(tail)
                    .is_err_and(|error| error.error_len().is_none() && error.valid_up_to() == 0);
                if drop > 0 && begins {
                    kept = &kept[..kept.len() - drop];
                    break;
                }
            }
        }
        let shown = &kept[..ends(kept)];
        let shown = shown.rsplit(|&byte| byte == b'\r').next().unwrap_or_default();
        let text = String::from_utf8_lossy(shown).replace('\0', "\u{2400}");
        lines.push((
            lines.len() as u64 + 1,
            offset,
            text,
            (line.len() - kept.len()) as u64,
            end.is_none(),
        ));
        let taken = end.map_or(rest.len(), |end| end + 1);
        offset += taken as u64;
        rest = &rest[taken..];
    }
    lines
}

fn shown(lines: &[LogLine]) -> Vec<Shown> {
    lines
        .iter()
        .map(|line| {
            (
                line.line.expect("no gap"),
                line.offset,
                line.text.clone(),
                line.missing,
                line.partial,
            )
        })
        .collect()
}

fn from_json(page: &Page, streams: &[StreamRow]) -> Vec<LogLine> {
    let bytes = page.encode(streams, Form::Ndjson, false);
    let text = std::str::from_utf8(&bytes).expect("JSON is UTF-8");
    text.lines()
        .map(|line| serde_json::from_str(line).expect(line))
        .collect()
}

fn all() -> Query {
    Query {
        begin: Begin::From(From::Start),
        until: None,
        lines: usize::MAX,
        bytes: usize::MAX,
        mpi_rank: None,
        look: LOOK,
    }
}

async fn read(world: &World, streams: &[StreamRow], begin: From) -> Vec<LogLine> {
    let query = Query {
        begin: Begin::From(begin),
        ..all()
    };
    let page = page(&world.db, streams, &query).await.expect("a page");
    let lines = from_json(&page, streams);
    assert_eq!(lines, page.lines(streams, false), "JSON and values agree");
    lines
}

/// Reads a stream in every way that there is, and compares with its bytes.
pub async fn check_lines(world: &World, output: &OutputRef, bytes: &[u8], random: &mut StdRng) {
    let expected = expected_lines(bytes);
    let streams = vec![world.stream(output).await];
    let whole = read(world, &streams, From::Start).await;
    assert!(
        shown(&whole) == expected,
        "read from the start: {}",
        first_difference(&shown(&whole), &expected)
    );
    assert!(
        whole.windows(2).all(|pair| pair[0].at <= pair[1].at),
        "times do not go back"
    );
    for _ in 0..2 {
        let line = random.random_range(0..=expected.len() + 1);
        let found = shown(&read(world, &streams, From::Line(line as u64)).await);
        let from = line.min(streams[0].lines as usize);
        assert!(
            found == expected[from..],
            "from line {line}: {}",
            first_difference(&found, &expected[from..])
        );

        let byte = random.random_range(0..=bytes.len() as u64 + 3);
        let found = shown(&read(world, &streams, From::Byte(byte)).await);
        let from = expected.iter().rposition(|line| line.1 <= byte).unwrap_or(0);
        // At the very end of whole lines, nothing more is there.
        let from = if byte >= bytes.len() as u64 {
            streams[0].lines as usize
        } else {
            from
        };
        assert!(
            found == expected[from..],
            "from byte {byte}: {}",
            first_difference(&found, &expected[from..])
        );

        let tail = random.random_range(0..50usize);
        let found = shown(&read(world, &streams, From::Tail(tail as u64)).await);
        let from = expected.len().saturating_sub(tail);
        assert!(
            found == expected[from..],
            "tail {tail}: {}",
            first_difference(&found, &expected[from..])
        );

        let since = whole
            .get(random.random_range(0..whole.len().max(1)))
            .map_or(0, |line| millis(&line.at));
        let found = read(world, &streams, From::Time(since)).await;
        let expected: Vec<&LogLine> = whole.iter().filter(|line| millis(&line.at) >= since).collect();
        assert!(found.iter().eq(expected.iter().copied()), "since {since}");
        let query = Query {
            until: Some(before(&streams, &Begin::From(From::Time(since)))),
            ..all()
        };
        let found = page(&world.db, &streams, &query)
            .await
            .expect("a page")
            .lines(&streams, false);
        assert!(
            found.iter().eq(whole.iter().filter(|line| millis(&line.at) < since)),
            "until {since}"
        );
        let query = Query {
            begin: Begin::From(From::Tail(tail as u64)),
            until: Some(before(&streams, &Begin::From(From::Time(since)))),
            ..all()
        };
        let found = page(&world.db, &streams, &query)
            .await
            .expect("a page")
            .lines(&streams, false);
        let mut before: Vec<&LogLine> = (whole.iter())
            .filter(|line| millis(&line.at) < since && !line.partial)
            .collect();
        before.drain(..before.len().saturating_sub(tail));
        assert!(found.iter().eq(before), "the last {tail} until {since}");
    }
    check_pages(world, &streams, &whole, random).await;
}

/// Pages of odd sizes, one after the other, hold the whole.
async fn check_pages(world: &World, streams: &[StreamRow], whole: &[LogLine], random: &mut StdRng) {
    let mut found: Vec<LogLine> = Vec::new();
    let mut begin = Begin::From(From::Start);
    loop {
        let query = Query {
            begin,
            until: None,
            lines: random.random_range(1..20_000),
            bytes: random.random_range(1..1 << 22),
            ..all()
        };
        let page = page(&world.db, streams, &query).await.expect("a page");
        let lines = from_json(&page, streams);
        assert!(lines.len() <= query.lines);
        found.retain(|line| !line.partial || page.runs.is_empty());
        found.extend(lines);
        // As a reader carries it.
        begin = Begin::Position(page.next.to_string().parse().expect("a position"));
        if !page.more {
            break;
        }
    }
    let missing = whole.iter().filter(|line| !line.partial).count();
    let have = found.iter().filter(|line| !line.partial).count();
    assert_eq!(have, missing, "pages hold every line once");
    assert!(
        found
            .iter()
            .filter(|line| !line.partial)
            .eq(whole.iter().filter(|line| !line.partial))
    );
}

fn millis(at: &str) -> i64 {
    chrono::DateTime::parse_from_rfc3339(at)
        .expect("a time")
        .timestamp_millis()
}

fn first_difference(found: &[Shown], expected: &[Shown]) -> String {
    let at = found
        .iter()
        .zip(expected)
        .position(|(found, expected)| found != expected);
    let short = |line: Option<&Shown>| {
        line.map(|line| {
            (
                line.0,
                line.1,
                line.2.chars().take(80).collect::<String>(),
                line.3,
                line.4,
            )
        })
    };
    match at {
        Some(at) => format!("{:?} instead of {:?}", short(found.get(at)), short(expected.get(at))),
        None => format!("{} lines instead of {}", found.len(), expected.len()),
    }
}

/// A job of three replicas that prints in turns; answers its whole output in order.
async fn printed(world: &World, random: &mut StdRng) -> Vec<OutputRef> {
    let mut all = Vec::new();
    let (mut ingest, holding) = world.worker().await;
    let mut clock = 0;
    for number in 1..=2 {
        let outputs = world.attempt(number, 3).await;
        for round in 0..40 {
            for (place, output) in outputs.iter().enumerate() {
                for line in 0..random.random_range(0..4) {
                    let text = format!("attempt {number} stream {place} round {round} line {line}\n");
                    world.runtime.write(output, text.as_bytes());
                }
            }
            clock += 10;
            ingest.flush(&holding, at(clock), true).await.expect("a flush");
        }
        all.extend(outputs);
    }
    all
}

#[tokio::test]
async fn streams_are_merged_by_attempt_and_time_and_read_from_anywhere() {
    let mut random = StdRng::seed_from_u64(21);
    let world = World::new().await;
    printed(&world, &mut random).await;
    let every = world.streams().await;
    let whole = read(&world, &every, From::Start).await;
    let keys: Vec<(i32, &str)> = whole.iter().map(|line| (line.attempt, line.at.as_str())).collect();
    assert!(keys.is_sorted(), "by attempt, then time");
    assert_eq!(whole.len() as u64, every.iter().map(|row| row.lines).sum::<u64>());
    check_pages(&world, &every, &whole, &mut random).await;
    for count in [0usize, 1, 7, 30, 100, whole.len(), whole.len() + 10] {
        let tail = read(&world, &every, From::Tail(count as u64)).await;
        assert!(tail == whole[whole.len().saturating_sub(count)..], "tail {count}");
    }
    let since = millis(&whole[whole.len() / 2].at);
    let found = read(&world, &every, From::Time(since)).await;
    assert!(found.iter().eq(whole.iter().filter(|line| millis(&line.at) >= since)));
    // Going on behind a beginning never goes back before it.
    let query = Query {
        begin: Begin::From(From::Time(since)),
        lines: 1,
        ..all()
    };
    let first = page(&world.db, &every, &query).await.expect("a page");
    let rest = Query {
        begin: Begin::Position(first.next.clone()),
        ..all()
    };
    let rest = page(&world.db, &every, &rest)
        .await
        .expect("a page")
        .lines(&every, false);
    let both: Vec<LogLine> = first.lines(&every, false).into_iter().chain(rest).collect();
    assert!(both == found);

    let one = Filter {
        attempt: Some(2),
        role: Some("worker".to_owned()),
        index: Some(1),
        stream: Some(LogStream::Stderr),
        ..Filter::default()
    };
    let chosen = streams(&world.db, world.key, &one).await.expect("streams");
    assert_eq!(chosen.len(), 1);
    let found = read(&world, &chosen, From::Start).await;
    let same = |line: &&LogLine| line.attempt == 2 && line.index == 1 && line.stream == LogStream::Stderr;
    assert!(found.iter().eq(whole.iter().filter(same)));

    let text: Vec<bytes::Bytes> =
        download::lines(&world.db, every.clone(), Begin::From(From::Start), Shape::Text, None)
            .try_collect()
            .await
            .expect("a download");
    let text = String::from_utf8(text.concat()).expect("text");
    assert_eq!(text.lines().count(), whole.len());
    // Which rank was the first to print, is chance.
    let first = &whole[0];
    let begins = format!("{} {} {}-{} ", first.at, first.attempt, first.role, first.index);
    assert!(text.starts_with(&begins), "not {begins}");
}

#[tokio::test]
async fn search_finds_in_all_streams_and_goes_on_from_its_cursor() {
    let mut random = StdRng::seed_from_u64(22);
    let world = World::new().await;
    printed(&world, &mut random).await;
    let every = world.streams().await;
    let whole = read(&world, &every, From::Start).await;
    for (pattern, is_regex, ignore_case) in [
        ("round 7 ", false, false),
        ("ROUND 7 ", false, true),
        ("ROUND 7 ", false, false),
        (r"^attempt 2 .* round [0-9] line 0$", true, false),
        ("(?i)STREAM [45]", true, false),
    ] {
        let needle = Needle::new(pattern, is_regex, ignore_case).expect("a pattern");
        let matches = |text: &str| {
            let escaped = if is_regex {
                pattern.to_owned()
            } else {
                regex::escape(pattern)
            };
            regex::RegexBuilder::new(&escaped)
                .case_insensitive(ignore_case)
                .build()
                .expect("a regex")
                .is_match(text)
        };
        let mut expected: Vec<&LogLine> = whole.iter().filter(|line| matches(&line.text)).collect();
        let mut found = Vec::new();
        let mut cursor = None;
        let mut calls = 0;
        loop {
            let limits = Limits {
                lines: 5,
                lines_per_stream: 1000,
                ..Limits::default()
            };
            let some = search(&world.db, &every, &needle, cursor, limits)
                .await
                .expect("a search");
            found.extend(some.groups.into_iter().flat_map(|group| group.lines));
            calls += 1;
            match some.next {
                Some(next) => cursor = Some(next.to_string().parse().expect("a cursor")),
                None => break,
            }
        }
        let order = |line: &LogLine| (line.attempt, line.rank, line.stream, line.line);
        found.sort_by_key(order);
        expected.sort_by_key(|line| order(line));
        assert!(
            found.iter().eq(expected.iter().copied()),
            "{pattern}: {} instead of {}",
            found.len(),
            expected.len()
        );
        println!("{pattern}: {} lines in {calls} calls", found.len());
    }
    let needle = Needle::new("round", false, false).expect("a pattern");
    let limits = Limits {
        lines: 1000,
        lines_per_stream: 2,
        ..Limits::default()
    };
    let found = search(&world.db, &every, &needle, None, limits)
        .await
        .expect("a search");
    assert_eq!(found.groups.len(), every.len());
    assert!(found.groups.iter().all(|group| group.cut && group.lines.len() == 2));

    // Without any time, each call looks at one line, and its cursor still leads through everything.
    let needle = Needle::new("round 7 ", true, false).expect("a pattern");
    let (mut lines, mut calls, mut cursor) = (0, 0, None);
    loop {
        let limits = Limits {
            time: Duration::ZERO,
            ..Limits::default()
        };
        let some = search(&world.db, &every, &needle, cursor, limits)
            .await
            .expect("a search");
        lines += some.groups.iter().map(|group| group.lines.len()).sum::<usize>();
        calls += 1;
        let Some(next) = some.next else { break };
        assert_ne!(cursor, Some(next), "it goes on");
        cursor = Some(next);
    }
    assert_eq!(
        lines,
        whole.iter().filter(|line| line.text.contains("round 7 ")).count()
    );
    assert!(
        calls + every.len() >= whole.len(),
        "{calls} calls for {} lines",
        whole.len()
    );
    assert!(Needle::new("(", true, false).is_err());
    assert!(Needle::new("", false, false).is_err());
}

#[tokio::test]
async fn a_search_ends_at_its_limit_of_lines_and_not_at_the_end_of_a_flush() {
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let (mut ingest, holding) = world.worker().await;
    world.runtime.write(&outputs[0], "hit\n".repeat(1000).as_bytes());
    ingest.flush(&holding, at(0), true).await.expect("a flush");
    let every = world.streams().await;
    let needle = Needle::new("hit", false, false).expect("a pattern");
    let limits = Limits {
        lines: 300,
        lines_per_stream: 300,
        ..Limits::default()
    };
    let (mut numbers, mut cursor) = (Vec::new(), None);
    loop {
        let some = search(&world.db, &every, &needle, cursor, limits)
            .await
            .expect("a search");
        assert!(some.groups.iter().all(|group| !group.cut && group.lines.len() <= 300));
        numbers.extend(
            some.groups
                .iter()
                .flat_map(|group| &group.lines)
                .filter_map(|line| line.line),
        );
        match some.next {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert!(numbers.iter().copied().eq(1..=1000), "{} of 1000 lines", numbers.len());
}

#[tokio::test]
async fn a_tail_holds_no_more_text_than_it_may() {
    let world = World::new().await;
    let outputs = world.attempt(1, 2).await;
    let (mut ingest, holding) = world.worker().await;
    for round in 0..40 {
        for output in &outputs {
            world.runtime.write(output, format!("{round:060000}\n").as_bytes());
        }
        ingest.flush(&holding, at(round), true).await.expect("a flush");
    }
    let every = world.streams().await;
    let whole = read(&world, &every, From::Start).await;
    let until = before(&every, &Begin::From(From::Time(i64::MAX)));
    for until in [None, Some(until)] {
        let query = Query {
            begin: Begin::From(From::Tail(20_000)),
            until,
            lines: 20_000,
            bytes: 1 << 20,
            ..all()
        };
        let page = page(&world.db, &every, &query).await.expect("a page");
        let lines = page.lines(&every, false);
        let text: usize = lines.iter().map(|line| line.text.len()).sum();
        assert!(
            text < (1 << 20) + 2 * 60_000 && lines.len() >= 17,
            "{} lines",
            lines.len()
        );
        assert!(page.older, "and it says that there is more before it");
        assert!(lines == whole[whole.len() - lines.len()..]);
    }
    let none = Query {
        begin: Begin::From(From::Tail(0)),
        ..all()
    };
    let none = page(&world.db, &every, &none).await.expect("a page");
    let rest = Query {
        begin: Begin::Position(none.next),
        ..all()
    };
    let rest = page(&world.db, &every, &rest).await.expect("a page");
    assert!(
        rest.runs.is_empty(),
        "behind no lines of the end lies nothing that was stored before"
    );
}

#[tokio::test]
async fn a_reader_scrolls_through_one_long_flush_in_both_directions() {
    let world = World::new().await;
    let outputs = world.attempt(1, 2).await;
    let (mut ingest, holding) = world.worker().await;
    for round in 0..3 {
        for (place, output) in outputs.iter().enumerate() {
            let lines: String = (0..700).map(|line| format!("{round} {place} {line}\n")).collect();
            world.runtime.write(output, lines.as_bytes());
        }
        ingest.flush(&holding, at(round), true).await.expect("a flush");
    }
    let every = world.streams().await;
    let whole = read(&world, &every, From::Start).await;
    let mut query = Query {
        begin: Begin::From(From::Tail(500)),
        lines: 500,
        ..all()
    };
    let mut back: Vec<LogLine> = Vec::new();
    let mut start;
    loop {
        let found = page(&world.db, &every, &query).await.expect("a page");
        let mut lines = found.lines(&every, false);
        assert!(!lines.is_empty() && lines.len() <= 500);
        lines.append(&mut back);
        back = lines;
        start = found.start(&every);
        query.until = Some(start.to_string().parse().expect("a position"));
        if !found.older {
            break;
        }
    }
    assert!(back == whole, "{} of {} lines", back.len(), whole.len());
    query = Query {
        begin: Begin::Position(start),
        lines: 500,
        ..all()
    };
    let mut forward = Vec::new();
    loop {
        let found = page(&world.db, &every, &query).await.expect("a page");
        forward.extend(found.lines(&every, false));
        query.begin = Begin::Position(found.next);
        if !found.more {
            break;
        }
    }
    assert!(forward == whole, "{} of {} lines", forward.len(), whole.len());
}

#[tokio::test]
async fn merging_rows_again_and_again_changes_no_line() {
    let mut random = StdRng::seed_from_u64(23);
    let world = World::new().await;
    let outputs = world.attempt(1, 1).await;
    let (mut ingest, holding) = world.worker().await;
    let mut bytes = Vec::new();
    for round in 0..400 {
        let length = if random.random_ratio(1, 20) { 40_000 } else { 30 };
        let text = format!(
            "{round} {}{}",
            "z".repeat(random.random_range(0..length)),
            ["", "\n"][random.random_range(0..2)]
        );
        world.runtime.write(&outputs[0], text.as_bytes());
        bytes.extend_from_slice(text.as_bytes());
        ingest.flush(&holding, at(round), true).await.expect("a flush");
        let row = world.stream(&outputs[0]).await;
        let request = StreamToSeal {
            key: row.key,
            stream: row.id,
            ended: false,
        };
        let now: trainyard::worker::ingest::Now = std::sync::Arc::new(|| at(0));
        seal::seal(&world.db, &holding, &now, request).await.expect("a seal");
        if round % 40 == 39 {
            check_lines(&world, &outputs[0], &bytes, &mut random).await;
            let rows = keep::unsealed(&world.db, row.key, row.id).await.expect("rows");
            assert!(rows.len() < 128, "{} rows", rows.len());
        }
    }
    // The stream's size is what its rows take.
    let (told, real): (i64, i64) = sqlx::query_as(
        "select s.stored_bytes, (select sum(octet_length(c.data))::bigint from log_chunks c where c.stream_id = s.id)
         from log_streams s where s.stream = 'stdout'",
    )
    .fetch_one(world.db.pool())
    .await
    .expect("sizes");
    assert_eq!(told, real);
}

#[tokio::test]
async fn limits_of_size_take_the_oldest_attempts_whole_and_reading_says_so() {
    let world = World::new().await;
    let (mut ingest, holding) = world.worker().await;
    let mut attempts = Vec::new();
    for number in 1..=3 {
        let outputs = world.attempt(number, 1).await;
        world.runtime.write(&outputs[0], &vec![b'a' + number as u8; 100_000]);
        outputs.iter().for_each(|output| world.runtime.end(output));
        sqlx::query("update attempts set phase = 'ended', outcome = 'failed', ended_at = $2 where id = $1")
            .bind(outputs[0].attempt.0)
            .bind(at(i64::from(number)))
            .execute(world.db.pool())
            .await
            .expect("it ends");
        ingest
            .flush(&holding, at(i64::from(number) * 10), true)
            .await
            .expect("a flush");
        attempts.push(outputs);
    }
    let class = Retention::Standard;
    assert_eq!(keep::stored_bytes(&world.db, class).await.expect("a sum"), 300_000);
    let gone = keep::hold_to_size(&world.db, class, 150_000, 10, at(1000))
        .await
        .expect("retention");
    assert_eq!(
        gone.iter().map(|gone| gone.attempt).collect::<Vec<_>>(),
        [attempts[0][0].attempt, attempts[1][0].attempt]
    );
    assert_eq!(keep::stored_bytes(&world.db, class).await.expect("a sum"), 100_000);
    let lines = read(&world, &[world.stream(&attempts[0][0]).await], From::Start).await;
    assert_eq!(lines.len(), 1);
    assert_eq!(
        lines[0].text,
        "100000 bytes of output are missing here: retention removed it on 2025-11-30"
    );
    assert_eq!(
        read(&world, &[world.stream(&attempts[2][0]).await], From::Start).await[0]
            .text
            .len(),
        65536
    );
    let old = keep::expire(&world.db, class, at(3), 10, at(1000))
        .await
        .expect("retention");
    assert!(old.is_empty(), "the third is not old enough");
    assert_eq!(
        keep::expire(&world.db, class, at(4), 10, at(1000))
            .await
            .expect("retention")
            .len(),
        1
    );
}

#[tokio::test]
async fn nobody_gets_a_key_to_logs_outside_their_teams() {
    let world = World::new().await;
    assert!(logs::readable(&world.db, &Scope::Everything, world.job).await.is_ok());
    let stranger = Scope::Teams(vec![trainyard_core::model::TeamId(uuid::Uuid::now_v7())]);
    assert!(logs::readable(&world.db, &stranger, world.job).await.is_err());
    assert!(
        logs::readable(&world.db, &Scope::Teams(Vec::new()), world.job)
            .await
            .is_err()
    );
    let team: uuid::Uuid = sqlx::query_scalar("select id from teams")
        .fetch_one(world.db.pool())
        .await
        .expect("a team");
    let member = Scope::Teams(vec![trainyard_core::model::TeamId(team)]);
    assert_eq!(
        logs::readable(&world.db, &member, world.job).await.expect("a key"),
        world.key
    );
}
