//! kube-proxy in iptables mode: on each node, and beside the API server, which calls webhooks through Services.

use super::{Setting, argv};
use crate::error::Result;
use crate::layout::{NODES, write};
use crate::space::Program;
use serde_json::json;

pub fn program(setting: &Setting, space: &str) -> Result<Program> {
    // The control plane is no node. kube-proxy only takes its addresses from there, and waits a minute for a node that is missing.
    let node = if NODES.contains(&space) { space } else { NODES[0] };
    let config = json!({
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": setting.pki("kube-proxy.kubeconfig")},
        "hostnameOverride": node,
        "mode": "iptables",
        "detectLocalMode": "ClusterCIDR",
        "clusterCIDR": setting.layout.all_pods(),
        // The machine's limits are not the testbed's to change.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "iptables": {"minSyncPeriod": "200ms", "syncPeriod": "30s"},
    });
    let file = setting.file(&format!("{space}/kube-proxy.yaml"));
    write(&file, config.to_string())?;
    Ok(Program::new(
        "kube-proxy",
        argv(
            setting.bin("kube-proxy"),
            &[("config", file.to_string_lossy().into_owned())],
        ),
    ))
}
