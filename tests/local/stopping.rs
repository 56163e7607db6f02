//! The end of what does not want to end: stubborn programs, daemons, memory hogs.

use std::time::Duration;

use serde_json::json;
use trainyard::runtimes::Runtime;
use trainyard_core::model::ReplicaState;

use crate::world::{World, launch, script};

/// A daemon that leaves its session, its parent and its group, and ignores SIGTERM.
const DAEMON: &str = r#"
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("daemon", flush=True)
        while True:
            print("tick", flush=True)
            time.sleep(0.01)
    os._exit(0)
os.wait()
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_willing_program_ends_by_itself_and_asking_twice_is_asking_once() {
    let world = World::new();
    let launch = script(
        2,
        "trap 'echo asked; exit 5' TERM; echo ready; while :; do sleep 0.05; done",
    );
    world.runtime.start(&launch).await.expect("started");
    for replica in ["worker-0", "worker-1"] {
        world.says(launch.attempt, replica, "ready").await;
    }
    world.runtime.stop(launch.attempt).await.expect("asked");
    world.runtime.stop(launch.attempt).await.expect("asked again");
    let exits = world.ends(launch.attempt).await;
    world.runtime.stop(launch.attempt).await.expect("asked after the end");
    for (exit, replica) in exits.iter().zip(["worker-0", "worker-1"]) {
        assert_eq!((exit.code, exit.stop_requested), (Some(5), true), "{exit:?}");
        assert_eq!(world.stdout(launch.attempt, replica).await, "ready\nasked\n");
    }
    world.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stubborn_program_is_killed_after_its_grace_with_all_its_children() {
    let world = World::new();
    let mut launch = script(
        1,
        "trap '' TERM; sleep 700 & (trap '' TERM; sleep 701; sleep 702) & echo ready; while :; do sleep 1; done",
    );
    launch.document.stop.grace = trainyard_core::document::units::Duration::seconds(1);
    world.runtime.start(&launch).await.expect("started");
    world.says(launch.attempt, "worker-0", "ready").await;
    world.runtime.stop(launch.attempt).await.expect("asked");
    let exit = &world.ends(launch.attempt).await[0];
    assert_eq!(
        (exit.code, exit.signal, exit.stop_requested),
        (None, Some(9), true),
        "{exit:?}"
    );
    assert!(!exit.oom && !exit.unknown);
    world.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_process_hears_that_it_shall_end() {
    let world = World::new();
    let launch = script(1, "trap 'exit 6' TERM; echo ready; while :; do sleep 0.05; done");
    world.runtime.start(&launch).await.expect("started");
    world.says(launch.attempt, "worker-0", "ready").await;
    world.runtime.signal(launch.attempt, 19).await.expect("SIGSTOP sent");
    world.runtime.stop(launch.attempt).await.expect("asked");
    assert_eq!(world.ends(launch.attempt).await[0].code, Some(6));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shell_that_ends_first_leaves_its_program_the_rest_of_the_grace() {
    let world = World::new();
    // The inner program needs a moment to write its checkpoint; the outer one dies of SIGTERM at once.
    let inner = "trap 'sleep 1; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done";
    let launch = script(1, &format!("sh -c \"{inner}\" & wait"));
    world.runtime.start(&launch).await.expect("started");
    world.says(launch.attempt, "worker-0", "ready").await;
    world.runtime.stop(launch.attempt).await.expect("asked");
    let exit = &world.ends(launch.attempt).await[0];
    assert_eq!((exit.signal, exit.stop_requested), (Some(15), true), "{exit:?}");
    assert_eq!(world.stdout(launch.attempt, "worker-0").await, "ready\nsaved\n");
    world.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_daemon_does_not_outlive_the_program_that_left_it() {
    let world = World::new();
    let mut launch = launch(json!({
        "code": { "inline": { "daemon.py": DAEMON } },
        "roles": [{ "name": "worker", "command": ["sh", "-c", "python3 daemon.py; sleep 0.2; exit 4"] }],
    }));
    launch.document.stop.grace = trainyard_core::document::units::Duration::seconds(600);
    world.runtime.start(&launch).await.expect("started");
    let exit = &world.ends(launch.attempt).await[0];
    assert_eq!(exit.code, Some(4), "{exit:?}");
    // The end is told only when nobody can write any more.
    let said = world.stdout(launch.attempt, "worker-0").await;
    assert!(said.contains("daemon"), "{said}");
    world.assert_nothing_runs();
    assert_eq!(world.stdout(launch.attempt, "worker-0").await.len(), said.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_asked_to_end_before_it_started_never_starts() {
    let mut world = World::new();
    let launch = script(2, "echo ran");
    // A worker that is killed after it has written the record and before it has started a shim.
    world.reopen("/no/such/program");
    world.runtime.start(&launch).await.expect_err("no shim");
    // Nobody is starting them, so they are missing, and a plan starts them again.
    assert!(world.observe(launch.attempt).await.replicas.is_empty());
    world.reopen(env!("CARGO_BIN_EXE_trainyard"));
    world.runtime.stop(launch.attempt).await.expect("asked");
    world.runtime.start(&launch).await.expect("nothing to do");
    let observed = world.observe(launch.attempt).await;
    assert_eq!(observed.replicas.len(), 2);
    for replica in &observed.replicas {
        assert!(
            matches!(&replica.state, ReplicaState::StartFailed { reason, .. } if reason == "stopped"),
            "{replica:?}"
        );
    }
    assert!(world.output_states(launch.attempt).await.is_empty());
    world.runtime.release(launch.attempt).await.expect("released");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_kernels_killer_is_told_from_other_ends() {
    let world = World::new();
    if !world.runtime.facts().limits_memory {
        println!(
            "NOT TESTED: memory can't be limited here: {:?}",
            world.runtime.facts().missing
        );
        return;
    }
    let hog = "import os\nfor _ in range(200): part = bytearray(os.urandom(1 << 20)); globals().setdefault('kept', []).append(part)";
    let launch = launch(json!({ "roles": [
        { "name": "hog", "command": ["python3", "-c", hog], "resources": { "memory": "64Mi" } },
        { "name": "parent", "command": ["sh", "-c", format!("python3 -c \"{hog}\"; exit 3")], "resources": { "memory": "64Mi" } },
        { "name": "modest", "command": ["python3", "-c", "print(1)"], "resources": { "memory": "64Mi" } },
    ]}));
    world.runtime.start(&launch).await.expect("started");
    let exits = world.ends(launch.attempt).await;
    assert_eq!((exits[0].signal, exits[0].oom), (Some(9), true), "{:?}", exits[0]);
    assert_eq!((exits[1].code, exits[1].oom), (Some(3), true), "{:?}", exits[1]);
    assert_eq!((exits[2].code, exits[2].oom), (Some(0), false), "{:?}", exits[2]);
    let usage = world.runtime.usage(launch.attempt).await.expect("usage");
    let peak = usage[0].1.memory_peak_bytes;
    assert!((32 << 20..=64 << 20).contains(&peak), "{usage:?}");
    world.assert_nothing_runs();
    assert!(world.cgroups().is_empty(), "{:?}", world.cgroups());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_program_gets_the_cores_it_asked_for_and_its_use_is_counted() {
    let world = World::new();
    let launch = launch(json!({ "roles": [
        { "name": "busy", "command": ["sh", "-c", "echo ready; while :; do :; done"], "resources": { "cpu": "100m" } },
    ]}));
    world.runtime.start(&launch).await.expect("started");
    world.says(launch.attempt, "busy-0", "ready").await;
    let used =
        |usage: &[(trainyard_core::model::ReplicaKey, trainyard::runtimes::ReplicaUsage)]| usage[0].1.cpu_seconds;
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    loop {
        let usage = world.runtime.usage(launch.attempt).await.expect("usage");
        if used(&usage) > 0.2 {
            assert!(usage[0].1.processes >= 1 && usage[0].1.memory_bytes > 0, "{usage:?}");
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{usage:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    if world.runtime.facts().limits_cpu {
        // The kernel's own count says whether the limit bites; a clock would say how busy the machine is.
        let spec = world
            .replica(launch.attempt, "busy-0")
            .spec()
            .expect("read")
            .expect("there");
        let spec = serde_json::to_value(spec).expect("JSON");
        let folder = spec["cgroup"]["folders"]["cpu"]
            .as_str()
            .expect("a cpu group")
            .to_owned();
        let stat = std::fs::read_to_string(format!("{folder}/cpu.stat")).expect("read");
        let throttled = stat
            .lines()
            .find_map(|line| line.strip_prefix("nr_throttled ")?.parse::<u64>().ok());
        assert!(throttled.expect("counted") > 0, "{stat}");
    }
    world.runtime.stop(launch.attempt).await.expect("asked");
    world.ends(launch.attempt).await;
    let last = world.runtime.usage(launch.attempt).await.expect("usage");
    assert!(used(&last) > 0.2, "the last use stays known: {last:?}");
}
