//! A real kubelet.

use super::{Setting, argv};
use crate::error::Result;
use crate::layout::{node_index, write};
use crate::space::Program;
use serde_json::json;

pub fn program(setting: &Setting, node: &str) -> Result<Program> {
    let layout = setting.layout;
    let index = node_index(node).unwrap_or(1);
    let ip = layout.node_ip(index);
    let config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ip,
        "tlsCertFile": setting.pki(&format!("{node}.crt")),
        "tlsPrivateKeyFile": setting.pki(&format!("{node}.key")),
        "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true}, "x509": {"clientCAFile": setting.pki("ca.crt")}},
        "authorization": {"mode": "Webhook"},
        "clusterDNS": [layout.control_ip()],
        "clusterDomain": "cluster.local",
        // Names that the cluster does not know are nobody's business here.
        "resolvConf": "/dev/null",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": format!("/{}", layout.cgroup(node)),
        "failCgroupV1": false,
        "failSwapOn": false,
        // The nodes share one machine, so none may reserve or judge the whole of it.
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false,
        "evictionHard": {"memory.available": "1%", "nodefs.available": "1%", "imagefs.available": "1%"},
        "imageGCHighThresholdPercent": 100,
        "podLogsDir": "/var/log/pods",
        // Operators write their webhook's certificate to a Secret that they have mounted; with the usual minute between looks, installing
        // four of them would be minutes of waiting.
        "syncFrequency": "4s",
        "maxPods": 110,
        "kubeAPIQPS": 100,
        "kubeAPIBurst": 200,
        "registryPullQPS": 0,
        "eventRecordQPS": 100,
        "eventBurst": 200,
        "serializeImagePulls": false,
        "shutdownGracePeriod": "0s",
        "logging": {"verbosity": 1},
    });
    let file = setting.file(&format!("{node}/kubelet.yaml"));
    write(&file, config.to_string())?;
    // Two zones, so that spreading over zones can be tested on real nodes.
    let labels = format!(
        "topology.kubernetes.io/zone=zone-{index},topology.kubernetes.io/region=testbed,node.kubernetes.io/instance-type=testbed.real"
    );
    let flags = [
        ("config", file.to_string_lossy().into_owned()),
        ("kubeconfig", setting.pki(&format!("{node}.kubeconfig"))),
        ("hostname-override", node.into()),
        ("node-ip", ip),
        ("node-labels", labels),
        ("root-dir", "/var/lib/kubelet".into()),
        ("cert-dir", "/var/lib/kubelet/pki".into()),
    ];
    Ok(Program::new("kubelet", argv(setting.bin("kubelet"), &flags)))
}
