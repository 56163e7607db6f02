//! `trainyard up` with its private Postgres: Ctrl-C, and kill -9.

use std::{os::unix::process::CommandExt, time::Duration};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use crate::{
    books::{self, Witness, printer},
    world::{Process, World},
};

const LINES: u32 = 1_500;

/// As a terminal does it: in a process group of its own, which gets Ctrl-C as a whole.
fn up(world: &World) -> Process {
    let mut command = world.command("up");
    command.process_group(0);
    Process::spawn(command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_ends_the_server_and_not_the_jobs_and_kill_9_neither() {
    let mut world = World::bare();
    let running = up(&world);
    world.settle_in().await;
    let witness = Witness::new(&world);
    let job = world.api.submit(&printer("long", LINES, 10, 0.15, 0, &witness)).await;
    world
        .api
        .until(&job, Duration::from_secs(90), |job| job["phase"] == "running")
        .await;

    killpg(Pid::from_raw(running.pid()), Signal::SIGINT).expect("the group is there");
    let code = running.wait(Duration::from_secs(60));
    let shims = world.shims().len();
    println!("Ctrl-C: exit code {code:?}, {shims} shim goes on");
    assert_eq!(code, Some(0), "{}", world.log());
    assert_eq!(shims, 1, "the job goes on");

    let running = up(&world);
    world.api.ready().await;
    running.kill();
    assert_eq!(world.shims().len(), 1, "the job goes on");

    let _running = up(&world);
    world.api.ready().await;
    let ended = world.api.ended(&job, Duration::from_secs(180)).await;
    let tally = books::check(&world.api, &job, LINES, &witness.runs()).await;
    println!("Ctrl-C, up, kill -9, up: {} with {tally}", ended["phase"]);
    assert_eq!(ended["phase"], "succeeded", "{ended:#}");
    assert!(tally.is_clean(), "{tally}");
    assert_eq!(tally.attempts, 1);
}
