//! What replicas are told about each other: launch facts, addresses and ports in, environment per replica out.
//!
//! Every framework gets Trainyard's own variables (`TRAINYARD_...`) and what it reads by itself, so that a program
//! needs no line that knows Trainyard. Where the runtime's addresses come from (loopback here, names of pods
//! elsewhere) does not matter.
//!
//! For MPI the roles map like this: exactly one role is named `launcher` and has one replica; it runs `mpirun`. The
//! replicas of all other roles are slots: they reserve resources and start no process of their own
//! ([`starts_process`]), and a runtime shows each as it shows the launcher. Without other roles the launcher itself is
//! the one slot.

use std::collections::BTreeMap;

use serde_json::json;

use crate::{
    document::job::{Framework, JobDocument},
    model::{AttemptId, IncarnationId, JobId, ReplicaKey, ReportTo},
};

/// The role that runs `mpirun`.
pub const LAUNCHER: &str = "launcher";

/// Whether replicas of this role are processes of their own. Slots of an MPI job are not.
pub fn starts_process(document: &JobDocument, role: &str) -> bool {
    document.framework != Framework::Mpi || role == LAUNCHER
}

/// How many ranks `mpirun` may start.
pub fn mpi_slots(document: &JobDocument) -> u32 {
    let others = document
        .roles
        .iter()
        .filter(|role| role.name != LAUNCHER)
        .map(|role| role.replicas);
    others.sum::<u32>().max(1)
}

/// The role of ranks that no replica's slot stands for, as where `mpirun -np 4` is all that a launcher alone was told.
pub const RANK: &str = "rank";

/// More ranks than any job may have: beyond, a tag is made up.
pub const MOST_RANKS: u32 = 10_000;

/// How many ranks `mpirun` may have, whatever they printed. A launcher alone says itself how many it starts.
pub fn mpi_ranks(document: &JobDocument) -> u32 {
    match document.roles.iter().any(|role| role.name != LAUNCHER) {
        true => mpi_slots(document),
        false => MOST_RANKS,
    }
}

/// The rank whose slot a replica is. `None` for the launcher, and for what is no replica.
pub fn rank_of_slot(document: &JobDocument, role: &str, index: u32) -> Option<u32> {
    let mut before = 0;
    for other in document.roles.iter().filter(|other| other.name != LAUNCHER) {
        if other.name == role {
            return (index < other.replicas).then_some(before + index);
        }
        before += other.replicas;
    }
    None
}

/// Where a rank that `mpirun` started is shown: in the replica whose slot it fills, else in a place of its own.
pub fn mpi_rank(document: &JobDocument, rank: u32) -> Option<ReplicaKey> {
    let mut index = rank;
    for role in document.roles.iter().filter(|role| role.name != LAUNCHER) {
        if index < role.replicas {
            let role = role.name.clone();
            return Some(ReplicaKey { role, index });
        }
        index -= role.replicas;
    }
    let role = RANK.to_owned();
    (rank < MOST_RANKS).then_some(ReplicaKey { role, index: rank })
}

/// A replica as the others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    pub key: ReplicaKey,
    pub rank: u32,
    pub address: String,
    /// A port that is this replica's alone.
    pub port: u16,
    pub incarnation: IncarnationId,
    pub gpus: u32,
}

/// What is the same for the whole attempt.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    pub job: JobId,
    pub team: &'a str,
    pub attempt: AttemptId,
    pub number: u32,
    pub document: &'a JobDocument,
    /// In rank order; the first is where all meet.
    pub peers: &'a [Peer],
    /// The network interface that all addresses are on, if it is known.
    pub interface: Option<&'a str>,
    /// A file that names this machine's slots for `mpirun`.
    pub mpi_hostfile: Option<&'a str>,
    pub resume_from: Option<&'a str>,
    pub resume_step: Option<i64>,
    pub report: Option<&'a ReportTo>,
}

pub type Environment = BTreeMap<String, String>;

/// The rendezvous environment of one replica.
pub fn environment(facts: &Facts, peer: &Peer) -> Environment {
    let mut env = trainyard(facts, peer);
    match facts.document.framework {
        Framework::Plain => {}
        Framework::Pytorch => pytorch(facts, peer, &mut env),
        Framework::Tensorflow => tensorflow(facts, peer, &mut env),
        Framework::Jax => jax(facts, peer, &mut env),
        Framework::Mpi => mpi(facts, &mut env),
    }
    env
}

fn meeting_point<'a>(facts: &'a Facts, peer: &'a Peer) -> &'a Peer {
    facts.peers.first().unwrap_or(peer)
}

fn set(env: &mut Environment, name: &str, value: impl ToString) {
    env.insert(name.to_owned(), value.to_string());
}

fn trainyard(facts: &Facts, peer: &Peer) -> Environment {
    let mut env = Environment::new();
    let first = meeting_point(facts, peer);
    let role_size = facts
        .peers
        .iter()
        .filter(|other| other.key.role == peer.key.role)
        .count();
    set(&mut env, "TRAINYARD_JOB_ID", facts.job);
    set(&mut env, "TRAINYARD_JOB_NAME", &facts.document.name);
    set(&mut env, "TRAINYARD_TEAM", facts.team);
    set(&mut env, "TRAINYARD_LABELS", json!(facts.document.labels));
    set(&mut env, "TRAINYARD_ATTEMPT", facts.number);
    set(&mut env, "TRAINYARD_ATTEMPT_ID", facts.attempt);
    set(&mut env, "TRAINYARD_INCARNATION", peer.incarnation);
    set(&mut env, "TRAINYARD_ROLE", &peer.key.role);
    set(&mut env, "TRAINYARD_ROLE_INDEX", peer.key.index);
    set(&mut env, "TRAINYARD_ROLE_SIZE", role_size);
    set(&mut env, "TRAINYARD_RANK", peer.rank);
    set(&mut env, "TRAINYARD_WORLD_SIZE", facts.peers.len());
    set(
        &mut env,
        "TRAINYARD_MASTER",
        format!("{}:{}", first.address, first.port),
    );
    if let Some(path) = facts.resume_from {
        set(&mut env, "TRAINYARD_RESUME_FROM", path);
    }
    if let Some(step) = facts.resume_step {
        set(&mut env, "TRAINYARD_RESUME_STEP", step);
    }
    if let Some(report) = facts.report {
        set(&mut env, "TRAINYARD_URL", &report.url);
        set(&mut env, "TRAINYARD_TOKEN", &report.token.0);
    }
    env
}

/// Variables of `torch.distributed`'s `env://`, and those of `torchrun` for programs that start their own ranks.
fn pytorch(facts: &Facts, peer: &Peer, env: &mut Environment) {
    let first = meeting_point(facts, peer);
    set(env, "MASTER_ADDR", &first.address);
    set(env, "MASTER_PORT", first.port);
    set(env, "RANK", peer.rank);
    set(env, "WORLD_SIZE", facts.peers.len());
    // Each replica sees only its own GPUs, which it counts from 0.
    set(env, "LOCAL_RANK", 0);
    set(env, "LOCAL_WORLD_SIZE", 1);
    set(env, "PET_MASTER_ADDR", &first.address);
    set(env, "PET_MASTER_PORT", first.port);
    set(env, "PET_NNODES", facts.peers.len());
    set(env, "PET_NODE_RANK", peer.rank);
    set(env, "PET_NPROC_PER_NODE", peer.gpus.max(1));
    if let Some(interface) = facts.interface {
        // Otherwise both look up the machine's name, which need not lead to an address that works.
        set(env, "GLOO_SOCKET_IFNAME", interface);
        set(env, "NCCL_SOCKET_IFNAME", interface);
    }
}

/// `TF_CONFIG`. An evaluator is told of the cluster and is no part of it, as TensorFlow wants it.
fn tensorflow(facts: &Facts, peer: &Peer, env: &mut Environment) {
    const EVALUATOR: &str = "evaluator";
    let mut cluster: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for other in facts.peers.iter().filter(|other| other.key.role != EVALUATOR) {
        cluster
            .entry(&other.key.role)
            .or_default()
            .push(format!("{}:{}", other.address, other.port));
    }
    let config = json!({
        "cluster": cluster,
        "task": { "type": peer.key.role, "index": peer.key.index },
    });
    set(env, "TF_CONFIG", config);
}

/// JAX reads the coordinator's address itself; process id and count have no name of its own, so both spellings that
/// are in use are given, for `jax.distributed.initialize(num_processes=..., process_id=...)`.
fn jax(facts: &Facts, peer: &Peer, env: &mut Environment) {
    let first = meeting_point(facts, peer);
    set(
        env,
        "JAX_COORDINATOR_ADDRESS",
        format!("{}:{}", first.address, first.port),
    );
    set(env, "JAX_NUM_PROCESSES", facts.peers.len());
    set(env, "JAX_PROCESS_ID", peer.rank);
    set(env, "COORDINATOR_ADDRESS", &first.address);
    set(env, "COORDINATOR_PORT", first.port);
    set(env, "NUM_PROCESSES", facts.peers.len());
    set(env, "PROCESS_ID", peer.rank);
}

/// Open MPI's parameters as variables: a plain `mpirun PROGRAM` starts one rank per slot, with tagged output.
fn mpi(facts: &Facts, env: &mut Environment) {
    set(env, "TRAINYARD_MPI_SLOTS", mpi_slots(facts.document));
    set(env, "OMPI_MCA_orte_tag_output", 1);
    // Slots are what the job asked for; the number of cores is the limits' affair.
    set(env, "OMPI_MCA_rmaps_base_oversubscribe", 1);
    set(env, "OMPI_MCA_hwloc_base_binding_policy", "none");
    if let Some(file) = facts.mpi_hostfile {
        set(env, "TRAINYARD_MPI_HOSTFILE", file);
        set(env, "OMPI_MCA_orte_default_hostfile", file);
    }
    if let Some(interface) = facts.interface {
        set(env, "OMPI_MCA_btl_tcp_if_include", interface);
        set(env, "OMPI_MCA_oob_tcp_if_include", interface);
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::model::SecretValue;

    fn document(framework: &str, roles: &[(&str, u32)]) -> JobDocument {
        let roles: Vec<_> = roles
            .iter()
            .map(|(name, replicas)| json!({ "name": name, "replicas": replicas, "command": ["true"] }))
            .collect();
        serde_json::from_value(json!({
            "apiVersion": "trainyard.dev/v1", "kind": "Job", "name": "letters", "framework": framework,
            "labels": { "team": "vision" }, "roles": roles,
        }))
        .expect("a clean document")
    }

    fn peers(document: &JobDocument) -> Vec<Peer> {
        let keys = document
            .roles
            .iter()
            .filter(|role| starts_process(document, &role.name))
            .flat_map(|role| {
                (0..role.replicas).map(|index| ReplicaKey {
                    role: role.name.clone(),
                    index,
                })
            });
        keys.zip(0..)
            .map(|(key, rank)| Peer {
                key,
                rank,
                address: "127.0.0.1".into(),
                port: 20_000 + rank as u16,
                incarnation: IncarnationId(Uuid::from_u128(100 + u128::from(rank))),
                gpus: 0,
            })
            .collect()
    }

    /// The environment of the peer at `rank` as sorted lines.
    fn lines(document: &JobDocument, rank: usize) -> String {
        let peers = peers(document);
        let report = ReportTo {
            url: "http://127.0.0.1:7420".into(),
            token: SecretValue("tyj_secret".into()),
        };
        let facts = Facts {
            job: JobId(Uuid::from_u128(1)),
            team: "vision",
            attempt: AttemptId(Uuid::from_u128(2)),
            number: 3,
            document,
            peers: &peers,
            interface: Some("lo"),
            mpi_hostfile: Some("/attempt/hostfile"),
            resume_from: Some("/checkpoints/120"),
            resume_step: Some(120),
            report: Some(&report),
        };
        let env = environment(&facts, &peers[rank]);
        env.iter().map(|(name, value)| format!("{name}={value}\n")).collect()
    }

    fn without_our_own(lines: &str) -> String {
        lines
            .lines()
            .filter(|line| !line.starts_with("TRAINYARD_"))
            .map(|line| format!("{line}\n"))
            .collect()
    }

    #[test]
    fn plain_replicas_get_our_own_variables_alone() {
        let document = document("plain", &[("master", 1), ("worker", 2)]);
        assert_eq!(
            lines(&document, 2),
            "TRAINYARD_ATTEMPT=3\n\
             TRAINYARD_ATTEMPT_ID=att_00000000000000000000000008\n\
             TRAINYARD_INCARNATION=inc_000000000000000000000000co\n\
             TRAINYARD_JOB_ID=job_00000000000000000000000004\n\
             TRAINYARD_JOB_NAME=letters\n\
             TRAINYARD_LABELS={\"team\":\"vision\"}\n\
             TRAINYARD_MASTER=127.0.0.1:20000\n\
             TRAINYARD_RANK=2\n\
             TRAINYARD_RESUME_FROM=/checkpoints/120\n\
             TRAINYARD_RESUME_STEP=120\n\
             TRAINYARD_ROLE=worker\n\
             TRAINYARD_ROLE_INDEX=1\n\
             TRAINYARD_ROLE_SIZE=2\n\
             TRAINYARD_TEAM=vision\n\
             TRAINYARD_TOKEN=tyj_secret\n\
             TRAINYARD_URL=http://127.0.0.1:7420\n\
             TRAINYARD_WORLD_SIZE=3\n"
        );
    }

    #[test]
    fn pytorch_ranks_meet_at_rank_0() {
        let document = document("pytorch", &[("master", 1), ("worker", 2)]);
        assert_eq!(
            without_our_own(&lines(&document, 1)),
            "GLOO_SOCKET_IFNAME=lo\n\
             LOCAL_RANK=0\n\
             LOCAL_WORLD_SIZE=1\n\
             MASTER_ADDR=127.0.0.1\n\
             MASTER_PORT=20000\n\
             NCCL_SOCKET_IFNAME=lo\n\
             PET_MASTER_ADDR=127.0.0.1\n\
             PET_MASTER_PORT=20000\n\
             PET_NNODES=3\n\
             PET_NODE_RANK=1\n\
             PET_NPROC_PER_NODE=1\n\
             RANK=1\n\
             WORLD_SIZE=3\n"
        );
    }

    #[test]
    fn tensorflow_names_every_member_and_leaves_the_evaluator_out_of_the_cluster() {
        let document = document(
            "tensorflow",
            &[("chief", 1), ("worker", 2), ("ps", 1), ("evaluator", 1)],
        );
        let cluster = "{\"cluster\":{\"chief\":[\"127.0.0.1:20000\"],\"ps\":[\"127.0.0.1:20003\"],\
                       \"worker\":[\"127.0.0.1:20001\",\"127.0.0.1:20002\"]},";
        assert_eq!(
            without_our_own(&lines(&document, 2)),
            format!("TF_CONFIG={cluster}\"task\":{{\"type\":\"worker\",\"index\":1}}}}\n")
        );
        assert_eq!(
            without_our_own(&lines(&document, 4)),
            format!("TF_CONFIG={cluster}\"task\":{{\"type\":\"evaluator\",\"index\":0}}}}\n")
        );
    }

    #[test]
    fn jax_processes_are_numbered_behind_one_coordinator() {
        let document = document("jax", &[("worker", 2)]);
        assert_eq!(
            without_our_own(&lines(&document, 1)),
            "COORDINATOR_ADDRESS=127.0.0.1\n\
             COORDINATOR_PORT=20000\n\
             JAX_COORDINATOR_ADDRESS=127.0.0.1:20000\n\
             JAX_NUM_PROCESSES=2\n\
             JAX_PROCESS_ID=1\n\
             NUM_PROCESSES=2\n\
             PROCESS_ID=1\n"
        );
    }

    #[test]
    fn an_mpi_launcher_is_the_only_process_and_the_others_are_its_slots() {
        let document = document("mpi", &[("launcher", 1), ("worker", 4)]);
        assert_eq!(peers(&document).len(), 1);
        let lines = lines(&document, 0);
        assert!(lines.contains("TRAINYARD_MPI_SLOTS=4\n"), "{lines}");
        assert_eq!(
            without_our_own(&lines),
            "OMPI_MCA_btl_tcp_if_include=lo\n\
             OMPI_MCA_hwloc_base_binding_policy=none\n\
             OMPI_MCA_oob_tcp_if_include=lo\n\
             OMPI_MCA_orte_default_hostfile=/attempt/hostfile\n\
             OMPI_MCA_orte_tag_output=1\n\
             OMPI_MCA_rmaps_base_oversubscribe=1\n"
        );
    }

    #[test]
    fn ranks_fill_the_slots_in_order_and_have_a_place_where_there_is_none() {
        let shown = |roles: &[(&str, u32)], rank| {
            let key = mpi_rank(&document("mpi", roles), rank);
            key.map(|key| key.to_string())
        };
        let roles = [("launcher", 1), ("front", 1), ("worker", 2)];
        let places: Vec<_> = (0..4).map(|rank| shown(&roles, rank)).collect();
        let wanted = ["front-0", "worker-0", "worker-1", "rank-3"];
        assert_eq!(places, wanted.map(|place| Some(place.to_owned())));
        assert_eq!(shown(&[("launcher", 1)], 3).as_deref(), Some("rank-3"));
        assert_eq!(shown(&[("launcher", 1)], 4_000_000_000), None);
    }

    #[test]
    fn a_slot_leads_back_to_its_rank() {
        let document = document("mpi", &[("launcher", 1), ("front", 1), ("worker", 2)]);
        for rank in 0..3 {
            let key = mpi_rank(&document, rank).unwrap();
            assert_eq!(rank_of_slot(&document, &key.role, key.index), Some(rank));
        }
        for (role, index) in [("launcher", 0), ("worker", 2), ("rank", 3)] {
            assert_eq!(rank_of_slot(&document, role, index), None);
        }
        assert_eq!(mpi_ranks(&document), 3);
    }

    #[test]
    fn a_launcher_alone_is_one_slot_and_starts_as_many_ranks_as_it_likes() {
        let alone = document("mpi", &[("launcher", 1)]);
        assert_eq!((mpi_slots(&alone), mpi_ranks(&alone)), (1, MOST_RANKS));
    }
}
