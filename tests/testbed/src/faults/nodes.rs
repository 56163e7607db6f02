//! Nodes that stop, die, get ill or lose their GPUs.

use crate::cluster::Testbed;
use crate::error::{Doing, Error, Result};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::jiff;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const SIGKILL: i32 = 9;

/// The kubelet stops; containers go on, as on a node that is cut off.
pub fn stop_kubelet(testbed: &Testbed, node: &str) -> Result<()> {
    testbed.living_node(node)?.stop("kubelet", SIGKILL)
}

/// Brings back what `stop_kubelet` took; a killed node stays dead.
pub fn start_kubelet(testbed: &Testbed, node: &str) -> Result<()> {
    testbed.living_node(node)?;
    testbed.start_node(node)
}

/// The node dies with everything on it, at once, as when its power goes.
pub fn kill_node(testbed: &Testbed, node: &str) -> Result<()> {
    let init = Pid::from_raw(testbed.living_node(node)?.pid()?);
    kill(init, Signal::SIGKILL).doing(format!("cannot kill {node}"))?;
    let started = Instant::now();
    // The first process of a space is gone when all others are; its socket closes before that.
    while kill(init, None).is_ok() {
        if started.elapsed() > Duration::from_secs(60) {
            return Err(Error::Timeout {
                what: format!("{node} to die"),
                after: started.elapsed(),
                last: String::new(),
            });
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Brings a killed node back under its name, empty, as a rebooted machine that lost its disk.
pub fn revive_node(testbed: &Testbed, node: &str) -> Result<()> {
    testbed.start_node(node)
}

/// Gives a real node devices that it does not have. The kubelet keeps such capacity and makes it allocatable, so jobs that ask for
/// them really run. `count` 0 takes them away again.
pub async fn set_devices(client: &Client, node: &str, resource: &str, count: u32) -> Result<()> {
    let value = if count == 0 {
        json!(null)
    } else {
        json!(count.to_string())
    };
    let status = json!({"capacity": {resource: value}, "allocatable": {resource: value}});
    patch_status(client, node, status).await
}

/// The devices are still in the machine and no longer usable: what a dead GPU looks like behind a device plugin.
pub async fn lose_devices(client: &Client, node: &str, resource: &str, left: u32) -> Result<()> {
    patch_status(client, node, json!({"allocatable": {resource: left.to_string()}})).await
}

async fn patch_status(client: &Client, node: &str, status: Value) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = Patch::Merge(json!({"status": status}));
    let answer = nodes.patch_status(node, &PatchParams::default(), &patch).await;
    known(&nodes, answer)
        .await?
        .doing("cannot change a node's devices")
        .map(drop)
}

/// A condition as EKS's node monitoring agent sets it, e.g. `AcceleratedHardwareReady` False with reason `NvidiaXID79Error`.
pub async fn set_condition(
    client: &Client,
    node: &str,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
) -> Result<()> {
    change_conditions(client, node, |list| {
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::now());
        list.retain(|c| c.type_ != kind);
        list.push(NodeCondition {
            type_: kind.into(),
            status: status.into(),
            reason: Some(reason.into()),
            message: Some(message.into()),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: Some(now),
        });
    })
    .await
}

pub async fn clear_condition(client: &Client, node: &str, kind: &str) -> Result<()> {
    change_conditions(client, node, |list| list.retain(|c| c.type_ != kind)).await
}

/// Reads, changes and writes; once more if somebody else wrote in between, which the kubelet does all the time.
async fn change_conditions(client: &Client, node: &str, change: impl Fn(&mut Vec<NodeCondition>)) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    for _ in 0..10 {
        let mut object = known(&nodes, nodes.get(node).await)
            .await?
            .doing("cannot read a node")?;
        let mut status = object.status.take().unwrap_or_default();
        change(status.conditions.get_or_insert_default());
        object.status = Some(status);
        match nodes.replace_status(node, &Default::default(), &object).await {
            Err(kube::Error::Api(answer)) if answer.code == 409 => continue,
            other => return other.map(drop).doing("cannot set a node's condition"),
        }
    }
    Err(Error::Refused(format!(
        "{node} changed ten times while its condition was being set"
    )))
}

/// Names nodes that there are, if the answer is that there is none of the name that was asked for.
async fn known(nodes: &Api<Node>, answer: kube::Result<Node>) -> Result<kube::Result<Node>> {
    let Err(kube::Error::Api(status)) = &answer else {
        return Ok(answer);
    };
    if status.code != 404 {
        return Ok(answer);
    }
    let list = nodes.list_metadata(&ListParams::default()).await;
    let mut names: Vec<_> = list
        .doing("cannot list nodes")?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    // The real ones first; of fake ones there may be thousands.
    names.sort_by_key(|name| name.starts_with("fake-"));
    let more = names.len().saturating_sub(4);
    names.truncate(4);
    names.extend((more > 0).then(|| format!("{more} more")));
    let there = match names.is_empty() {
        true => "none".into(),
        false => names.join(", "),
    };
    Err(Error::Refused(format!("{}; there are {there}", status.message)))
}
