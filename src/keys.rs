//! The key ring: what secrets are encrypted with. A file, since the database and its backups must be of no use without
//! it. The first key encrypts, all decrypt. Ciphertexts are bound to the row they were made for, so that one copied
//! into another row (another team's, say) does not decrypt there.
//!
//! ```text
//! # any remarks
//! 3f9ac2d418b06e75 <32 bytes in base64>
//! ```
//!
//! Deliberately absent: the rows. `retire` is told by its caller, `actions::rotate`, that none needs the key.

use std::{
    fmt, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, RwLock},
};

use chacha20poly1305::{
    Key, KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use data_encoding::{BASE64, HEXLOWER};
use nix::unistd::geteuid;
use rand::CryptoRng;
use secrecy::{ExposeSecret, SecretSlice, zeroize::Zeroizing};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::private_file;

#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(
        "there is no key file {}. `trainyard up` makes one; on a further machine, copy it from the first, \
         since secrets in the database need it",
        .0.display()
    )]
    Missing(PathBuf),
    #[error("others than its owner may read {0}, so its keys are no secret. Close it: chmod 600 {0}")]
    Open(String),
    #[error("{0} belongs to another account, so its keys are not ours alone. Give it back: chown {1} {0}")]
    Owner(String, u32),
    #[error("{}, line {line}: {what}. A line is a key's id (16 hexadecimal digits), a space, and 32 bytes in base64", path.display())]
    Malformed {
        path: PathBuf,
        line: usize,
        what: &'static str,
    },
    #[error("{} has no key in it", .0.display())]
    Empty(PathBuf),
    #[error("the key {0} is not in the key file; it was when this secret was stored. Bring that key back")]
    Unknown(KeyId),
    #[error("the key {0} encrypts new secrets; `trainyard keys rotate` first")]
    InUse(KeyId),
    /// A wrong key, another row's ciphertext, or a changed one: they can't be told apart.
    #[error("the secret does not decrypt: it was changed, or belongs to another row or key")]
    Refused,
}

/// Names a key without telling anything about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KeyId(String);

impl KeyId {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    pub fn parse(text: &str) -> Option<Self> {
        let fits = text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        fits.then(|| Self(text.to_owned()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A ciphertext and what is needed to read it, as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub key_id: KeyId,
    pub nonce: [u8; 24],
    pub ciphertext: Vec<u8>,
}

struct RingKey {
    id: KeyId,
    cipher: XChaCha20Poly1305,
    secret: Zeroizing<[u8; 32]>,
}

/// The keys as one reading of the file found them.
pub struct KeyRing {
    keys: Vec<RingKey>,
}

impl KeyRing {
    pub fn encrypt(&self, row: Uuid, plain: &[u8], random: &mut impl CryptoRng) -> Result<Sealed, KeyError> {
        // A ring is never empty, see `parse`.
        let key = self.keys.first().ok_or(KeyError::Refused)?;
        // 24 random bytes never meet again, so no counter has to be kept.
        let mut nonce = [0; 24];
        random.fill_bytes(&mut nonce);
        let payload = Payload {
            msg: plain,
            aad: row.as_bytes(),
        };
        let ciphertext = key
            .cipher
            .encrypt(&XNonce::from(nonce), payload)
            .map_err(|_| KeyError::Refused)?;
        Ok(Sealed {
            key_id: key.id.clone(),
            nonce,
            ciphertext,
        })
    }

    /// One ciphertext by each key, the one that encrypts first; the same ones each time. For what is not stored and
    /// must be recognised again.
    pub fn seal_alike(&self, row: Uuid, plain: &[u8]) -> Result<Vec<Sealed>, KeyError> {
        // The nonce repeats only together with the message, and then nothing new is said.
        let digest = Sha256::new()
            .chain_update(row.as_bytes())
            .chain_update(plain)
            .finalize();
        let mut nonce = [0; 24];
        nonce.copy_from_slice(&digest[..24]);
        let seal = |key: &RingKey| {
            let payload = Payload {
                msg: plain,
                aad: row.as_bytes(),
            };
            let ciphertext = key.cipher.encrypt(&XNonce::from(nonce), payload);
            Ok(Sealed {
                key_id: key.id.clone(),
                nonce,
                ciphertext: ciphertext.map_err(|_| KeyError::Refused)?,
            })
        };
        self.keys.iter().map(seal).collect()
    }

    pub fn decrypt(&self, row: Uuid, sealed: &Sealed) -> Result<SecretSlice<u8>, KeyError> {
        let key = self
            .key(&sealed.key_id)
            .ok_or_else(|| KeyError::Unknown(sealed.key_id.clone()))?;
        let payload = Payload {
            msg: &sealed.ciphertext,
            aad: row.as_bytes(),
        };
        let plain = key
            .cipher
            .decrypt(&XNonce::from(sealed.nonce), payload)
            .map_err(|_| KeyError::Refused)?;
        Ok(plain.into())
    }

    /// The ids, the one that encrypts first.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.keys.iter().map(|key| &key.id)
    }

    fn key(&self, id: &KeyId) -> Option<&RingKey> {
        self.keys.iter().find(|key| key.id == *id)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, KeyError> {
        let mut keys: Vec<RingKey> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let fault = |what| KeyError::Malformed {
                path: path.to_path_buf(),
                line: index + 1,
                what,
            };
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let (id, secret) = line.split_once(' ').ok_or_else(|| fault("no key after the id"))?;
            let id = KeyId::parse(id).ok_or_else(|| fault("no such id"))?;
            if keys.iter().any(|known| known.id == id) {
                return Err(fault("the id is there twice"));
            }
            let bytes = BASE64.decode(secret.trim().as_bytes()).map(Zeroizing::new);
            let bytes = bytes.map_err(|_| fault("the key is no base64"))?;
            let secret = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| fault("the key is not 32 bytes long"))?;
            keys.push(RingKey::new(id, secret));
        }
        if keys.is_empty() {
            return Err(KeyError::Empty(path.to_path_buf()));
        }
        Ok(Self { keys })
    }

    fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::from(
            "# Trainyard's keys: the first encrypts, all decrypt. Who has this file and the database has the secrets.\n\
             # Keep a copy apart from the database's backups; without it their secrets are lost.\n",
        ));
        for key in &self.keys {
            text.push_str(key.id.as_str());
            text.push(' ');
            BASE64.encode_append(key.secret.as_slice(), &mut text);
            text.push('\n');
        }
        text
    }
}

impl RingKey {
    fn new(id: KeyId, secret: [u8; 32]) -> Self {
        Self {
            id,
            cipher: XChaCha20Poly1305::new(&Key::from(secret)),
            secret: Zeroizing::new(secret),
        }
    }

    fn draw(random: &mut impl CryptoRng) -> Self {
        let mut id = [0; 8];
        random.fill_bytes(&mut id);
        let mut secret = [0; 32];
        random.fill_bytes(&mut secret);
        Self::new(KeyId(HEXLOWER.encode(&id)), secret)
    }
}

/// The key file. Cheap to clone; reads the file again when it has changed, so that a rotation reaches every process.
#[derive(Clone)]
pub struct KeyFile {
    path: PathBuf,
    read: Arc<RwLock<(Stamp, Arc<KeyRing>)>>,
}

/// Changes whenever the file is replaced.
type Stamp = (u64, i64, i64, u64);

impl KeyFile {
    /// Opens the file, and makes it with a first key if there is none.
    pub fn open_or_create(path: &Path, random: &mut impl CryptoRng) -> Result<Self, KeyError> {
        if !path.exists() {
            let ring = KeyRing {
                keys: vec![RingKey::draw(random)],
            };
            let folder = path.parent().map_or(Ok(()), std::fs::create_dir_all);
            match folder.and_then(|()| private_file::create_new(path, ring.text().as_bytes())) {
                Ok(()) => {}
                // Another process made it at the same moment; its keys are the ones.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(fault(path, error)),
            }
        }
        Self::open(path)
    }

    pub fn open(path: &Path) -> Result<Self, KeyError> {
        let first = read(path)?;
        Ok(Self {
            path: path.to_path_buf(),
            read: Arc::new(RwLock::new(first)),
        })
    }

    /// The keys as they are now. A file that can't be read any more leaves the keys that were read before.
    pub fn ring(&self) -> Arc<KeyRing> {
        let known = match self.read.read() {
            Ok(known) => known.clone(),
            Err(poisoned) => poisoned.into_inner().clone(),
        };
        if std::fs::metadata(&self.path).is_ok_and(|metadata| stamp(&metadata) == known.0) {
            return known.1;
        }
        match read(&self.path) {
            Ok(fresh) => {
                let ring = fresh.1.clone();
                if let Ok(mut known) = self.read.write() {
                    *known = fresh;
                }
                ring
            }
            Err(error) => {
                tracing::error!(%error, "the key file changed and can't be read; going on with the keys read before");
                known.1
            }
        }
    }

    /// Puts a new key first. Rows keep their key until they are encrypted anew.
    pub fn rotate(&self, random: &mut impl CryptoRng) -> Result<KeyId, KeyError> {
        let new = RingKey::draw(random);
        let id = new.id.clone();
        self.change(|keys| {
            keys.insert(0, new);
            Ok(())
        })?;
        Ok(id)
    }

    /// Takes a key out, which the caller knows that no row needs.
    pub fn retire(&self, id: &KeyId) -> Result<(), KeyError> {
        self.change(|keys| match keys.iter().position(|key| key.id == *id) {
            None => Err(KeyError::Unknown(id.clone())),
            Some(0) => Err(KeyError::InUse(id.clone())),
            Some(at) => {
                keys.remove(at);
                Ok(())
            }
        })
    }

    fn change(&self, change: impl FnOnce(&mut Vec<RingKey>) -> Result<(), KeyError>) -> Result<(), KeyError> {
        // Two changes at once would lose one; a lock on the file itself would be lost with the file it replaces.
        let guard_path = self.path.with_extension("lock");
        let guard = private_file::open_lock(&guard_path).map_err(|error| fault(&guard_path, error))?;
        private_file::leave_to_owner_of(&self.path, &guard).map_err(|error| fault(&guard_path, error))?;
        let _guard = nix::fcntl::Flock::lock(guard, nix::fcntl::FlockArg::LockExclusive)
            .map_err(|(_, error)| fault(&guard_path, error.into()))?;
        let text = read_private(&self.path)?.1;
        let mut ring = KeyRing::parse(&self.path, &text)?;
        change(&mut ring.keys)?;
        private_file::replace(&self.path, ring.text().as_bytes()).map_err(|error| fault(&self.path, error))
    }
}

fn read(path: &Path) -> Result<(Stamp, Arc<KeyRing>), KeyError> {
    let (stamp, text) = read_private(path)?;
    Ok((stamp, Arc::new(KeyRing::parse(path, &text)?)))
}

fn read_private(path: &Path) -> Result<(Stamp, Zeroizing<String>), KeyError> {
    let metadata = std::fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => KeyError::Missing(path.to_path_buf()),
        _ => fault(path, error),
    })?;
    let own = geteuid().as_raw();
    if metadata.mode() & 0o077 != 0 {
        return Err(KeyError::Open(path.display().to_string()));
    }
    // Root may have been handed a file that an administrator's account owns; others read only their own.
    if metadata.uid() != own && own != 0 {
        return Err(KeyError::Owner(path.display().to_string(), own));
    }
    let text = std::fs::read_to_string(path).map_err(|error| fault(path, error))?;
    Ok((stamp(&metadata), Zeroizing::new(text)))
}

fn stamp(metadata: &std::fs::Metadata) -> Stamp {
    (metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len())
}

fn fault(path: &Path, source: io::Error) -> KeyError {
    KeyError::File {
        path: path.to_path_buf(),
        source,
    }
}

/// Turns a decrypted secret into text, for an environment variable.
pub fn as_text(secret: &SecretSlice<u8>) -> Option<&str> {
    std::str::from_utf8(secret.expose_secret()).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn made() -> (tempfile::TempDir, KeyFile) {
        let folder = tempfile::tempdir().unwrap();
        let file = KeyFile::open_or_create(&folder.path().join("keys"), &mut rand::rng()).unwrap();
        (folder, file)
    }

    #[test]
    fn a_secret_comes_back_for_its_own_row_alone() {
        let (_folder, file) = made();
        let (row, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let sealed = file.ring().encrypt(row, b"hunter2", &mut rand::rng()).unwrap();
        assert!(!sealed.ciphertext.windows(7).any(|window| window == b"hunter2"));
        assert_eq!(as_text(&file.ring().decrypt(row, &sealed).unwrap()), Some("hunter2"));
        assert!(matches!(file.ring().decrypt(other, &sealed), Err(KeyError::Refused)));
        for at in 0..sealed.ciphertext.len() {
            let mut changed = sealed.clone();
            changed.ciphertext[at] ^= 1;
            assert!(matches!(file.ring().decrypt(row, &changed), Err(KeyError::Refused)));
        }
    }

    #[test]
    fn a_lock_that_is_a_link_to_somebodys_file_is_refused() {
        let (folder, file) = made();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "theirs").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join("keys.lock")).unwrap();
        assert!(matches!(file.rotate(&mut rand::rng()), Err(KeyError::File { .. })));
        assert_eq!(file.ring().ids().count(), 1);
    }

    #[test]
    fn a_rotation_reaches_every_holder_and_old_secrets_stay_readable() {
        let (folder, file) = made();
        let elsewhere = KeyFile::open(&folder.path().join("keys")).unwrap();
        let row = Uuid::from_u128(1);
        let old = file.ring().encrypt(row, b"old", &mut rand::rng()).unwrap();
        let id = file.rotate(&mut rand::rng()).unwrap();
        let new = elsewhere.ring().encrypt(row, b"new", &mut rand::rng()).unwrap();
        assert_eq!(new.key_id, id);
        assert_eq!(as_text(&elsewhere.ring().decrypt(row, &old).unwrap()), Some("old"));
        assert!(matches!(file.retire(&id), Err(KeyError::InUse(_))));
        file.retire(&old.key_id).unwrap();
        assert!(matches!(elsewhere.ring().decrypt(row, &old), Err(KeyError::Unknown(_))));
        assert_eq!(as_text(&file.ring().decrypt(row, &new).unwrap()), Some("new"));
    }

    #[test]
    fn rotations_at_once_are_all_kept() {
        let (_folder, file) = made();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| file.rotate(&mut rand::rng()).unwrap());
            }
        });
        assert_eq!(file.ring().ids().count(), 9);
    }

    #[test]
    fn a_file_that_others_can_read_or_that_is_no_ring_is_refused() {
        let (folder, _) = made();
        let path = folder.path().join("keys");
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(KeyFile::open(&path), Err(KeyError::Open(_))));
        let cases = [
            ("# nothing\n", "no key in it"),
            ("0123456789abcdef\n", "line 1: no key"),
            ("\nXYZ AAAA\n", "line 2: no such id"),
            ("0123456789abcdef AAAA\n", "not 32 bytes"),
            ("0123456789abcdef !!!!\n", "no base64"),
        ];
        for (text, expected) in cases {
            private_file::replace(&path, text.as_bytes()).unwrap();
            let said = KeyFile::open(&path).err().unwrap().to_string();
            assert!(said.contains(expected), "{text:?}: {said}");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(KeyFile::open(&path), Err(KeyError::Missing(_))));
    }
}
