//! Binaries from the Go modules that `versions` pins. Compiling everything takes a quarter of an hour on two cores, so each binary is
//! kept under a key made of its line, its go.mod, go.sum and main, and the flags.

use crate::command::run;
use crate::error::{Doing, Error, Result};
use crate::layout::{self, cache, make_dir, source, workshop};
use crate::versions::{self, Component};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// Static binaries, since the same ones go into images; no paths and no debug information, which halves them.
const FLAGS: [&str; 3] = ["-trimpath", "-buildvcs=false", "-mod=readonly"];

/// The folder with all binaries, built where they are missing.
pub fn build(components: &[Component], say: &dyn Fn(&str)) -> Result<PathBuf> {
    let mut keys = Vec::new();
    let mut missing: BTreeMap<&str, Vec<(&Component, PathBuf)>> = BTreeMap::new();
    for component in components {
        let key = key(component)?;
        let file = cache().join("binaries").join(format!("{}-{key}", component.name));
        if !file.exists() {
            missing
                .entry(&component.group)
                .or_default()
                .push((component, file.clone()));
        }
        keys.push((component.name.clone(), file));
    }
    // The group with the control plane first: everything else can wait for it, and it fails soonest.
    let mut groups: Vec<_> = missing.into_iter().collect();
    groups.sort_by_key(|(group, _)| *group != "core");
    for (group, wanted) in groups {
        compile(group, &wanted, say)?;
    }
    farm(&keys)
}

fn key(component: &Component) -> Result<String> {
    let folder = source().join("modules").join(&component.group);
    let go_mod = read(&folder.join("go.mod"))?;
    if component.module != "-" {
        versions::agree(component, &go_mod)?;
    }
    let sum = if component.module == "-" {
        String::new()
    } else {
        read(&folder.join("go.sum"))?
    };
    let main = if component.package == "main" {
        read(&folder.join("main.go"))?
    } else {
        String::new()
    };
    Ok(super::key([
        format!("{component:?}"),
        go_mod,
        sum,
        main,
        FLAGS.join(" "),
        ldflags(component),
    ]))
}

fn ldflags(component: &Component) -> String {
    let mut flags = "-s -w".to_string();
    if component.module == "k8s.io/kubernetes" {
        let minor = component.version.split('.').nth(1).unwrap_or_default();
        let set = |name: &str, value: &str| format!(" -X k8s.io/component-base/version.{name}={value}");
        // Without these, the API server says that it is v0.0.0, and clients believe it.
        flags += &(set("gitVersion", &component.version)
            + &set("gitMajor", "1")
            + &set("gitMinor", minor)
            + &set("gitTreeState", "clean"));
    }
    flags
}

fn compile(group: &str, wanted: &[(&Component, PathBuf)], say: &dyn Fn(&str)) -> Result<()> {
    let go = Command::new("go").arg("version").output();
    if !go.is_ok_and(|out| out.status.success()) {
        let help = "install Go 1.26 and put it on the PATH".to_string();
        return Err(Error::Missing {
            what: "the `go` command, which builds Kubernetes,".into(),
            help,
        });
    }
    let out = workshop().join("out").join(group);
    let _ = std::fs::remove_dir_all(&out);
    make_dir(&out)?;
    // Flags differ between components of a group only at link time, so compiled packages are shared all the same.
    let mut by_flags: BTreeMap<String, Vec<&Component>> = BTreeMap::new();
    for (component, _) in wanted {
        by_flags.entry(ldflags(component)).or_default().push(component);
    }
    for (ldflags, components) in by_flags {
        let names: Vec<_> = components.iter().map(|c| c.name.as_str()).collect();
        say(&format!(
            "building {} (minutes when nothing is cached)",
            names.join(", ")
        ));
        let started = Instant::now();
        let mut command = Command::new("nice");
        command
            .args(["-n", "10", "go", "build"])
            .args(FLAGS)
            .arg("-ldflags")
            .arg(ldflags)
            .arg("-o")
            .arg(format!("{}/", out.display()));
        command
            .args(components.iter().map(|c| c.import_path()))
            .current_dir(source().join("modules").join(group));
        command
            .env("CGO_ENABLED", "0")
            .env("GOCACHE", workshop().join("go-build"))
            .env("GOMODCACHE", workshop().join("go-mod"));
        command.env("GOFLAGS", "").env_remove("GOBIN");
        run(&mut command)?;
        say(&format!(
            "built {} in {:.0} s",
            names.join(", "),
            started.elapsed().as_secs_f64()
        ));
    }
    make_dir(&cache().join("binaries"))?;
    for (component, file) in wanted {
        let built = out.join(built_name(component));
        std::fs::rename(&built, file).doing(format!("go build did not leave {}", built.display()))?;
    }
    Ok(())
}

/// Go names a binary after its package's last element that is no version.
fn built_name(component: &Component) -> String {
    if component.package == "main" {
        return component.group.clone();
    }
    let path = component.import_path();
    let is_version = |w: &&str| w.strip_prefix('v').is_some_and(|n| n.parse::<u32>().is_ok());
    path.rsplit('/').find(|w| !is_version(w)).unwrap_or(&path).to_string()
}

/// A folder of links under plain names, so that what starts them need not know keys.
fn farm(keys: &[(String, PathBuf)]) -> Result<PathBuf> {
    let key = super::key(keys.iter().map(|(_, file)| layout::name(file)));
    let folder = cache().join("bin").join(key);
    make_dir(&folder)?;
    for (name, file) in keys {
        let link = folder.join(name);
        if !link.exists() {
            std::fs::hard_link(file, &link).doing(format!("cannot link {}", link.display()))?;
        }
    }
    Ok(folder)
}

/// The folder of an upstream module in the module cache: its install manifests lie beside the code.
pub fn module_dir(component: &Component) -> Result<PathBuf> {
    let mut command = Command::new("go");
    command.args(["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", &component.module]);
    command
        .current_dir(source().join("modules").join(&component.group))
        .env("GOMODCACHE", workshop().join("go-mod"));
    let dir = PathBuf::from(run(&mut command)?.trim());
    if dir.as_os_str().is_empty() || !dir.exists() {
        let mut command = Command::new("go");
        command.args(["mod", "download", &component.module]);
        command
            .current_dir(source().join("modules").join(&component.group))
            .env("GOMODCACHE", workshop().join("go-mod"));
        run(&mut command)?;
        return Ok(workshop()
            .join("go-mod")
            .join(format!("{}@{}", component.module, component.version)));
    }
    Ok(dir)
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).doing(format!("cannot read {}", path.display()))
}
