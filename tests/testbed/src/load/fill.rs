//! Fills a cluster: pods that are born on their node and given their status at once, without scheduler or kubelet.

use super::nodes::{self, TEMPLATES, WRITERS};
use crate::error::{Doing, Error, Result};
use crate::layout::Layout;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Where the pods of a filled cluster are.
pub const NAMESPACES: usize = 20;

pub fn namespace(index: usize) -> String {
    format!("team-{:02}", index % NAMESPACES)
}

/// How long each part took; printed, never asserted.
#[derive(Debug)]
pub struct Filled {
    pub nodes: Duration,
    pub pods: Duration,
    pub statuses: Duration,
}

pub async fn fill(client: &Client, layout: Layout, node_count: usize, pod_count: usize) -> Result<Filled> {
    let started = Instant::now();
    nodes::create(client, layout, node_count).await?;
    let nodes = started.elapsed();
    for index in 0..NAMESPACES {
        make_namespace(client, &namespace(index)).await?;
    }
    let started = Instant::now();
    each(pod_count, |index| {
        create(client.clone(), namespace(index), pod(index, node_count.max(1)))
    })
    .await?;
    let pods = started.elapsed();
    let started = Instant::now();
    each(pod_count, |index| {
        set_status(client.clone(), namespace(index), pod_name(index), status(index))
    })
    .await?;
    Ok(Filled {
        nodes,
        pods,
        statuses: started.elapsed(),
    })
}

/// Pods in one namespace on fake nodes, already Running; for followers of logs.
pub async fn running_pods(client: &Client, namespace: &str, node_count: usize, pod_count: usize) -> Result<()> {
    make_namespace(client, namespace).await?;
    each(pod_count, |index| {
        create(client.clone(), namespace.into(), pod(index, node_count.max(1)))
    })
    .await?;
    each(pod_count, |index| {
        set_status(client.clone(), namespace.into(), pod_name(index), status(index))
    })
    .await
}

async fn each<F: Future<Output = Result<()>>>(count: usize, work: impl Fn(usize) -> F) -> Result<()> {
    stream::iter((0..count).map(work))
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<_>>()
        .await
        .map(drop)
}

/// Makes a namespace, with the service account that pods need, which its controller would make a moment later.
pub async fn make_namespace(client: &Client, name: &str) -> Result<()> {
    use k8s_openapi::api::core::v1::ServiceAccount;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: kube::api::ObjectMeta {
            name: Some(name.into()),
            ..Default::default()
        },
        ..Default::default()
    };
    ignore_conflict(
        namespaces.create(&PostParams::default(), &namespace).await,
        "cannot make a namespace",
    )?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), name);
    let account = ServiceAccount {
        metadata: kube::api::ObjectMeta {
            name: Some("default".into()),
            ..Default::default()
        },
        ..Default::default()
    };
    ignore_conflict(
        accounts.create(&PostParams::default(), &account).await,
        "cannot make a service account",
    )
}

fn ignore_conflict<T>(made: std::result::Result<T, kube::Error>, doing: &str) -> Result<()> {
    match made {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        other => other.map(drop).doing(doing),
    }
}

async fn create(client: Client, namespace: String, pod: Value) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    let pod: Pod = serde_json::from_value(pod).map_err(|e| Error::Refused(e.to_string()))?;
    api.create(&PostParams::default(), &pod)
        .await
        .map(drop)
        .doing("cannot create a fake pod")
}

async fn set_status(client: Client, namespace: String, name: String, status: Value) -> Result<()> {
    let api: Api<Pod> = Api::namespaced(client, &namespace);
    api.patch_status(
        &name,
        &PatchParams::default(),
        &Patch::Merge(json!({ "status": status })),
    )
    .await
    .map(drop)
    .doing("cannot set a fake pod's status")
}

/// Ten pods make a job.
pub fn pod_name(index: usize) -> String {
    format!("job-{:05}-worker-{}", index / 10, index % 10)
}

fn pod(index: usize, node_count: usize) -> Value {
    let node = index % node_count;
    let mut limits = json!({"cpu": "8", "memory": "32Gi"});
    for (name, _) in TEMPLATES[node % TEMPLATES.len()].devices.iter().take(1) {
        limits[name] = json!("1");
    }
    json!({
        "metadata": {
            "name": pod_name(index),
            "labels": {
                "training.kubeflow.org/job-name": format!("job-{:05}", index / 10),
                "training.kubeflow.org/replica-type": "worker",
                "training.kubeflow.org/replica-index": (index % 10).to_string(),
            },
        },
        "spec": {
            "nodeName": nodes::name(node),
            "restartPolicy": "Never",
            // No token to mount, so no volume that nothing would read.
            "automountServiceAccountToken": false,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "pytorch", "image": crate::build::images::TORCH, "command": ["python3", "train.py"], "resources": {"limits": limits}}],
        },
    })
}

fn status(index: usize) -> Value {
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": now}));
    json!({
        "phase": "Running",
        "startTime": now,
        "podIP": format!("10.99.{}.{}", index / 250 % 250, index % 250 + 1),
        "conditions": conditions,
        "containerStatuses": [{
            "name": "pytorch", "ready": true, "started": true, "restartCount": 0, "image": crate::build::images::TORCH, "imageID": crate::build::images::TORCH,
            "containerID": format!("containerd://{index:064x}"), "state": {"running": {"startedAt": now}},
        }],
    })
}
