//! containerd, Debian's own. Each node has its own folders mounted over the usual places, so the usual places are what is configured.

use crate::error::Result;
use crate::layout::write;
use crate::space::Program;
use std::path::Path;

/// `restrict_oom_score_adj`: the machine lacks a capability, and runc dies on the first pod without this.
const CONFIG: &str = r#"
version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "docker.io/trainyard-test/pause:1"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "NETWORKS"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
"#;

pub fn program(dir: &Path) -> Result<Program> {
    let file = dir.join("containerd.toml");
    write(&file, CONFIG.replace("NETWORKS", &dir.join("net.d").to_string_lossy()))?;
    let argv = ["containerd", "--log-level", "warn", "--config", &file.to_string_lossy()].map(String::from);
    Ok(Program::new("containerd", argv))
}

/// The network that pods get: a bridge on the node, addresses from the node's own range.
pub fn network(layout: crate::layout::Layout, index: usize) -> String {
    serde_json::json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
                "ipam": {
                    "type": "host-local", "dataDir": "/var/lib/cni/addresses",
                    "ranges": [[{"subnet": layout.pod_net(index)}]], "routes": [{"dst": "0.0.0.0/0"}],
                },
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
    .to_string()
}
