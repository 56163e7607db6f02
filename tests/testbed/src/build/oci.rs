//! Writes an OCI image as the one tar that containerd imports: layout, index, manifest, config and uncompressed layers.

use crate::error::{Doing, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

pub struct Image {
    /// Every name under which pods may ask for it.
    pub names: Vec<String>,
    /// Layers as tar files, lowest first.
    pub layers: Vec<PathBuf>,
    pub entrypoint: Vec<String>,
    pub user: String,
    pub env: Vec<String>,
    pub workdir: String,
}

pub fn write(image: &Image, to: &Path) -> Result<()> {
    let file = File::create(to).doing(format!("cannot write {}", to.display()))?;
    let mut out = tar::Builder::new(file);
    let mut layers = Vec::new();
    let mut diff_ids = Vec::new();
    for layer in &image.layers {
        let digest = digest_of(layer)?;
        let size = std::fs::metadata(layer).doing("cannot size a layer")?.len();
        let mut content = File::open(layer).doing("cannot open a layer")?;
        append(&mut out, &blob(&digest), size, &mut content)?;
        diff_ids.push(format!("sha256:{digest}"));
        layers.push(json!({"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": format!("sha256:{digest}"), "size": size}));
    }
    let config = json!({
        "architecture": std::env::consts::ARCH.replace("x86_64", "amd64").replace("aarch64", "arm64"),
        "os": "linux",
        "config": {"Entrypoint": image.entrypoint, "User": image.user, "Env": image.env, "WorkingDir": image.workdir},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    });
    let config = put(&mut out, &config, "application/vnd.oci.image.config.v1+json")?;
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json", "config": config, "layers": layers,
    });
    let manifest = put(&mut out, &manifest, "application/vnd.oci.image.manifest.v1+json")?;
    let named = image.names.iter().map(|name| {
        let mut entry = manifest.clone();
        entry["annotations"] = json!({"io.containerd.image.name": name});
        entry
    });
    let index = json!({"schemaVersion": 2, "manifests": named.collect::<Vec<_>>()});
    let index = index.to_string();
    append(&mut out, "index.json", index.len() as u64, &mut index.as_bytes())?;
    let layout = r#"{"imageLayoutVersion":"1.0.0"}"#;
    append(&mut out, "oci-layout", layout.len() as u64, &mut layout.as_bytes())?;
    out.finish().doing("cannot finish an image")
}

fn put(out: &mut tar::Builder<File>, document: &Value, media_type: &str) -> Result<Value> {
    let text = document.to_string();
    let digest = data_encoding::HEXLOWER.encode(&Sha256::digest(text.as_bytes()));
    append(out, &blob(&digest), text.len() as u64, &mut text.as_bytes())?;
    Ok(json!({"mediaType": media_type, "digest": format!("sha256:{digest}"), "size": text.len()}))
}

fn append(out: &mut tar::Builder<File>, name: &str, size: u64, content: &mut dyn Read) -> Result<()> {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header.set_cksum();
    out.append_data(&mut header, name, content)
        .doing(format!("cannot add {name} to an image"))
}

fn blob(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

fn digest_of(path: &Path) -> Result<String> {
    let mut file = File::open(path).doing(format!("cannot open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file
            .read(&mut buffer)
            .doing(format!("cannot read {}", path.display()))?;
        if n == 0 {
            return Ok(data_encoding::HEXLOWER.encode(&hash.finalize()));
        }
        hash.update(&buffer[..n]);
    }
}

/// A file or folder that a layer shall hold.
pub enum Entry<'a> {
    Dir { path: &'a str, mode: u32 },
    Text { path: &'a str, mode: u32, content: &'a str },
    Copy { path: &'a str, mode: u32, from: PathBuf },
}

/// A layer of a few files, all of root's.
pub fn layer(entries: &[Entry], to: &Path) -> Result<()> {
    let mut out = tar::Builder::new(File::create(to).doing(format!("cannot write {}", to.display()))?);
    for entry in entries {
        let mut header = tar::Header::new_gnu();
        let done = match entry {
            Entry::Dir { path, mode } => {
                header.set_entry_type(tar::EntryType::Directory);
                header.set_size(0);
                header.set_mode(*mode);
                out.append_data(&mut header, path, std::io::empty())
            }
            Entry::Text { path, mode, content } => {
                header.set_size(content.len() as u64);
                header.set_mode(*mode);
                out.append_data(&mut header, path, content.as_bytes())
            }
            Entry::Copy { path, mode, from } => {
                let file = File::open(from).doing(format!("cannot open {}", from.display()))?;
                header.set_size(file.metadata().doing("cannot size a file")?.len());
                header.set_mode(*mode);
                out.append_data(&mut header, path, file)
            }
        };
        done.doing("cannot add to a layer")?;
    }
    let mut file = out.into_inner().doing("cannot finish a layer")?;
    file.flush().doing("cannot finish a layer")
}
