//! What replicas write: where it goes, how it is read, and what the bound takes.

use std::{
    os::unix::fs::MetadataExt,
    time::{Duration, Instant},
};

use serde_json::json;
use trainyard::runtimes::{OutputState, Runtime};
use trainyard_core::model::{AttemptId, LogStream};

use crate::world::{World, launch, script};

/// Lines of 16 bytes, each its own number, so that every byte of the stream is known from its offset.
const NUMBERS: &str = r#"
import sys, time
count, chunk = int(sys.argv[1]), 4096
for first in range(0, count, chunk):
    sys.stdout.buffer.write(b"".join(b"%015d\n" % number for number in range(first, min(count, first + chunk))))
    sys.stdout.buffer.flush()
    time.sleep(float(sys.argv[2]))
"#;

fn assert_numbers(offset: u64, bytes: &[u8]) {
    let first = offset / 16;
    let expected: Vec<u8> = (first..=first + bytes.len() as u64 / 16 + 1)
        .flat_map(|number| format!("{number:015}\n").into_bytes())
        .collect();
    let skip = (offset % 16) as usize;
    assert!(expected[skip..].starts_with(bytes), "wrong bytes at {offset}");
}

async fn stdout_state(world: &World, attempt: AttemptId) -> Option<OutputState> {
    let states = world.output_states(attempt).await;
    states
        .into_iter()
        .find(|state| state.output.stream == LogStream::Stdout)
}

/// Reads as a worker does. Returns the bytes read and the bytes that were dropped.
async fn follow(world: &World, attempt: AttemptId, pause: Duration, give_back: bool) -> (u64, u64) {
    let (mut offset, mut read, mut dropped) = (0, 0, 0);
    loop {
        let Some(state) = stdout_state(world, attempt).await else {
            continue;
        };
        if let Some(range) = state.dropped.iter().find(|range| range.contains(&offset)) {
            dropped += range.end - offset;
            offset = range.end;
        }
        let bytes = world.runtime.read(&state.output, offset, 100_000).await.expect("read");
        assert_numbers(offset, &bytes);
        offset += bytes.len() as u64;
        read += bytes.len() as u64;
        if give_back {
            world
                .runtime
                .give_back(&state.output, offset)
                .await
                .expect("given back");
        }
        if bytes.is_empty() && state.ended && offset == state.length {
            return (read, dropped);
        }
        tokio::time::sleep(pause).await;
    }
}

fn numbers(count: u64, pause: f64) -> trainyard_core::model::Launch {
    launch(json!({
        "code": { "inline": { "numbers.py": NUMBERS } },
        "roles": [{ "name": "worker", "command": ["python3", "numbers.py", count.to_string(), pause.to_string()] }],
    }))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beyond_the_bound_the_oldest_unread_goes_and_nothing_false_is_ever_read() {
    let world = World::with(|options| options.output_bound = 1 << 20);
    let count = 1 << 20;
    let launch = numbers(count, 0.004);
    world.runtime.start(&launch).await.expect("started");
    let (read, dropped) = follow(&world, launch.attempt, Duration::from_millis(40), true).await;
    println!("read {read}, dropped {dropped}");
    assert_eq!(read + dropped, count * 16);
    assert!(dropped > 0 && read > 0);
    assert_eq!(world.ends(launch.attempt).await[0].code, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_that_nobody_reads_keeps_to_the_bound_on_disk() {
    let world = World::with(|options| options.output_bound = 1 << 20);
    let launch = script(1, "head -c 30000000 /dev/zero; sleep 1; echo; echo end");
    world.runtime.start(&launch).await.expect("started");
    world.ends(launch.attempt).await;
    let file = world.replica(launch.attempt, "worker-0").output(LogStream::Stdout);
    let meta = std::fs::metadata(&file).expect("there");
    assert_eq!(meta.len(), 30_000_005);
    assert!(
        meta.blocks() * 512 <= (1 << 20) + 8192,
        "{} bytes are kept",
        meta.blocks() * 512
    );
    let state = stdout_state(&world, launch.attempt).await.expect("there");
    assert_eq!(state.dropped.len(), 1, "{:?}", state.dropped);
    let kept = world
        .runtime
        .read(&state.output, state.dropped[0].end, 2 << 20)
        .await
        .expect("read");
    assert!(kept.ends_with(b"\0\nend\n"));
    assert!(
        world
            .runtime
            .read(&state.output, 0, 4096)
            .await
            .expect("read")
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_that_was_given_back_is_free_while_it_runs_and_after() {
    let world = World::new();
    let count = 1 << 17;
    let launch = numbers(count, 0.002);
    world.runtime.start(&launch).await.expect("started");
    let (read, dropped) = follow(&world, launch.attempt, Duration::from_millis(5), true).await;
    assert_eq!((read, dropped), (count * 16, 0));
    world.ends(launch.attempt).await;
    let state = stdout_state(&world, launch.attempt).await.expect("there");
    let file = world.replica(launch.attempt, "worker-0").output(LogStream::Stdout);
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::metadata(&file).expect("there").blocks() * 512 > 8192 {
        // The last mark may have come while the shim was on its way out.
        world
            .runtime
            .give_back(&state.output, state.length)
            .await
            .expect("given back");
        assert!(Instant::now() < deadline, "the space was never freed");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_the_output_anew_is_refused_so_that_it_cannot_be_truncated() {
    let world = World::new();
    let launch = script(1, "echo first; echo second > /dev/stdout || echo refused; echo third");
    world.runtime.start(&launch).await.expect("started");
    world.ends(launch.attempt).await;
    assert_eq!(
        world.stdout(launch.attempt, "worker-0").await,
        "first\nrefused\nthird\n"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torn_text_nul_bytes_and_a_line_without_end_come_as_they_are() {
    let world = World::new();
    let launch = script(
        1,
        r"printf 'a\0b\303'; printf '\251\rprogress'; head -c 50000000 /dev/zero | tr '\0' x",
    );
    world.runtime.start(&launch).await.expect("started");
    world.ends(launch.attempt).await;
    let state = stdout_state(&world, launch.attempt).await.expect("there");
    let start = b"a\0b\xc3\xa9\rprogress";
    assert_eq!(state.length, 50_000_000 + start.len() as u64);
    let bytes = world
        .runtime
        .read(&state.output, 0, start.len() + 10)
        .await
        .expect("read");
    assert_eq!(&bytes[..], [&start[..], b"xxxxxxxxxx"].concat());
    assert!(
        world
            .runtime
            .read(&state.output, state.length, 10)
            .await
            .expect("read")
            .is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn news_wake_whoever_waits_for_them() {
    let mut world = World::new();
    let launch = script(
        1,
        "echo one; until [ -p go ]; do sleep 0.01; done; exec < go; read -r line; echo two; read -r line; exit 2",
    );
    let other = script(1, "exit 0");
    world.runtime.start(&other).await.expect("started");
    world.ends(other.attempt).await;
    world.runtime.start(&launch).await.expect("started");
    world.says(launch.attempt, "worker-0", "one").await;
    // A new worker hears of what an older one started.
    world.restart();
    // What happened before its time may be anything, so everything that is there is news once.
    assert!(news(&world).await.contains(&launch.attempt));
    let go = world.replica(launch.attempt, "worker-0").work().join("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::from_bits_truncate(0o666)).expect("a pipe");
    // Opening for reading and writing waits for nobody.
    let mut pipe = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&go)
        .expect("opened");
    // The first line is answered by output, which is no news, the second by the end.
    std::io::Write::write_all(&mut pipe, b"go\ngo\n").expect("written");
    assert_eq!(news(&world).await, [launch.attempt]);
    assert_eq!(world.ends(launch.attempt).await[0].code, Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_hears_of_what_another_one_starts_beside_it() {
    let mut world = World::new();
    world.restart();
    let elder = world.another();
    let launch = script(1, "until [ -p go ]; do sleep 0.01; done; read -r line < go; exit 3");
    elder.start(&launch).await.expect("started");
    let go = world.replica(launch.attempt, "worker-0").work().join("go");
    nix::unistd::mkfifo(&go, nix::sys::stat::Mode::from_bits_truncate(0o666)).expect("a pipe");
    assert_eq!(news(&world).await, [launch.attempt], "it is there");
    tokio::fs::write(&go, b"go\n").await.expect("written");
    assert_eq!(news(&world).await, [launch.attempt], "it ended");
    assert_eq!(world.ends(launch.attempt).await[0].code, Some(3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_never_stops_printing_does_not_hide_what_another_worker_starts() {
    let world = World::new();
    let chatty = script(1, "while :; do echo on and on; sleep 0.05; done");
    world.runtime.start(&chatty).await.expect("started");
    world.says(chatty.attempt, "worker-0", "on and on").await;
    let quiet = script(1, "exec sleep 600");
    world.another().start(&quiet).await.expect("started");
    let deadline = Instant::now() + Duration::from_secs(60);
    while !news(&world).await.contains(&quiet.attempt) {
        assert!(Instant::now() < deadline, "nobody heard of it");
    }
    for launch in [&chatty, &quiet] {
        world.runtime.stop(launch.attempt).await.expect("stopped");
        world.ends(launch.attempt).await;
    }
}

async fn news(world: &World) -> Vec<AttemptId> {
    let news = tokio::time::timeout(Duration::from_secs(60), world.runtime.changed());
    news.await.expect("woken")
}

/// A disk of its own for one test; `None` where none can be mounted.
struct SmallDisk {
    place: tempfile::TempDir,
}

impl SmallDisk {
    fn mount() -> Option<Self> {
        let place = tempfile::Builder::new().prefix("ty").tempdir().expect("a folder");
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(
            Some("tmpfs"),
            place.path(),
            Some("tmpfs"),
            flags,
            Some("size=8m,mode=711"),
        )
        .ok()?;
        Some(Self { place })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = nix::mount::umount2(self.place.path(), nix::mount::MntFlags::MNT_DETACH);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_full_disk_the_bound_still_makes_room_and_the_exit_is_still_told() {
    let Some(disk) = SmallDisk::mount() else {
        println!("NOT TESTED: no file system can be mounted here");
        return;
    };
    let world = World::with(|options| {
        options.data = disk.place.path().join("data");
        options.output_bound = 2 << 20;
    });
    // It fills the disk at once, and goes on writing whenever there is room again.
    let flood = "head -c 30000000 /dev/zero 2>/dev/null; while [ $i -lt 200 ]; do i=$((i+1)); head -c 300000 /dev/zero 2>/dev/null; sleep 0.01; done; exit 9";
    let launch = script(1, &format!("i=0; {flood}"));
    world.runtime.start(&launch).await.expect("started");
    assert_eq!(world.ends(launch.attempt).await[0].code, Some(9));
    let state = stdout_state(&world, launch.attempt).await.expect("there");
    assert!(state.length > 8 << 20 && !state.dropped.is_empty(), "{state:?}");
    // Full to the last block while it runs: the end is told all the same.
    let launch = script(1, "head -c 20000000 /dev/zero > rest 2>/dev/null; echo full; exit 8");
    world.runtime.release(state.output.attempt).await.expect("released");
    world.runtime.start(&launch).await.expect("started");
    assert_eq!(world.ends(launch.attempt).await[0].code, Some(8));
    drop(world);
}
