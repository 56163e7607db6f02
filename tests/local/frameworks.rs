//! Programs that find each other by what they are told.

use std::process::Command;

use serde_json::json;
use trainyard::runtimes::Runtime;
use trainyard_core::model::LogStream;

use crate::world::{World, launch};

const PYTHON: &str = "/usr/bin/python3";

const ALL_REDUCE: &str = r#"
import torch, torch.distributed as dist
dist.init_process_group("gloo")
mine = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(mine)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {mine.item():.0f}")
dist.barrier()
dist.destroy_process_group()
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_pytorch_replicas_add_up() {
    let torch = Command::new(PYTHON).args(["-c", "import torch.distributed"]).output();
    if !torch.is_ok_and(|output| output.status.success()) {
        println!("NOT TESTED: {PYTHON} has no torch");
        return;
    }
    let world = World::new();
    let launch = launch(json!({
        "framework": "pytorch",
        "code": { "inline": { "train.py": ALL_REDUCE } },
        "roles": [
            { "name": "master", "command": [PYTHON, "train.py"] },
            { "name": "worker", "replicas": 3, "command": [PYTHON, "train.py"] },
        ],
    }));
    world.runtime.start(&launch).await.expect("started");
    let exits = world.ends(launch.attempt).await;
    for (rank, replica) in ["master-0", "worker-0", "worker-1", "worker-2"].iter().enumerate() {
        let errors = world.output(launch.attempt, replica, LogStream::Stderr).await;
        assert_eq!(exits[rank].code, Some(0), "{replica}: {errors}");
        assert_eq!(
            world.stdout(launch.attempt, replica).await,
            format!("rank {rank} of 4: 10\n")
        );
    }
    world.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_mpi_launcher_starts_a_rank_per_slot_and_tells_them_apart() {
    if Command::new("mpirun").arg("--version").output().is_err() {
        println!("NOT TESTED: there is no mpirun");
        return;
    }
    let world = World::new();
    let launch = launch(json!({
        "framework": "mpi",
        "roles": [
            { "name": "launcher", "command": ["mpirun", "sh", "-c", "echo rank $OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE"] },
            { "name": "worker", "replicas": 3, "command": ["true"] },
        ],
    }));
    world.runtime.start(&launch).await.expect("started");
    let exits = world.ends(launch.attempt).await;
    let errors = world.output(launch.attempt, "launcher-0", LogStream::Stderr).await;
    assert_eq!((exits.len(), exits[0].code), (4, Some(0)), "{errors}");
    assert!(
        exits.iter().all(trainyard_core::model::Exit::succeeded),
        "slots are as their launcher is: {exits:?}"
    );
    assert_eq!(
        world.output_states(launch.attempt).await.len(),
        2,
        "and write nothing of their own"
    );
    let said = world.stdout(launch.attempt, "launcher-0").await;
    let mut lines: Vec<&str> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "[1,0]<stdout>:rank 0 of 3",
            "[1,1]<stdout>:rank 1 of 3",
            "[1,2]<stdout>:rank 2 of 3",
        ]
    );
    world.assert_nothing_runs();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_launcher_that_fails_is_the_only_one_to_blame() {
    let world = World::new();
    let launch = launch(json!({
        "framework": "mpi",
        "roles": [
            { "name": "launcher", "command": ["sh", "-c", "exit 3"] },
            { "name": "worker", "replicas": 2, "command": ["true"] },
        ],
    }));
    world.runtime.start(&launch).await.expect("started");
    let exits = world.ends(launch.attempt).await;
    assert_eq!(
        exits
            .iter()
            .map(|exit| (exit.code, exit.stop_requested))
            .collect::<Vec<_>>(),
        [(Some(3), false), (None, true), (None, true),]
    );
}
