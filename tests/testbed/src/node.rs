//! Brings a real node up in its space: folders of its own over the usual places, then containerd, kubelet, kube-proxy and firewall.

use crate::build::store;
use crate::components::{Setting, containerd, kube_proxy, kube_router, kubelet};
use crate::error::{Error, Result};
use crate::layout::{Layout, cache, make_dir, node_index, state, write};
use crate::space::Space;
use crate::{cgroups, network};
use std::path::Path;
use std::time::{Duration, Instant};

pub fn space(layout: Layout, node: &str) -> Space {
    Space::new(node, layout.space_dir(node))
}

/// Everything from an empty space to a started kubelet. The node is Ready some seconds later.
pub fn up(setting: &Setting, node: &str, images: &Path) -> Result<()> {
    let layout = setting.layout;
    let space = space(layout, node);
    // What an earlier life of this node left would be taken for running containers.
    for folder in ["run", "log-node", "lib"] {
        let _ = std::fs::remove_dir_all(space.dir.join(folder));
    }
    cgroups::remove(&layout.cgroup(node))?;
    cgroups::make(&layout.cgroup(node))?;
    network::node(layout, node)?;
    // Before the mounts: a folder that is replaced under a mount is gone from it.
    store::copy(images, &space.dir.join("lib/containerd"))?;
    mounts(layout, &space, Some(images))?;
    start_runtime(&space)?;
    space.start(kubelet::program(setting, node)?)?;
    space.start(kube_proxy::program(setting, node)?)
}

/// The firewall ends at once unless its node is known to the API server, so it starts after the kubelet has said so.
pub fn start_firewall(setting: &Setting, node: &str) -> Result<()> {
    space(setting.layout, node).start(kube_router::program(setting, node))
}

/// Starts containerd and waits until it answers.
pub fn start_runtime(space: &Space) -> Result<()> {
    space.start(containerd::program(&space.dir)?)?;
    let started = Instant::now();
    while space.run(["ctr", "version"]).is_err() {
        if started.elapsed() > Duration::from_secs(30) {
            let last = format!(":\n{}", space.log_tail("containerd"));
            return Err(Error::Timeout {
                what: format!("containerd of {}", space.name),
                after: started.elapsed(),
                last,
            });
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// Programs and plug-ins have habits about where things lie. Rather than argue with each, the usual places are the node's own: visible
/// in its mount namespace alone, and gone with it.
pub fn mounts(layout: Layout, space: &Space, images: Option<&Path>) -> Result<()> {
    let dir = space.dir.to_string_lossy().into_owned();
    for folder in [
        "run",
        "log-node",
        "lib/containerd",
        "lib/kubelet",
        "lib/cni",
        "net.d",
        "volumes",
    ] {
        make_dir(&space.dir.join(folder))?;
    }
    if let Some(index) = node_index(&space.name) {
        write(
            &space.dir.join("net.d/10-pods.conflist"),
            containerd::network(layout, index),
        )?;
    }
    write(
        &space.dir.join("resolv.conf"),
        format!("nameserver {}\n", layout.control_ip()),
    )?;
    let mut text = "mount -t tmpfs tmpfs /mnt\n".to_string();
    // /var/lib becomes a handful of our folders; ours may lie below it themselves and must stay visible.
    for ours in [state(), cache()] {
        if let Ok(below) = ours.strip_prefix("/var/lib") {
            // The first build of a machine comes before its first instance, which would have made it.
            make_dir(&ours)?;
            text += &format!(
                "mkdir -p /mnt/{0}\nmount --bind {1} /mnt/{0}\n",
                below.display(),
                ours.display()
            );
        }
    }
    for folder in ["containerd", "kubelet", "cni"] {
        text += &format!("mkdir -p /mnt/{folder}\nmount --bind {dir}/lib/{folder} /mnt/{folder}\n");
    }
    text += &format!(
        "mount --move /mnt /var/lib
         mount --bind {dir}/run /run
         mount --bind {dir}/log-node /var/log
         mount -t tmpfs tmpfs /opt
         mkdir -p /opt/local-path-provisioner
         mount --bind {dir}/volumes /opt/local-path-provisioner
         mount --bind {dir}/resolv.conf /etc/resolv.conf
         # Mounts that a pod makes for others must reach them, and end at this namespace.
         mount --make-rshared /"
    );
    text += &images
        .map(|store| format!("\n{}", store::attach(store)))
        .unwrap_or_default();
    space.script(&text).map(|_| ())
}
