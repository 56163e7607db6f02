//! The install manifests of what runs as pods, rendered from the upstream modules and kept. They are installed as
//! upstream ships them but for the few changes in `change`, each with its reason.

use super::go;
use crate::command::run;
use crate::error::{Doing, Result, refused};
use crate::layout::{cache, make_dir, write};
use crate::versions::{self, Component};
use serde::Deserialize;
use serde_yaml_ng::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where an upstream module keeps what it installs.
struct Source {
    name: &'static str,
    /// The component whose module it lies in.
    component: &'static str,
    /// The folder to copy before rendering: kustomizations refer to their neighbours, and the module cache is read-only.
    root: &'static str,
    /// A kustomization, or a plain file, inside of `root`.
    path: &'static str,
    /// A line to leave out of the kustomization.
    without: &'static str,
}

const fn source(name: &'static str, component: &'static str, root: &'static str, path: &'static str) -> Source {
    Source {
        name,
        component,
        root,
        path,
        without: "",
    }
}

const SOURCES: [Source; 10] = [
    source(
        "training-operator",
        "training-operator",
        "manifests",
        "overlays/standalone",
    ),
    source("jobset", "jobset", "config", "default"),
    source("kueue", "kueue", "config", "default"),
    // Upstream says to leave this line out where JobSet is installed already; it would also be fetched from elsewhere.
    Source {
        without: "third-party/jobset",
        ..source("trainer", "trainer", "manifests", "overlays/manager")
    },
    source(
        "trainer-runtime",
        "trainer",
        "manifests/base/runtimes",
        "torch_distributed.yaml",
    ),
    source("mpi-operator", "mpi-operator", "deploy/v2beta1", "mpi-operator.yaml"),
    source(
        "local-path",
        "local-path-provisioner",
        "deploy",
        "local-path-storage.yaml",
    ),
    source("metrics-server", "metrics-server", "manifests", "base"),
    source("kwok-stages", "kwok", "kustomize", "stage/fast"),
    source("kwok-crds", "kwok", "kustomize", "crd"),
];

/// Renders what is missing and gives back the folder.
pub fn render(components: &[Component], bin: &Path, say: &dyn Fn(&str)) -> Result<PathBuf> {
    let versions: Vec<_> = components.iter().map(|c| format!("{c:?}")).collect();
    // This file is part of the recipe: whoever changes it gets new manifests.
    let key = super::key([versions.join("\n"), include_str!("manifests.rs").to_string()]);
    let folder = cache().join("manifests").join(key);
    if folder.join("done").exists() {
        return Ok(folder);
    }
    say("rendering upstream install manifests");
    make_dir(&folder)?;
    for source in &SOURCES {
        let module = go::module_dir(&versions::of(components, source.component)?)?;
        let text = render_one(source, &module, &folder, bin)?;
        write(
            &folder.join(format!("{}.yaml", source.name)),
            change(source.name, &text)?,
        )?;
    }
    write(&folder.join("done"), "")?;
    Ok(folder)
}

fn render_one(source: &Source, module: &Path, folder: &Path, bin: &Path) -> Result<String> {
    let copy = folder.join("work");
    let _ = std::fs::remove_dir_all(&copy);
    run(Command::new("cp")
        .arg("-r")
        .arg("--no-preserve=mode")
        .arg(module.join(source.root))
        .arg(&copy))?;
    let path = copy.join(source.path);
    if path.is_file() {
        return std::fs::read_to_string(&path).doing(format!("cannot read {}", path.display()));
    }
    if !source.without.is_empty() {
        let file = path.join("kustomization.yaml");
        let text = std::fs::read_to_string(&file).doing(format!("cannot read {}", file.display()))?;
        let kept: Vec<_> = text.lines().filter(|line| !line.contains(source.without)).collect();
        write(&file, kept.join("\n"))?;
    }
    let text = run(Command::new(bin.join("kubectl")).arg("kustomize").arg(&path))?;
    let _ = std::fs::remove_dir_all(&copy);
    Ok(text)
}

/// The documents of a YAML stream.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    serde_yaml_ng::Deserializer::from_str(text)
        .map(Value::deserialize)
        .filter(|d| !matches!(d, Ok(Value::Null)))
        .collect::<std::result::Result<_, _>>()
        .map_err(|e| refused("a manifest is no YAML")(&e))
}

pub fn to_text(documents: &[Value]) -> Result<String> {
    let texts: std::result::Result<Vec<_>, _> = documents.iter().map(serde_yaml_ng::to_string).collect();
    Ok(texts.map_err(|e| refused("cannot write YAML")(&e))?.join("---\n"))
}

fn change(name: &str, text: &str) -> Result<String> {
    if name == "kwok-stages" {
        // Go templates in strings: read by kwok alone, so left to the byte.
        return Ok(text.to_string());
    }
    let mut documents = documents(text)?;
    for document in &mut documents {
        match (name, document["kind"].as_str().unwrap_or_default()) {
            (_, "Deployment") => change_deployment(name, document),
            // Claims without a class get this one, as on any cluster that people use.
            ("local-path", "StorageClass") => {
                document["metadata"]["annotations"]["storageclass.kubernetes.io/is-default-class"] = "true".into();
            }
            // The stock runtime asks for an image of PyTorch's that is not to be had here.
            ("trainer-runtime", "ClusterTrainingRuntime") => replace_images(document, super::images::TORCH),
            // The same goes for the helper that makes a volume's folder; ours has a shell too.
            ("local-path", "ConfigMap") => {
                let pod = document["data"]["helperPod.yaml"].as_str().unwrap_or_default();
                document["data"]["helperPod.yaml"] = pod
                    .replace("image: busybox", &format!("image: {}", super::images::TORCH))
                    .into();
            }
            _ => {}
        }
    }
    to_text(&documents)
}

fn change_deployment(name: &str, document: &mut Value) {
    let Some(containers) = document["spec"]["template"]["spec"]["containers"].as_sequence_mut() else {
        return;
    };
    for container in containers {
        // Kueue's manifest says Always, and there is nowhere to pull from.
        container["imagePullPolicy"] = "IfNotPresent".into();
        // Two cores carry everything here; upstream's requests would leave none for the jobs under test.
        let resources = container.get_mut("resources");
        if let Some(requests) = resources
            .and_then(|r| r.get_mut("requests"))
            .and_then(Value::as_mapping_mut)
        {
            requests.insert("cpu".into(), "10m".into());
        }
        if name == "metrics-server" {
            // The kubelets' serving certificates are their own.
            if let Some(args) = container["args"].as_sequence_mut() {
                args.push("--kubelet-insecure-tls".into());
            }
        }
        // Upstream waits this long before a first look; the tests wait with it at every start.
        for probe in ["readinessProbe", "livenessProbe"] {
            if !container[probe].is_null() {
                container[probe]["initialDelaySeconds"] = 1.into();
            }
        }
        if !container["readinessProbe"].is_null() {
            container["readinessProbe"]["periodSeconds"] = 2.into();
        }
    }
}

fn replace_images(value: &mut Value, with: &str) {
    match value {
        Value::Mapping(map) => {
            for (key, inner) in map.iter_mut() {
                if key.as_str() == Some("image") && inner.is_string() {
                    *inner = with.into();
                } else {
                    replace_images(inner, with);
                }
            }
        }
        Value::Sequence(list) => list.iter_mut().for_each(|inner| replace_images(inner, with)),
        _ => {}
    }
}
