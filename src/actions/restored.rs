//! After a restore: workers only observe until a person has looked and says that they may act.

use chrono::{DateTime, Utc};
use serde_json::json;
use trainyard_core::model::AuditId;
use uuid::Uuid;

use super::{Actions, Ask, Refusal};
use crate::db::{
    Db, DbError,
    audit::{self, NewEntry},
    installation, notify,
};

const ACTION: &str = "installation.confirm_restore";

impl Actions {
    /// Lets workers act on restored records. Confirming twice is confirming once.
    pub async fn confirm_restore(&self, ask: Ask<'_>) -> Result<(), Refusal> {
        ask.admin()?;
        let installation = self.installation().await?;
        let entry = ask.entry(ACTION, "installation", installation, None, json!({}));
        confirm(&self.db, entry, self.now()).await?;
        Ok(())
    }
}

/// The same by whoever can reach the database, on the command line. False: there was nothing to confirm.
pub async fn confirm_here(db: &Db, now: DateTime<Utc>) -> Result<bool, DbError> {
    let entry = NewEntry {
        id: AuditId(Uuid::now_v7()),
        actor: None,
        token: None,
        action: ACTION,
        subject_kind: "installation",
        subject: Some(installation::read(db).await?.id),
        team: None,
        detail: json!({}),
        request: "command line",
    };
    confirm(db, entry, now).await
}

async fn confirm(db: &Db, mut entry: NewEntry<'_>, now: DateTime<Utc>) -> Result<bool, DbError> {
    let mut tx = db.begin().await?;
    let Some(restored_at) = installation::confirm_restore(&mut tx).await? else {
        return Ok(false);
    };
    entry.detail = json!({ "restored_at": restored_at });
    audit::write(&mut tx, entry, now).await?;
    // What is due may be done, and the pages that told of it are told anew.
    notify::send(&mut *tx, notify::TASKS, "").await?;
    notify::send(&mut *tx, notify::ACCESS, "").await?;
    tx.commit().await?;
    Ok(true)
}
