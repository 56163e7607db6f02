//! A containerd folder in which all images are imported and unpacked, made once. A node copies its small databases and has the layers
//! mounted, which takes a moment, where importing would take half a minute for every node at every start.

use super::images::{self, Recipe};
use crate::command::{alone, run, script};
use crate::error::{Doing, Result};
use crate::layout::{Layout, cache, make_dir};
use crate::node;
use crate::space::Space;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

pub fn fill(recipes: &[Recipe], say: &dyn Fn(&str)) -> Result<PathBuf> {
    let folder = cache().join("store");
    let done = folder.join(super::key(recipes.iter().map(|r| &r.key)));
    if done.exists() {
        return Ok(done);
    }
    let started = Instant::now();
    let work = folder.join("work");
    // What a build left that was killed.
    let _ = std::fs::remove_dir_all(&work);
    make_dir(&work.join("log"))?;
    let space = Space::new("images", work.clone());
    // Network, mounts and processes of its own here too, so that a build that is killed leaves no shim and no mount.
    let mut init = alone(&["--net"]);
    init.arg(crate::program()?).arg("init").arg(&work).stdin(Stdio::piped());
    let mut init = init.spawn().doing("cannot start a space for images")?;
    let imported = import(recipes, &space, &work, say);
    let _ = init.kill();
    let _ = init.wait();
    imported?;
    std::fs::rename(work.join("lib/containerd"), &done).doing("cannot keep the images")?;
    let _ = std::fs::remove_dir_all(&work);
    say(&format!(
        "made and unpacked {} images in {:.0} s",
        recipes.len(),
        started.elapsed().as_secs_f64()
    ));
    Ok(done)
}

fn import(recipes: &[Recipe], space: &Space, work: &Path, say: &dyn Fn(&str)) -> Result<()> {
    space.await_up(Duration::from_secs(10))?;
    // The address plan is irrelevant here: this space has no network at all.
    node::mounts(Layout::new(0), space, None)?;
    node::start_runtime(space)?;
    for recipe in recipes {
        say(&format!("making image {}", recipe.name));
        let tar = work.join("image.tar");
        images::make(recipe, &tar, say)?;
        space.run(["ctr", "-n", "k8s.io", "images", "import", &tar.to_string_lossy()])?;
        let _ = std::fs::remove_file(&tar);
    }
    // Once unpacked, a layer's blob is only a second copy of it.
    space.run(["ctr", "-n", "k8s.io", "content", "prune", "references"])?;
    space.stop("containerd", 15)
}

/// Where containerd keeps the unpacked layers: nearly all of its folder, and never written to again.
const SNAPSHOTS: &str = "io.containerd.snapshotter.v1.overlayfs/snapshots";

/// Copies what containerd writes to (its databases and small change) to a node's folder. The rest is mounted by `attach`.
pub fn copy(store: &Path, to: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(to);
    make_dir(to)?;
    let (from, to) = (store.to_string_lossy(), to.to_string_lossy());
    run(&mut script(&format!(
        "cd '{from}'
         tar --exclude='./{SNAPSHOTS}/*/fs' -cf - . | tar -C '{to}' -xf -
         for fs in {SNAPSHOTS}/*/fs; do mkdir -p \"{to}/$fs\"; done"
    )))
    .map(drop)
}

/// Shell lines for a space that show the rest where containerd expects it. Read-only, so that nothing that goes on in a node can change
/// what others and later ones use.
pub fn attach(store: &Path) -> String {
    let from = store.to_string_lossy();
    format!(
        "for fs in $(cd '{from}' && echo {SNAPSHOTS}/*/fs); do
           mount --bind \"{from}/$fs\" \"/var/lib/containerd/$fs\"
           mount -o remount,bind,ro \"/var/lib/containerd/$fs\"
         done\n"
    )
}
