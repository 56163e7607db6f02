//! Where an instance keeps things and which addresses it uses. Everything follows from its number, so that two
//! instances cannot meet and whoever cleans up knows what to look for.

use std::path::{Path, PathBuf};

/// More would fit the address plan, but not two cores.
pub const MAX_INSTANCES: u8 = 16;

/// What is worth keeping between runs: binaries, images, etcd snapshots.
pub fn cache() -> PathBuf {
    from_env("TRAINYARD_TESTBED_CACHE", "/var/cache/trainyard-testbed")
}

/// What only building needs: Go's caches and the Debian layer. Four times the size of what comes of them, so it goes after a build
/// unless somebody asks to keep it.
pub fn workshop() -> PathBuf {
    cache().join("workshop")
}

/// Set, it leaves the workshop and what older recipes made where they are, for whoever changes recipes back and forth.
pub fn keep_all() -> bool {
    std::env::var_os("TRAINYARD_TESTBED_KEEP").is_some_and(|v| !v.is_empty())
}

/// What running instances need; empty when nothing runs.
pub fn state() -> PathBuf {
    from_env("TRAINYARD_TESTBED_STATE", "/var/lib/trainyard-testbed")
}

/// The folder of this package: `versions`, the Go modules and our manifests are read from it.
pub fn source() -> PathBuf {
    from_env("TRAINYARD_TESTBED_SOURCE", env!("CARGO_MANIFEST_DIR"))
}

/// The last part of a path. Keys are made of these, so that a cache may be moved.
pub fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// What is not absolute means the caller's own folder, also for those who are given it and stand elsewhere.
fn from_env(name: &str, default: &str) -> PathBuf {
    let path = std::env::var_os(name).filter(|path| !path.is_empty());
    let path = path.map_or_else(|| PathBuf::from(default), PathBuf::from);
    std::path::absolute(&path).unwrap_or(path)
}

/// One instance's names, folders and addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    pub number: u8,
}

impl Layout {
    pub fn new(number: u8) -> Self {
        assert!(number < MAX_INSTANCES, "instance numbers end at {}", MAX_INSTANCES - 1);
        Layout { number }
    }

    pub fn name(&self) -> String {
        format!("trainyard-tb{}", self.number)
    }

    pub fn dir(&self) -> PathBuf {
        state().join(self.number.to_string())
    }

    /// Held by the guard as long as the instance lives. Outside of `dir`, which is deleted while it is held.
    pub fn lock(&self) -> PathBuf {
        state().join(format!("{}.lock", self.number))
    }

    /// Held by whoever starts or ends the instance, while at it.
    pub fn starting(&self) -> PathBuf {
        state().join(format!("{}.start.lock", self.number))
    }

    /// What was asked for. Written last, when everything is up: an instance without it is not finished.
    pub fn options(&self) -> PathBuf {
        self.dir().join("testbed.json")
    }

    /// What of the cache the instance uses; there from before its first program starts.
    pub fn built(&self) -> PathBuf {
        self.dir().join("built.json")
    }

    pub fn pki(&self, file: &str) -> PathBuf {
        self.dir().join("pki").join(file)
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir().join("kubeconfig")
    }

    pub fn audit_log(&self) -> PathBuf {
        self.dir().join("control/log/audit.log")
    }

    pub fn space_dir(&self, space: &str) -> PathBuf {
        self.dir().join(space)
    }

    /// The end of the one link between this machine and the instance; all else lives in namespaces.
    pub fn host_link(&self) -> String {
        format!("tytb{}", self.number)
    }

    /// Under this name a node's pods are found in every cgroup hierarchy.
    pub fn cgroup(&self, node: &str) -> String {
        format!("{}-{node}", self.name())
    }

    fn net(&self, rest: &str) -> String {
        format!("10.{}.{rest}", 120 + u16::from(self.number))
    }

    pub fn whole_net(&self) -> String {
        self.net("0.0/16")
    }
    pub fn control_ip(&self) -> String {
        self.net("0.1")
    }
    pub fn node_ip(&self, index: usize) -> String {
        self.net(&format!("0.{}", 10 + index))
    }
    pub fn pod_net(&self, index: usize) -> String {
        self.net(&format!("{}.0/24", 10 + index))
    }
    pub fn pod_gateway(&self, index: usize) -> String {
        self.net(&format!("{}.1", 10 + index))
    }
    pub fn all_pods(&self) -> String {
        self.net("0.0/18")
    }
    pub fn fake_pods(&self) -> String {
        self.net("64.1/18")
    }
    pub fn services(&self) -> String {
        self.net("240.0/20")
    }
    pub fn kubernetes_service(&self) -> String {
        self.net("240.1")
    }
    /// The instance's end of the link to this machine: where tests reach the API server.
    pub fn api_ip(&self) -> String {
        self.net("128.1")
    }
    /// This machine's end of the link: where the instance reaches a webhook that a test serves.
    pub fn host_ip(&self) -> String {
        self.net("128.2")
    }
    pub fn api_url(&self) -> String {
        format!("https://{}:6443", self.api_ip())
    }
    /// The API server as seen from the control plane and the nodes.
    pub fn inner_api_url(&self) -> String {
        format!("https://{}:6443", self.control_ip())
    }
}

/// The real nodes of every instance, in order; a node's index (from 1) is part of its addresses.
pub const NODES: [&str; 2] = ["node-1", "node-2"];

pub fn node_index(node: &str) -> Option<usize> {
    NODES.iter().position(|n| *n == node).map(|i| i + 1)
}

pub fn make_dir(path: &Path) -> crate::Result<()> {
    use crate::error::Doing;
    std::fs::create_dir_all(path).doing(format!("cannot make {}", path.display()))
}

/// Leaves a file alone that says so already: kube-proxy watches its configuration and ends when it is written, whatever is written.
pub fn write(path: &Path, content: impl AsRef<[u8]>) -> crate::Result<()> {
    use crate::error::Doing;
    if std::fs::read(path).is_ok_and(|old| old == content.as_ref()) {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        make_dir(parent)?;
    }
    std::fs::write(path, content).doing(format!("cannot write {}", path.display()))
}
