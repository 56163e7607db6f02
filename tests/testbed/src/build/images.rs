//! What each image is made of. Nothing is pulled: operators get their own names, so that upstream's manifests find them, and
//! the training image comes from Debian's packages.

use super::oci::{self, Entry, Image};
use crate::command::{alone, run};
use crate::error::{Doing, Result};
use crate::layout::{self, make_dir, source, workshop};
use crate::versions::{self, Component};
use std::path::{Path, PathBuf};

/// PyTorch, numpy, Open MPI, mpi4py, sshd and our scripts; the one image for everything that trains.
pub const TORCH: &str = "docker.io/trainyard-test/torch:1";
pub const PAUSE: &str = "docker.io/trainyard-test/pause:1";

/// Debian's packages in the training image. bind9-dnsutils: the training operator's init container calls `nslookup`, and
/// BusyBox's exits 1 on search domains.
const PACKAGES: &str = "python3-torch,python3-numpy,python3-mpi4py,openmpi-bin,openssh-server,openssh-client,bind9-dnsutils,iproute2,ca-certificates";

/// One image to make, with a key that changes with anything it is made of.
pub struct Recipe {
    pub key: String,
    pub name: String,
    make: Make,
}

enum Make {
    Binary {
        names: Vec<String>,
        from: PathBuf,
        at: String,
        user: &'static str,
    },
    Torch,
}

/// Everything that any profile needs. The names of operators are those in their manifests.
pub fn recipes(components: &[Component], bin: &Path) -> Result<Vec<Recipe>> {
    let version = |name: &str| versions::of(components, name).map(|c| c.version);
    let binary = |component: &str, name: String, at: &str, user: &'static str| -> Result<Recipe> {
        let from = bin.join(component);
        let parts = [layout::name(bin), name.clone(), at.into(), user.into()];
        Ok(Recipe {
            key: super::key(parts),
            name: component.into(),
            make: Make::Binary {
                names: vec![name],
                from,
                at: at.into(),
                user,
            },
        })
    };
    // Manifests with runAsNonRoot refuse an image whose user is root or has a name instead of a number.
    let nobody = "65532:65532";
    Ok(vec![
        binary("pause", PAUSE.into(), "/pause", nobody)?,
        binary(
            "training-operator",
            "ghcr.io/kubeflow/training-v1/training-operator:v1-d6eb98e".into(),
            "/manager",
            nobody,
        )?,
        binary(
            "jobset",
            format!(
                "us-central1-docker.pkg.dev/k8s-staging-images/jobset/jobset:{}",
                version("jobset")?
            ),
            "/manager",
            nobody,
        )?,
        binary(
            "kueue",
            "us-central1-docker.pkg.dev/k8s-staging-images/kueue/kueue:main".into(),
            "/manager",
            nobody,
        )?,
        binary(
            "trainer",
            format!(
                "ghcr.io/kubeflow/trainer/trainer-controller-manager:{}",
                version("trainer")?
            ),
            "/manager",
            nobody,
        )?,
        binary(
            "mpi-operator",
            format!(
                "docker.io/mpioperator/mpi-operator:{}",
                version("mpi-operator")?.trim_start_matches('v')
            ),
            "/opt/mpi-operator",
            nobody,
        )?,
        binary(
            "metrics-server",
            "gcr.io/k8s-staging-metrics-server/metrics-server:master".into(),
            "/metrics-server",
            nobody,
        )?,
        binary(
            "local-path-provisioner",
            format!(
                "docker.io/rancher/local-path-provisioner:{}",
                version("local-path-provisioner")?
            ),
            "/usr/bin/local-path-provisioner",
            "0:0",
        )?,
        torch()?,
    ])
}

fn torch() -> Result<Recipe> {
    let mut parts = vec![PACKAGES.to_string(), include_str!("images.rs").to_string()];
    for script in scripts()? {
        parts.push(std::fs::read_to_string(&script).doing(format!("cannot read {}", script.display()))?);
    }
    Ok(Recipe {
        key: super::key(parts),
        name: "torch".into(),
        make: Make::Torch,
    })
}

/// Our training scripts, in a stable order.
fn scripts() -> Result<Vec<PathBuf>> {
    let folder = source().join("training");
    let list = std::fs::read_dir(&folder).doing(format!("cannot list {}", folder.display()))?;
    let mut files: Vec<PathBuf> = list
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.is_file())
        .collect();
    files.sort();
    Ok(files)
}

/// Writes the image's tar to `to`.
pub fn make(recipe: &Recipe, to: &Path, say: &dyn Fn(&str)) -> Result<()> {
    let layer = to.with_extension("layer");
    let made = match &recipe.make {
        Make::Binary { names, from, at, user } => {
            let mut entries = vec![
                Entry::Dir {
                    path: "tmp",
                    mode: 0o1777,
                },
                Entry::Dir {
                    path: "etc",
                    mode: 0o755,
                },
            ];
            entries.push(Entry::Text {
                path: "etc/passwd",
                mode: 0o644,
                content: "root:x:0:0::/:/\nnonroot:x:65532:65532::/:/\n",
            });
            entries.push(Entry::Copy {
                path: at.trim_start_matches('/'),
                mode: 0o755,
                from: from.clone(),
            });
            oci::layer(&entries, &layer)?;
            let env = vec!["PATH=/usr/bin:/bin:/".to_string()];
            let image = Image {
                names: names.clone(),
                layers: vec![layer.clone()],
                entrypoint: vec![at.clone()],
                user: (*user).into(),
                env,
                workdir: "/".into(),
            };
            oci::write(&image, to)
        }
        Make::Torch => make_torch(&layer, to, say),
    };
    let _ = std::fs::remove_file(&layer);
    made
}

fn make_torch(layer: &Path, to: &Path, say: &dyn Fn(&str)) -> Result<()> {
    let base = debian(say)?;
    let scripts = scripts()?;
    let paths: Vec<String> = scripts
        .iter()
        .map(|s| format!("opt/training/{}", s.file_name().unwrap_or_default().to_string_lossy()))
        .collect();
    // The operator mounts keys with modes that sshd refuses unless told not to look; a launcher knows no host keys yet.
    let sshd = "StrictModes no\nPermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\n";
    let ssh = "Host *\n  StrictHostKeyChecking no\n  UserKnownHostsFile /dev/null\n  LogLevel ERROR\n";
    let mut entries = vec![
        Entry::Text {
            path: "etc/ssh/sshd_config.d/testbed.conf",
            mode: 0o644,
            content: sshd,
        },
        Entry::Text {
            path: "etc/ssh/ssh_config.d/testbed.conf",
            mode: 0o644,
            content: ssh,
        },
        Entry::Dir {
            path: "run/sshd",
            mode: 0o755,
        },
        Entry::Dir {
            path: "opt/training",
            mode: 0o755,
        },
    ];
    for (from, path) in scripts.iter().zip(&paths) {
        entries.push(Entry::Copy {
            path,
            mode: 0o755,
            from: from.clone(),
        });
    }
    oci::layer(&entries, layer)?;
    let image = Image {
        // alpine:3.10 is what the training operator puts in front of each worker to wait for its master's name.
        names: vec![TORCH.into(), "docker.io/library/alpine:3.10".into()],
        layers: vec![base, layer.to_path_buf()],
        entrypoint: vec![],
        user: "0:0".into(),
        // A pod's share of two cores is small; each library would start a thread per core otherwise.
        env: [
            "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "OMP_NUM_THREADS=1",
            "PYTHONUNBUFFERED=1",
        ]
        .map(String::from)
        .to_vec(),
        workdir: "/opt/training".into(),
    };
    oci::write(&image, to)
}

/// Debian with the packages, as a tar; two minutes to make.
fn debian(say: &dyn Fn(&str)) -> Result<PathBuf> {
    let key = super::key([PACKAGES, DEBIAN]);
    let folder = workshop().join("debian");
    let tar = folder.join(format!("{key}.tar"));
    if tar.exists() {
        return Ok(tar);
    }
    say("making the training image from Debian's packages (two minutes)");
    make_dir(&folder)?;
    let part = folder.join("part.tar");
    // Its temporary tree lies in the workshop, which is swept, and its mounts go with it however it ends.
    let mut make = alone(&[]);
    make.args(["sh", "-euc", DEBIAN]);
    run(make.env("PACKAGES", PACKAGES).env("OUT", &part).env("TMPDIR", &folder))?;
    std::fs::rename(&part, &tar).doing("cannot keep the Debian layer")?;
    Ok(tar)
}

/// Documentation, translations and package lists are a fifth of it and nobody reads them in a pod.
const DEBIAN: &str = r#"
. /etc/os-release
mmdebstrap --quiet --variant=minbase --include="$PACKAGES" \
  --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
  --customize-hook='rm -rf "$1"/var/lib/apt/lists/* "$1"/var/cache/apt/* "$1"/usr/lib/python3/dist-packages/torch/test' \
  --customize-hook='ssh-keygen -A -f "$1"' \
  "$VERSION_CODENAME" "$OUT"
"#;
