//! A new key for the secrets: the rows are sealed anew with it, and keys that no row needs are taken out of the ring.
//!
//! In this order, so that it may be broken off anywhere and gone on with, and every secret can be read all the while:
//! the new key is first in the ring (whoever seals from then on uses it); whoever read the ring before that has
//! committed; the rows follow, a batch at a time; and only what no row and no running attempt's token needs any more is
//! retired.

use std::path::Path;

use chrono::{DateTime, Utc};
use rand::CryptoRng;
use secrecy::ExposeSecret;
use serde_json::json;
use trainyard_core::model::AuditId;
use uuid::Uuid;

use crate::{
    db::{
        Db, DbError, attempts,
        audit::{self, NewEntry},
        installation, secret_values, workers,
    },
    keys::{KeyError, KeyFile, KeyId},
    machine::{self, MachineError},
};

/// Rows that one transaction seals anew.
const BATCH: i64 = 100;

#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    #[error("{0}. Every secret can still be read; go on with: trainyard keys rotate --continue")]
    Keys(#[from] KeyError),
    #[error("{0}. Every secret can still be read; go on with: trainyard keys rotate --continue")]
    Db(#[from] DbError),
    #[error("{0}. Nothing was changed")]
    Machine(MachineError),
}

impl From<MachineError> for RotateError {
    fn from(error: MachineError) -> Self {
        RotateError::Machine(error)
    }
}

/// A worker that gave a sign within this time is there.
const LIVE: chrono::Duration = chrono::Duration::minutes(1);

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rotated {
    /// The key that everything is sealed with now.
    pub to: KeyId,
    pub sealed: u64,
    pub retired: Vec<KeyId>,
    /// Rows that could not be read, and so keep their key.
    pub unreadable: Vec<Uuid>,
    /// Attempts that go on and were given a token under an older key. While there are any, no key is retired.
    pub reporting: i64,
}

/// What `keys rotate` does, and words about it.
///
/// Other machines read a key file of their own. Where there are some, the new key has to get there before anything is
/// sealed with it alone, so the first run only makes it and says so; `go_on` then does the rest.
pub async fn on_this_machine(
    db: &Db,
    file: &KeyFile,
    data: &Path,
    go_on: bool,
    random: &mut impl CryptoRng,
    now: DateTime<Utc>,
) -> Result<String, RotateError> {
    // Whether the database is there at all is seen before anything is changed.
    let elsewhere = workers::elsewhere(db, &machine::id(data)?, now - LIVE).await?;
    if !go_on {
        let id = file.rotate(random)?;
        if elsewhere > 0 {
            return Ok(format!(
                "The new key {id} seals from now on; nothing else was changed.\n\
                 {elsewhere} other machine(s) have workers, which need this key file now. Copy it there, then: \
                 trainyard keys rotate --continue\n"
            ));
        }
    }
    let done = finish(db, file, random, now).await?;
    let mut told = format!("Sealed {} rows anew with {}.\n", done.sealed, done.to);
    for id in &done.retired {
        told += &format!("Retired {id}.\n");
    }
    if !done.unreadable.is_empty() {
        told += &format!(
            "{} rows could not be read and keep their key; the log names them. Their secrets have to be put anew.\n",
            done.unreadable.len()
        );
    }
    if done.reporting > 0 {
        told += &format!(
            "{} running attempts report with tokens under an older key, which stays until they have ended; then: trainyard \
             keys rotate --continue\n",
            done.reporting
        );
    }
    told += "Backups made until now need the key file as it was: keep your copy of it as long as you keep them, and make \
             a new one.\n";
    Ok(told)
}

/// Seals every row with the ring's first key, and retires the keys that no row needs any more.
pub async fn finish(
    db: &Db,
    file: &KeyFile,
    random: &mut impl CryptoRng,
    now: DateTime<Utc>,
) -> Result<Rotated, RotateError> {
    let to = first(file)?;
    secret_values::await_sealing(db).await?;
    let mut rotated = Rotated {
        to,
        sealed: 0,
        retired: Vec::new(),
        unreadable: Vec::new(),
        reporting: 0,
    };
    let mut after = None;
    while let Some(last) = seal_batch(db, file, after, random, &mut rotated).await? {
        after = Some(last);
    }
    retire(db, file, &mut rotated, now).await?;
    Ok(rotated)
}

/// Seals the next rows that have another key than the first, and answers the last one that was looked at.
pub async fn seal_batch(
    db: &Db,
    file: &KeyFile,
    after: Option<Uuid>,
    random: &mut impl CryptoRng,
    rotated: &mut Rotated,
) -> Result<Option<Uuid>, RotateError> {
    let ring = file.ring();
    let mut tx = db.begin().await?;
    let rows = secret_values::under_other_keys(&mut tx, rotated.to.as_str(), after, BATCH).await?;
    let last = rows.last().map(|row| row.id);
    for row in rows {
        let plain = match ring.decrypt(row.id, &row.sealed) {
            Ok(plain) => plain,
            Err(error) => {
                tracing::warn!(secret = %row.id, %error, "a secret can't be read, and keeps its key");
                rotated.unreadable.push(row.id);
                continue;
            }
        };
        let sealed = ring.encrypt(row.id, plain.expose_secret(), random)?;
        secret_values::seal_anew(&mut tx, row.id, &sealed).await?;
        rotated.sealed += 1;
    }
    tx.commit().await.map_err(DbError::from)?;
    Ok(last)
}

async fn retire(db: &Db, file: &KeyFile, rotated: &mut Rotated, now: DateTime<Utc>) -> Result<(), RotateError> {
    let needed = secret_values::keys_in_use(db).await?;
    rotated.reporting = attempts::begun_under_older_keys(db, rotated.to.as_str()).await?;
    let old: Vec<KeyId> = file.ring().ids().skip(1).cloned().collect();
    let spare = |id: &KeyId| rotated.reporting == 0 && !needed.contains(&id.to_string());
    for id in old.into_iter().filter(spare).collect::<Vec<_>>() {
        file.retire(&id)?;
        rotated.retired.push(id);
    }
    let retired: Vec<&str> = rotated.retired.iter().map(KeyId::as_str).collect();
    let entry = NewEntry {
        id: AuditId(Uuid::now_v7()),
        actor: None,
        token: None,
        action: "keys.rotate",
        subject_kind: "installation",
        subject: match installation::read(db).await {
            // Before the first start there is nothing that could be sealed.
            Err(DbError::NotFound) => None,
            other => Some(other?.id),
        },
        team: None,
        detail: json!({ "to": rotated.to.as_str(), "sealed": rotated.sealed, "retired": retired,
            "unreadable": rotated.unreadable.len() }),
        request: "command line",
    };
    let mut tx = db.begin().await?;
    audit::write(&mut tx, entry, now).await?;
    Ok(tx.commit().await.map_err(DbError::from)?)
}

fn first(file: &KeyFile) -> Result<KeyId, KeyError> {
    // A ring is never empty, see `keys::KeyRing`.
    file.ring().ids().next().cloned().ok_or(KeyError::Refused)
}
