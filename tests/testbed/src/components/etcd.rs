//! The store. Alone, on the control plane's loopback, without waiting for the disk: nothing in it outlives the instance.

use super::{Setting, argv};
use crate::space::Program;
use std::path::PathBuf;

pub const URL: &str = "http://127.0.0.1:2379";

pub fn data_dir(setting: &Setting) -> PathBuf {
    setting.file("control/etcd")
}

pub fn program(setting: &Setting) -> Program {
    let flags = [
        ("data-dir", data_dir(setting).to_string_lossy().into_owned()),
        ("listen-client-urls", URL.into()),
        ("advertise-client-urls", URL.into()),
        ("listen-peer-urls", "http://127.0.0.1:2380".into()),
        ("initial-advertise-peer-urls", "http://127.0.0.1:2380".into()),
        ("initial-cluster", "default=http://127.0.0.1:2380".into()),
        ("unsafe-no-fsync", "true".into()),
        // Room for 50,000 pods and what their updates leave behind until compaction.
        ("quota-backend-bytes", "6442450944".into()),
        ("log-level", "warn".into()),
    ];
    Program::new("etcd", argv(setting.bin("etcd"), &flags))
}
