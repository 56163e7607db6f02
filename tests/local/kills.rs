//! SIGKILL of workers and shims at any moment: nothing runs twice, nothing is lost that was written.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::CommandExt,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use trainyard::runtimes::{
    Runtime,
    local::{LocalOptions, LocalRuntime},
};
use trainyard_core::model::{AttemptId, Exit, IncarnationId, Launch, LogStream, ReplicaState};
use uuid::Uuid;

use crate::world::{World, script};

const WORKER_DATA: &str = "TRAINYARD_TEST_WORKER_DATA";
const WORKER_SEED: &str = "TRAINYARD_TEST_WORKER_SEED";

/// The same launch in every process that is told the same number.
fn numbered(number: u128) -> Launch {
    let mut launch = script(2, "echo ran; sleep 0.03; echo done");
    launch.attempt = AttemptId(Uuid::from_u128(number << 32 | 1));
    for replica in &mut launch.replicas {
        replica.incarnation = IncarnationId(Uuid::from_u128(number << 32 | u128::from(replica.rank)));
    }
    launch
}

/// Not a test: what the tests below run as a worker of its own, to kill it for real.
#[test]
#[ignore = "the body of a worker process for the other tests"]
fn worker_process() {
    let (Ok(data), Ok(number)) = (std::env::var(WORKER_DATA), std::env::var(WORKER_SEED)) else {
        return;
    };
    let mut options = LocalOptions::new(data);
    options.program = env!("CARGO_BIN_EXE_trainyard").into();
    let runtime = LocalRuntime::open(options).expect("opened");
    let launch = numbered(number.parse().expect("a number"));
    let tokio = tokio::runtime::Runtime::new().expect("tokio");
    tokio.block_on(runtime.start(&launch)).expect("started");
    println!("started");
    loop {
        std::thread::park();
    }
}

fn spawn_worker(world: &World, number: u128) -> Child {
    Command::new(std::env::current_exe().expect("known"))
        .args(["--exact", "kills::worker_process", "--ignored", "--nocapture"])
        .env(WORKER_DATA, world.data())
        .env(WORKER_SEED, number.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .expect("spawned")
}

fn kill_worker(mut worker: Child) {
    worker.kill().expect("killed");
    worker.wait().expect("collected");
}

fn kill_shim(world: &World, attempt: AttemptId, replica: &str) {
    let shim = world.replica(attempt, replica).shim().expect("read").expect("there");
    assert!(shim.signal(Signal::SIGKILL).expect("sent"), "the shim was gone already");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_shim_costs_the_exit_code_and_no_line() {
    let world = World::new();
    let launch = script(1, "for i in $(seq 1 60); do echo line $i; sleep 0.02; done; exit 3");
    world.runtime.start(&launch).await.expect("started");
    world.says(launch.attempt, "worker-0", "line 3").await;
    kill_shim(&world, launch.attempt, "worker-0");
    // It goes on under another shim, and even that one may be killed.
    world.says(launch.attempt, "worker-0", "line 10").await;
    world.running(launch.attempt).await;
    kill_shim(&world, launch.attempt, "worker-0");
    let exit = &world.ends(launch.attempt).await[0];
    assert_eq!(
        (exit.code, exit.signal, exit.unknown, exit.oom),
        (None, None, true, false),
        "{exit:?}"
    );
    let expected: String = (1..=60).map(|number| format!("line {number}\n")).collect();
    assert_eq!(world.stdout(launch.attempt, "worker-0").await, expected);
    world.runtime.release(launch.attempt).await.expect("released");
    world.assert_nothing_runs();
    assert!(world.cgroups().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stop_reaches_a_replica_whose_shim_was_killed() {
    let world = World::new();
    let mut launch = script(
        2,
        "trap '' TERM; (setsid sleep 703 &); echo ready; while :; do sleep 1; done",
    );
    launch.document.stop.grace = trainyard_core::document::units::Duration::seconds(1);
    world.runtime.start(&launch).await.expect("started");
    for replica in ["worker-0", "worker-1"] {
        world.says(launch.attempt, replica, "ready").await;
    }
    kill_shim(&world, launch.attempt, "worker-0");
    world.runtime.stop(launch.attempt).await.expect("asked");
    // The clock of the grace runs on through the death of the second shim.
    kill_shim(&world, launch.attempt, "worker-1");
    let exits = world.ends(launch.attempt).await;
    assert!(
        exits.iter().all(|exit| exit.unknown && exit.stop_requested),
        "{exits:?}"
    );
    world.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_with_its_group_takes_nobody_along() {
    for signal in [Signal::SIGINT, Signal::SIGHUP, Signal::SIGKILL] {
        let world = World::new();
        let number = Uuid::now_v7().as_u128() >> 64;
        let mut worker = spawn_worker(&world, number);
        let attempt = numbered(number).attempt;
        let group = Pid::from_raw(worker.id() as i32);
        world.says_once_there(attempt, "worker-0", "ran").await;
        world.says_once_there(attempt, "worker-1", "ran").await;
        killpg(group, signal).expect("sent");
        let _ = worker.kill();
        worker.wait().expect("collected");
        let exits = world.ends(attempt).await;
        assert!(exits.iter().all(Exit::succeeded), "{signal}: {exits:?}");
        assert_eq!(world.stdout(attempt, "worker-1").await, "ran\ndone\n");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_restart_of_the_machine_what_ran_is_lost() {
    let mut world = World::new();
    let launch = script(1, "echo ready; exec sleep 704");
    world.runtime.start(&launch).await.expect("started");
    world.says(launch.attempt, "worker-0", "ready").await;
    let folder = world.replica(launch.attempt, "worker-0");
    let mut started = folder.started().expect("read").expect("there");
    kill_shim(&world, launch.attempt, "worker-0");
    started.process.signal(Signal::SIGKILL).expect("sent");
    started.process.boot = "11111111-2222-3333-4444-555555555555".into();
    folder.write_started(&started).expect("written");
    world.restart();
    world
        .runtime
        .start(&launch)
        .await
        .expect("nothing to do: it had been started");
    let observed = world.observe(launch.attempt).await;
    assert!(
        matches!(observed.replicas[0].state, ReplicaState::Lost { .. }),
        "{observed:?}"
    );
    let states = world.output_states(launch.attempt).await;
    assert!(states.iter().all(|state| state.ended), "{states:?}");
    assert_eq!(world.stdout(launch.attempt, "worker-0").await, "ready\n");
    world.runtime.stop(launch.attempt).await.expect("nothing to stop");
    world.runtime.release(launch.attempt).await.expect("released");
}

/// How far a replica has come, in the order of its steps.
const PHASES: [&str; 8] = [
    "nothing",
    "being prepared",
    "prepared",
    "shim there",
    "being brought up",
    "recorded",
    "running",
    "ended",
];

fn phase(world: &World, attempt: AttemptId, replica: &str) -> usize {
    let folder = world.replica(attempt, replica);
    let has = |name: &str| folder.path().join(name).exists();
    let wrote = || fs::metadata(folder.output(LogStream::Stdout)).is_ok_and(|meta| meta.len() > 0);
    match () {
        () if has("exit.json") => 7,
        () if has("started.json") && wrote() => 6,
        () if has("started.json") => 5,
        () if has("stdout") => 4,
        () if has("shim.json") => 3,
        () if has("spec.json") => 2,
        () if folder.path().exists() => 1,
        () => 0,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_kills_never_run_a_program_twice() {
    let rounds: u32 = std::env::var("TRAINYARD_TEST_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20);
    let seed: u64 = std::env::var("TRAINYARD_TEST_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| rand::rng().random());
    println!("TRAINYARD_TEST_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let mut histogram: BTreeMap<&str, u32> = BTreeMap::new();
    let mut outcomes: BTreeMap<&str, u32> = BTreeMap::new();
    let world = World::new();
    for round in 0..rounds {
        let number = u128::from(seed) << 16 | u128::from(round);
        let launch = numbered(number);
        for _ in 0..random.random_range(1..4) {
            let worker = spawn_worker(&world, number);
            // A phase is aimed at and then left for a random moment, so that short ones are hit as well.
            let aim = random.random_range(0..PHASES.len());
            let deadline = Instant::now() + Duration::from_secs(3);
            while phase(&world, launch.attempt, "worker-0") < aim && Instant::now() < deadline {
                std::thread::yield_now();
            }
            tokio::time::sleep(Duration::from_micros(random.random_range(0..4_000))).await;
            let reached = PHASES[phase(&world, launch.attempt, "worker-0")];
            *histogram.entry(reached).or_default() += 1;
            let shim = random
                .random_bool(0.5)
                .then(|| format!("worker-{}", random.random_range(0..2)));
            let kill_shim = || {
                let name = shim
                    .iter()
                    .map(|name| world.replica(launch.attempt, name).shim().expect("read"));
                for shim in name.flatten() {
                    shim.signal(Signal::SIGKILL).expect("sent");
                }
            };
            if random.random_bool(0.5) {
                kill_shim();
                kill_worker(worker);
            } else {
                kill_worker(worker);
                kill_shim();
            }
        }
        let mut tries = 0;
        while let Err(error) = world.runtime.start(&launch).await {
            tries += 1;
            assert!(tries < 5, "round {round}: {error}");
        }
        let exits = world.ends(launch.attempt).await;
        for (exit, replica) in exits.iter().zip(["worker-0", "worker-1"]) {
            let said = world.stdout(launch.attempt, replica).await;
            match (exit.unknown, said.as_str()) {
                (false, "ran\ndone\n") if exit.code == Some(0) => *outcomes.entry("whole").or_default() += 1,
                (true, "ran\ndone\n") => *outcomes.entry("whole, exit unknown").or_default() += 1,
                // Its shim was killed after the record and before the program.
                (true, "") => *outcomes.entry("never ran, exit unknown").or_default() += 1,
                _ => panic!("round {round} {replica}: {exit:?} {said:?}"),
            }
        }
        world.runtime.release(launch.attempt).await.expect("released");
    }
    println!("killed at: {histogram:?}\noutcomes: {outcomes:?}");
    assert_eq!(outcomes.values().sum::<u32>(), rounds * 2);
    world.assert_nothing_runs();
    assert!(world.cgroups().is_empty());
}
