//! Logs of fake pods: KWOK serves one file as the log of every pod in a namespace, and follows it as it grows.

use crate::cluster::Testbed;
use crate::error::{Doing, Error, Result};
use crate::layout::{Layout, write};
use std::io::Write;
use std::path::PathBuf;

/// Pods in this namespace, on fake nodes, have a log.
pub const NAMESPACE: &str = "fake-logs";

pub fn file(layout: Layout) -> PathBuf {
    layout.dir().join("control/fake-pods.log")
}

/// What KWOK is told about logs.
pub fn kwok_config(layout: Layout) -> Result<String> {
    let file = file(layout);
    if !file.exists() {
        write(&file, "")?;
    }
    let document = serde_json::json!({
        "apiVersion": "kwok.x-k8s.io/v1alpha1",
        "kind": "ClusterLogs",
        "metadata": {"name": "fake-pods"},
        "spec": {
            "selector": {"matchNamespaces": [NAMESPACE]},
            "logs": [{"logsFile": file, "follow": true}],
        },
    });
    Ok(document.to_string())
}

/// Appends lines, which every follower gets. KWOK reads the format in which containerd writes.
pub fn append(testbed: &Testbed, lines: impl IntoIterator<Item = String>) -> Result<()> {
    let mut out = std::fs::OpenOptions::new()
        .append(true)
        .open(file(testbed.layout))
        .doing("cannot open the fake log")?;
    let mut text = String::new();
    for line in lines {
        let now = chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Nanos, true);
        text += &format!("{now} stdout F {line}\n");
    }
    out.write_all(text.as_bytes()).doing("cannot write the fake log")
}

/// Each follower costs KWOK an inotify instance, and the machine allows 128. Raised for good: the limit is the machine's, and two
/// testbeds that each put it back would pull it from under each other.
pub fn raise_limits() -> Result<()> {
    for (name, wanted) in [("max_user_instances", 16384_u64), ("max_user_watches", 524_288)] {
        let path = format!("/proc/sys/fs/inotify/{name}");
        let now = std::fs::read_to_string(&path).doing("cannot read an inotify limit")?;
        let now: u64 = now
            .trim()
            .parse()
            .map_err(|_| Error::Refused(format!("{path} holds no number")))?;
        if now < wanted {
            std::fs::write(&path, wanted.to_string()).doing("cannot raise an inotify limit")?;
        }
    }
    Ok(())
}
