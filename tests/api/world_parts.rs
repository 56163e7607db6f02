//! Records that workers would write, put there by hand: tests of the web have no worker.

use trainyard_core::model::{AttemptId, ClusterId, IncarnationId, NodeId};
use uuid::Uuid;

use crate::world::{World, raw};

pub async fn cluster(world: &World, name: &str) -> String {
    let id = ClusterId(Uuid::now_v7());
    world
        .run(&format!(
            "insert into clusters (id, name, provider, machine_id, phase, reason, message, created_at, updated_at)
             values ('{}', '{name}', 'local', 'machine-of-{name}', 'active', 'ready', 'It runs', now(), now())",
            id.0
        ))
        .await;
    id.to_string()
}

pub async fn grant(world: &World, cluster: &str, team: &str) {
    let path = format!("/api/v1/clusters/{cluster}/grants/{team}");
    let body = serde_json::json!({ "level": "use" });
    world
        .ask(axum::http::Method::PUT, &path)
        .by(&world.admin)
        .json(body)
        .send()
        .await
        .expect(200);
}

pub async fn node(world: &World, cluster: &str, name: &str) -> String {
    let id = NodeId(Uuid::now_v7());
    world
        .run(&format!(
            "insert into nodes (id, cluster_id, name, identity, phase, reason, message, first_seen_at, observed_at)
             values ('{}', '{}', '{name}', '{name}', 'ready', 'ready', 'It is well', now(), now());
             insert into conditions (subject_kind, subject_id, type, status, severity, reason, message, since, observed_at)
             values ('node', '{}', 'DiskFull', 'true', 'warning', 'full', 'The disk is full', now(), now())",
            id.0,
            raw(cluster),
            id.0
        ))
        .await;
    id.to_string()
}

/// An attempt that runs, with two replicas on a node.
pub async fn attempt(world: &World, job: &str, cluster: &str, node: &str) -> String {
    let id = AttemptId(Uuid::now_v7());
    let (job, cluster, node) = (raw(job), raw(cluster), raw(node));
    let mut statement = format!(
        "insert into attempts (id, job_id, number, cluster_id, phase, restart_owner, reason, message, admitted_at, running_at)
         values ('{0}', '{job}', 1, '{cluster}', 'running', 'trainyard', 'running', 'It runs', now(), now());
         update jobs set attempt = 1, phase = 'running', cluster_id = '{cluster}', started_at = now() where id = '{job}';",
        id.0
    );
    for index in 0..2 {
        let incarnation = IncarnationId(Uuid::now_v7());
        statement.push_str(&format!(
            "insert into replicas (attempt_id, role, index, rank, job_id, phase, node_id, reason, message)
             values ('{0}', 'worker', {index}, {index}, '{job}', 'running', '{node}', 'running', '');
             insert into incarnations (id, attempt_id, role, index, number, created_at, reason)
             values ('{1}', '{0}', 'worker', {index}, 1, now(), 'started');",
            id.0, incarnation.0
        ));
    }
    world.run(&statement).await;
    id.to_string()
}
