//! The token that an attempt's processes get in their environment, to report about their job and for nothing else.
//!
//! It is `tyj_`, the key's id, and the attempt's id sealed with the key ring: no row holds it, no list shows it, and it
//! is of no use once the attempt has ended. It comes out the same each time, so that whoever stores output, in whatever
//! process, knows what to mask.

use data_encoding::BASE64URL_NOPAD;
use secrecy::{ExposeSecret, SecretString};
use trainyard_core::model::AttemptId;
use uuid::Uuid;

use crate::keys::{KeyError, KeyId, KeyRing, Sealed};

const PREFIX: &str = "tyj_";

/// The row that these tokens are sealed for. Secrets are sealed for their own rows, so neither passes for the other.
const ROW: Uuid = Uuid::from_u128(0x7472_6169_6e79_6172_645f_6a6f_6274_6f6b);

/// The token that an attempt is given.
pub fn issue(ring: &KeyRing, attempt: AttemptId) -> Result<SecretString, KeyError> {
    every(ring, attempt)?.into_iter().next().ok_or(KeyError::Refused)
}

/// Every token that the attempt may have been given since its start: keys rotate meanwhile.
pub fn every(ring: &KeyRing, attempt: AttemptId) -> Result<Vec<SecretString>, KeyError> {
    let sealed = ring.seal_alike(ROW, attempt.0.as_bytes())?;
    Ok(sealed.iter().map(shown).collect())
}

fn shown(sealed: &Sealed) -> SecretString {
    let mut bytes = sealed.nonce.to_vec();
    bytes.extend_from_slice(&sealed.ciphertext);
    format!("{PREFIX}{}_{}", sealed.key_id, BASE64URL_NOPAD.encode(&bytes)).into()
}

/// The attempt that a token was issued for. `None`: it is no attempt's token, or not one of ours.
pub fn open(ring: &KeyRing, shown: &str) -> Option<AttemptId> {
    let (key, body) = shown.strip_prefix(PREFIX)?.split_once('_')?;
    let bytes = BASE64URL_NOPAD.decode(body.as_bytes()).ok()?;
    let (nonce, ciphertext) = bytes.split_at_checked(24)?;
    let sealed = Sealed {
        key_id: KeyId::parse(key)?,
        nonce: nonce.try_into().ok()?,
        ciphertext: ciphertext.to_vec(),
    };
    let plain = ring.decrypt(ROW, &sealed).ok()?;
    Uuid::from_slice(plain.expose_secret()).ok().map(AttemptId)
}
