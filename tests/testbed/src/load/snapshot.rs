//! etcd folders, kept between runs: the hundred thousand writes of a large cluster take minutes, their copy a second.

use super::fill;
use crate::cluster::{Options, Testbed};
use crate::components::etcd;
use crate::error::{Doing, Result};
use crate::faults::api::etcd_call;
use crate::layout::{cache, make_dir};
use serde_json::json;
use std::path::{Path, PathBuf};

/// A cluster of that size: filled and kept the first time, from its snapshot afterwards. Also says how long filling took, if it had to.
pub async fn filled(
    options: Options,
    pods: usize,
    tied: bool,
    say: &dyn Fn(&str),
) -> Result<(Testbed, Option<fill::Filled>)> {
    let nodes = options.fake_nodes;
    let path = path(&format!("{nodes}-{pods}"), &crate::build::all(say)?.key);
    if path.exists() {
        let options = Options {
            snapshot: Some(path),
            ..options
        };
        return Ok((Testbed::start_with(options, tied, say).await?, None));
    }
    let mut testbed = Testbed::start_with(
        Options {
            fake_nodes: 0,
            ..options
        },
        tied,
        say,
    )
    .await?;
    testbed.options.fake_nodes = nodes;
    let filled = fill::fill(&testbed.client().await?, testbed.layout, nodes, pods).await?;
    save(&testbed, &path).await?;
    Ok((testbed, Some(filled)))
}

/// Where a snapshot of this name would lie. `key` is the recipe's, so that an old one is never taken for a new one.
pub fn path(name: &str, key: &str) -> PathBuf {
    cache().join("snapshots").join(format!("{name}-{key}"))
}

/// What belongs to one instance and not to its content: addresses that another instance has otherwise.
const NOT_KEPT: [&str; 6] = [
    "/registry/services/specs/default/kubernetes",
    "/registry/services/endpoints/default/kubernetes",
    "/registry/endpointslices/default/kubernetes",
    "/registry/ranges/",
    "/registry/servicecidrs/",
    "/registry/ipaddresses/",
];

/// Stops the API server and etcd for a moment, copies, and starts them again.
pub async fn save(testbed: &Testbed, to: &Path) -> Result<()> {
    let control = testbed.control();
    control.stop("kube-apiserver", 15)?;
    for key in NOT_KEPT {
        let end = if key.ends_with('/') {
            after(key)
        } else {
            format!("{key}\0")
        };
        etcd_call(
            testbed,
            "/v3/kv/deleterange",
            &json!({"key": base64(key), "range_end": base64(&end)}),
        )?;
    }
    control.stop("etcd", 15)?;
    let setting = testbed.setting();
    let part = to.with_extension("part");
    let _ = std::fs::remove_dir_all(&part);
    make_dir(&part)?;
    copy_tree(&etcd::data_dir(&setting), &part)?;
    let _ = std::fs::remove_dir_all(to);
    std::fs::rename(&part, to).doing("cannot keep a snapshot")?;
    control.start(etcd::program(&setting))?;
    testbed.start_api_server().await
}

pub fn restore(from: &Path, to: &Path) -> Result<()> {
    make_dir(to)?;
    copy_tree(from, to)
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let from = format!("{}/.", from.display());
    crate::command::run(&mut crate::command::command(["cp", "-a", &from, &to.to_string_lossy()])).map(drop)
}

/// The end of the range of all keys with this prefix.
fn after(prefix: &str) -> String {
    format!("{}0", prefix.trim_end_matches('/'))
}

fn base64(text: &str) -> String {
    data_encoding::BASE64.encode(text.as_bytes())
}
