//! Real ranks, really stopped: what is said of a job of four whose rank 2 gets SIGSTOP.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};

use crate::world::World;

/// All ranks take every step together: by gloo where PyTorch is there, else by a connection each to rank 0.
const TRAIN: &str = r#"
import os, sys, time
RANK, WORLD, ALL = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["ALL_PRINT"] == "1"
if os.environ["GLOO"] == "1":
    import torch, torch.distributed as dist
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    def together(): dist.all_reduce(torch.ones(1))
else:
    from multiprocessing.connection import Client, Listener
    address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    if RANK == 0:
        listener = Listener(address, backlog=WORLD)
        peers = [listener.accept() for _ in range(WORLD - 1)]
    else:
        for _ in range(600):
            try:
                peers = [Client(address)]
                break
            except ConnectionRefusedError:
                time.sleep(0.1)
    def together():
        if RANK == 0:
            for peer in peers: peer.recv_bytes()
        for peer in peers: peer.send_bytes(b"go")
        if RANK != 0: peers[0].recv_bytes()
for step in range(1, 10000):
    together()
    if ALL or RANK == 0:
        print(f"step={step} loss={1 / step:.4f}", flush=True)
    time.sleep(0.5)
"#;

fn job(name: &str, all: bool, gloo: bool) -> Value {
    json!({
        "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": name, "framework": "pytorch",
        "roles": [{
            "name": "worker", "replicas": 4, "command": ["/usr/bin/python3", "-c", TRAIN], "resources": { "cpu": "100m" }
        }],
        "env": { "ALL_PRINT": if all { "1" } else { "0" }, "GLOO": if gloo { "1" } else { "0" } },
        "stop": { "grace": "2s" },
    })
}

fn has_torch() -> bool {
    let asked = Command::new("/usr/bin/python3")
        .args(["-c", "import torch.distributed"])
        .output();
    asked.is_ok_and(|answer| answer.status.success())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_rank_of_four_is_named_whether_all_print_or_rank_0_alone() {
    let gloo = has_torch();
    let world = World::new(1, &[]).await;
    let mut jobs = Vec::new();
    for (name, all) in [("all-print", true), ("one-prints", false)] {
        jobs.push((name, world.api.submit(&job(name, all, gloo)).await));
    }
    for (name, id) in &jobs {
        world
            .api
            .until(id, Duration::from_secs(180), |job| job["step"].as_i64() >= Some(8))
            .await;
        let pid = world
            .replica(id, 2)
            .unwrap_or_else(|| panic!("{name}: rank 2 has no process"));
        kill(Pid::from_raw(pid), Signal::SIGSTOP).expect("it is there");
    }
    for (name, id) in &jobs {
        let deadline = Instant::now() + Duration::from_secs(240);
        let message = loop {
            let found = world.api.get(&format!("/api/v1/jobs/{id}/conditions")).await;
            let hung = found["items"]
                .as_array()
                .expect("conditions")
                .iter()
                .find(|condition| condition["kind"] == "hung" || condition["type"] == "hung");
            if let Some(hung) = hung {
                break hung["message"].as_str().expect("words").to_owned();
            }
            assert!(Instant::now() < deadline, "{name} is not flagged: {found:#}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        };
        println!(
            "SIGSTOP of rank 2 ({}), {name}: {message}",
            if gloo { "gloo" } else { "no torch here" }
        );
        assert!(message.contains("Rank 2"), "{message}");
        let job = world.api.job(id).await;
        assert_eq!(job["phase"], "running", "flagged, not killed");
        world.api.post(&format!("/api/v1/jobs/{id}/cancel"), &json!({})).await;
    }
    for (_, id) in &jobs {
        let ended = world.api.ended(id, Duration::from_secs(60)).await;
        assert_eq!(ended["phase"], "cancelled", "a stopped process can be ended too");
    }
}
