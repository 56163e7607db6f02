//! A containerd folder in which all images are imported and unpacked, made once. A node gets it as hard links, in a second, where importing
//! would take half a minute for every node at every start. Sharing is safe: containers write to layers of their own,
//! and the two databases, which are written to, are copied.

use super::images::{self, Recipe};
use crate::command::{command, run, script};
use crate::error::{Doing, Result};
use crate::layout::{Layout, cache, make_dir};
use crate::node;
use crate::space::Space;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn fill(recipes: &[Recipe], say: &dyn Fn(&str)) -> Result<PathBuf> {
    let folder = cache().join("store");
    let done = folder.join(super::key(recipes.iter().map(|r| &r.key)));
    if done.exists() {
        return Ok(done);
    }
    // Only the newest is kept: it is gigabytes, and a changed recipe changes all of it.
    let _ = std::fs::remove_dir_all(&folder);
    make_dir(&folder)?;
    let started = Instant::now();
    let work = folder.join("work");
    make_dir(&work.join("log"))?;
    let space = Space::new("images", work.clone());
    // Network, mounts and processes of its own here too, so that a build that is killed leaves no shim and no mount.
    let mut init = Command::new("setpriv");
    init.args([
        "--pdeathsig",
        "KILL",
        "unshare",
        "--net",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
        "--propagation",
        "private",
    ]);
    init.arg(program()?).arg("init").arg(&work).stdin(Stdio::piped());
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
    node::mounts(Layout::new(0), space)?;
    node::start_runtime(space)?;
    for recipe in recipes {
        say(&format!("making image {}", recipe.name));
        let tar = work.join("image.tar");
        images::make(recipe, &tar, say)?;
        space.run(["ctr", "-n", "k8s.io", "images", "import", &tar.to_string_lossy()])?;
        let _ = std::fs::remove_file(&tar);
    }
    space.stop("containerd", 15)
}

/// The program that serves as a space's init: this one, or the one that was built beside a test.
pub fn program() -> Result<PathBuf> {
    crate::program()
}

/// Gives a node the images.
pub fn copy(store: &Path, to: &Path) -> Result<()> {
    let _ = std::fs::remove_dir_all(to);
    make_dir(to.parent().unwrap_or(to))?;
    let (from, to) = (store.to_string_lossy(), to.to_string_lossy());
    let linked = run(&mut command(["cp", "-al", &from, &to]));
    if linked.is_err() {
        // Cache and state on different file systems: a real copy then.
        run(&mut script(&format!("rm -rf '{to}'; cp -a '{from}' '{to}'")))?;
    }
    run(&mut script(&format!(
        "cd '{from}'; find . -name '*.db' | while read -r f; do cp --remove-destination \"$f\" \"{to}/$f\"; done"
    )))
    .map(|_| ())
}
