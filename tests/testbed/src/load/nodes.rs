//! Fake nodes that look like what clusters for training are made of.

use crate::components::kwok::{ANNOTATION, TAINT};
use crate::error::{Doing, Error, Result};
use crate::layout::Layout;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Node;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

/// A machine type, with what AWS says of it.
pub struct Template {
    pub instance_type: &'static str,
    pub cpus: u32,
    pub memory_gib: u32,
    /// Extended resources.
    pub devices: &'static [(&'static str, u32)],
}

pub const TEMPLATES: [Template; 5] = [
    Template {
        instance_type: "p5.48xlarge",
        cpus: 192,
        memory_gib: 2048,
        devices: &[("nvidia.com/gpu", 8), ("vpc.amazonaws.com/efa", 32)],
    },
    Template {
        instance_type: "p4d.24xlarge",
        cpus: 96,
        memory_gib: 1152,
        devices: &[("nvidia.com/gpu", 8), ("vpc.amazonaws.com/efa", 4)],
    },
    Template {
        instance_type: "g5.12xlarge",
        cpus: 48,
        memory_gib: 192,
        devices: &[("nvidia.com/gpu", 4), ("vpc.amazonaws.com/efa", 1)],
    },
    Template {
        instance_type: "trn2.48xlarge",
        cpus: 192,
        memory_gib: 2048,
        devices: &[("aws.amazon.com/neuron", 16), ("vpc.amazonaws.com/efa", 16)],
    },
    Template {
        instance_type: "m7i.8xlarge",
        cpus: 32,
        memory_gib: 128,
        devices: &[],
    },
];

pub const ZONES: [&str; 3] = ["us-east-1a", "us-east-1b", "us-east-1c"];

/// How many writes are under way at once. More only queue inside of the API server.
pub const WRITERS: usize = 24;

/// The node's name says which it is; types and zones alternate.
pub fn name(index: usize) -> String {
    format!("fake-{index:05}")
}

pub fn template(index: usize) -> &'static Template {
    &TEMPLATES[index % TEMPLATES.len()]
}

/// Creates nodes `fake-00000` up to `count`, which are Ready at once.
pub async fn create(client: &Client, layout: Layout, count: usize) -> Result<()> {
    let api: Api<Node> = Api::all(client.clone());
    // Their logs come from KWOK's server, whose address every fake node shares.
    let address = layout.control_ip();
    let nodes = (0..count)
        .map(|index| serde_json::from_value(node(index, &address)).map_err(|e| Error::Refused(e.to_string())));
    stream::iter(nodes)
        .map(|node| {
            let api = api.clone();
            async move {
                let made = api.create(&PostParams::default(), &node?).await;
                match made {
                    // A second call with more nodes only adds the missing ones.
                    Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                    other => other.map(drop).doing("cannot create a fake node"),
                }
            }
        })
        .buffer_unordered(WRITERS)
        .try_collect::<Vec<_>>()
        .await
        .map(drop)
}

fn node(index: usize, address: &str) -> Value {
    let template = template(index);
    let zone = ZONES[index / TEMPLATES.len() % ZONES.len()];
    let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
    let mut resources = json!({
        "cpu": template.cpus.to_string(), "memory": format!("{}Gi", template.memory_gib), "pods": "250", "ephemeral-storage": "500Gi",
    });
    for (name, count) in template.devices {
        resources[name] = json!(count.to_string());
    }
    let condition = |kind: &str, status: &str, reason: &str| json!({"type": kind, "status": status, "reason": reason, "message": "", "lastHeartbeatTime": now, "lastTransitionTime": now});
    json!({
        "metadata": {
            "name": name(index),
            "annotations": {ANNOTATION.0: ANNOTATION.1},
            "labels": {
                "type": "kwok",
                "kubernetes.io/hostname": name(index),
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": template.instance_type,
                "topology.kubernetes.io/zone": zone,
                "topology.kubernetes.io/region": "us-east-1",
                "eks.amazonaws.com/nodegroup": template.instance_type.replace('.', "-"),
            },
        },
        "spec": {
            "providerID": format!("aws:///{zone}/i-{index:017x}"),
            "taints": [{"key": TAINT, "value": "fake", "effect": "NoSchedule"}],
        },
        "status": {
            "phase": "Running",
            "capacity": resources,
            "allocatable": resources,
            "addresses": [{"type": "InternalIP", "address": address}, {"type": "Hostname", "address": name(index)}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10247}},
            "conditions": [
                condition("Ready", "True", "KubeletReady"),
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            ],
            "nodeInfo": {
                "architecture": "amd64", "operatingSystem": "linux", "osImage": "Amazon Linux 2023", "kernelVersion": "6.12.40", "kubeletVersion": "v1.34.4",
                "kubeProxyVersion": "v1.34.4", "containerRuntimeVersion": "containerd://2.1.4", "machineID": format!("{index:032x}"),
                "systemUUID": format!("{index:032x}"), "bootID": format!("{index:032x}"),
            },
        },
    })
}
