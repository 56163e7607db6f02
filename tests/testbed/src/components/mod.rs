//! One file per component: the command line and the configuration with which it runs, and why.

pub mod apiserver;
pub mod containerd;
pub mod controller_manager;
pub mod coredns;
pub mod etcd;
pub mod kube_proxy;
pub mod kube_router;
pub mod kubelet;
pub mod kwok;
pub mod scheduler;

use crate::layout::Layout;
use std::path::PathBuf;

/// What a component needs to know of its instance.
#[derive(Clone, Debug)]
pub struct Setting {
    pub layout: Layout,
    pub bin: PathBuf,
}

impl Setting {
    pub fn bin(&self, name: &str) -> String {
        self.bin.join(name).to_string_lossy().into_owned()
    }

    pub fn pki(&self, file: &str) -> String {
        self.layout.pki(file).to_string_lossy().into_owned()
    }

    /// A file of the component's own, under the instance's folder.
    pub fn file(&self, path: &str) -> PathBuf {
        self.layout.dir().join(path)
    }
}

/// `--name=value` words after the binary.
pub fn argv(binary: String, flags: &[(&str, String)]) -> Vec<String> {
    let mut words = vec![binary];
    words.extend(flags.iter().map(|(name, value)| format!("--{name}={value}")));
    words
}
