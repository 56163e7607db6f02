//! Everything that is built once and kept: binaries from Go modules, manifests rendered from them, images, and the
//! containerd folder in which the images lie unpacked. Each part has a key made of its recipe, so a changed line of
//! `versions` rebuilds what depends on it and nothing else.

pub mod go;
pub mod images;
pub mod manifests;
pub mod oci;
pub mod store;
mod tidy;

use crate::error::{Doing, Result};
use crate::{layout, machine, versions};
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// What an instance is made of.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Built {
    /// Folder of binaries under their plain names.
    pub bin: PathBuf,
    /// Folder of rendered upstream manifests, `<component>.yaml`.
    pub manifests: PathBuf,
    /// A containerd root with every image imported and unpacked.
    pub store: PathBuf,
    /// Identifies all of it; part of the key of whatever is derived (etcd snapshots).
    pub key: String,
}

/// What a machine's first build takes for a while, Go's caches most of it.
const FIRST_BUILD_MB: u64 = 18_000;

/// Builds what is missing. Two builders at once would waste the machine, so one waits for the other.
pub fn all(say: &dyn Fn(&str)) -> Result<Built> {
    let cache = layout::cache();
    layout::make_dir(&cache)?;
    let lock = std::fs::File::create(cache.join("lock")).doing("cannot open the cache's lock")?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive)
        .map_err(|(_, e)| e)
        .doing("cannot take the cache's lock")?;
    if !cache.join("store").exists() && !layout::workshop().exists() {
        machine::room(&cache, FIRST_BUILD_MB)?;
    }
    let components = versions::read()?;
    let bin = go::build(&components, say)?;
    let manifests = manifests::render(&components, &bin, say)?;
    let images = images::recipes(&components, &bin)?;
    let store = store::fill(&images, say)?;
    let key = key([&bin, &manifests, &store].map(|path| layout::name(path)));
    let built = Built {
        bin,
        manifests,
        store,
        key,
    };
    if !layout::keep_all() {
        tidy::tidy(&built)?;
    }
    Ok(built)
}

/// Sixteen hex digits are plenty to tell recipes apart.
pub fn key<T: AsRef<[u8]>>(parts: impl IntoIterator<Item = T>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.as_ref().len() as u64).to_le_bytes());
        hash.update(part.as_ref());
    }
    data_encoding::HEXLOWER.encode(&hash.finalize()[..8])
}
