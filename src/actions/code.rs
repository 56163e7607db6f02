//! Uploading code: a tar, stored by its content. What could leave the job's folder when unpacked is refused here.

use std::{io::Read, path::Component};

use data_encoding::HEXLOWER;
use serde_json::json;
use sha2::{Digest, Sha256};
use trainyard_core::model::{TeamId, TeamRole};

use super::{Actions, Ask, FieldFault, Refusal};
use crate::db::{
    DbError, audit,
    code_uploads::{self, CodeArchive},
};

/// The largest archive.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;
const MAX_ENTRIES: usize = 20_000;

impl Actions {
    /// Stores an archive for a team. Sending the same bytes again stores nothing and answers the same.
    pub async fn upload_code(&self, ask: Ask<'_>, team: TeamId, data: &[u8]) -> Result<(CodeArchive, bool), Refusal> {
        self.may_in(ask, team, TeamRole::Member).await?;
        check(data)?;
        let digest = format!("sha256:{}", HEXLOWER.encode(&Sha256::digest(data)));
        let now = self.now();
        let mut tx = self.db.begin().await?;
        let new = code_uploads::insert(&mut tx, team, &digest, data, ask.caller.actor.user, now).await?;
        if new {
            let detail = json!({ "digest": digest, "bytes": data.len() });
            audit::write(
                &mut tx,
                ask.entry("code.upload", "team", team.0, Some(team), detail),
                now,
            )
            .await?;
        }
        tx.commit().await.map_err(DbError::from)?;
        Ok((code_uploads::about(&self.db, team, &digest).await?, new))
    }
}

/// Walks the whole archive, so that what a job later unpacks holds no surprise.
fn check(data: &[u8]) -> Result<(), Refusal> {
    let wrong = |message: String| {
        Refusal::fault(FieldFault::new("", "wrong_form", message).hint("make it with: tar -cf code.tar -C <folder> ."))
    };
    if data.len() > MAX_BYTES {
        return Err(Refusal::TooLarge { limit: MAX_BYTES });
    }
    let mut archive = tar::Archive::new(data);
    let entries = archive
        .entries()
        .map_err(|error| wrong(format!("it is no tar archive: {error}")))?;
    let mut count = 0usize;
    for entry in entries {
        let mut entry = entry.map_err(|error| wrong(format!("it is no whole tar archive: {error}")))?;
        count += 1;
        if count > MAX_ENTRIES {
            return Err(wrong(format!("it has more than {MAX_ENTRIES} entries")));
        }
        let kind = entry.header().entry_type();
        if !(kind.is_file() || kind.is_dir() || kind.is_pax_global_extensions() || kind.is_symlink()) {
            return Err(wrong(
                "it holds something that is no file, folder or link inside it".into(),
            ));
        }
        let path = entry
            .path()
            .map_err(|error| wrong(format!("an entry's name can't be read: {error}")))?
            .into_owned();
        let inside = |path: &std::path::Path| {
            path.components()
                .all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
        };
        let link = entry
            .link_name()
            .map_err(|error| wrong(format!("a link can't be read: {error}")))?;
        if !inside(&path) || link.is_some_and(|link| !inside(&link)) {
            return Err(Refusal::fault(
                FieldFault::new("", "wrong_form", "an entry leads out of the archive's folder")
                    .value(path.to_string_lossy())
                    .hint("names and links must be relative, without '..'"),
            ));
        }
        std::io::copy(&mut entry.by_ref(), &mut std::io::sink())
            .map_err(|error| wrong(format!("it is no whole tar archive: {error}")))?;
    }
    if count == 0 {
        return Err(wrong("it is empty".into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tar_of(path: &str, content: &[u8]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        // Written by hand: the builder itself refuses what this test needs.
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        header.set_cksum();
        builder.append(&header, content).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn only_whole_archives_that_stay_in_their_folder_are_taken() {
        let good = tar_of("train.py", b"print('step=1 loss=2')\n");
        assert!(check(&good).is_ok());
        assert!(check(&tar_of("../train.py", b"x")).is_err());
        assert!(check(&tar_of("/etc/passwd", b"x")).is_err());
        assert!(check(b"not a tar at all, whatever its name says").is_err());
        assert!(check(&[]).is_err());
    }
}
