//! Signing in with a one-time link, and out. The link's secret part is never stored; its hash is, once.

use chrono::{DateTime, Duration, Utc};
use secrecy::SecretString;
use serde_json::json;
use trainyard_core::model::UserId;

use super::{
    Actions, Ask, Refusal, found,
    tokens::{Secret, hash},
};
use crate::db::{Db, DbError, sessions, users};

/// How long a link waits to be used.
pub const LINK_LIFE: Duration = Duration::minutes(15);
/// How long a browser stays signed in.
pub const SESSION_LIFE: Duration = Duration::days(14);

/// A browser's session: what its cookie carries, and what its forms must.
pub struct Session {
    pub cookie: SecretString,
    pub csrf: [u8; 32],
    pub expires_at: DateTime<Utc>,
}

/// A new link's secret part, for `/sign-in/{secret}`.
pub async fn make_link(db: &Db, user: UserId, now: DateTime<Utc>) -> Result<(SecretString, DateTime<Utc>), DbError> {
    let secret = Secret::draw("");
    let expires_at = now + LINK_LIFE;
    let mut tx = db.begin().await?;
    sessions::add_link(&mut tx, &secret.hash, user, expires_at, now).await?;
    tx.commit().await?;
    Ok((secret.shown, expires_at))
}

impl Actions {
    /// An admin's link for somebody, to be handed over.
    pub async fn invite(&self, ask: Ask<'_>, user: UserId) -> Result<(SecretString, DateTime<Utc>), Refusal> {
        ask.admin()?;
        found("user", user, users::get(&self.db, user).await)?;
        let now = self.now();
        let secret = Secret::draw("");
        let expires_at = now + LINK_LIFE;
        let mut tx = self.db.begin().await?;
        sessions::add_link(&mut tx, &secret.hash, user, expires_at, now).await?;
        crate::db::audit::write(&mut tx, ask.entry("user.invite", "user", user.0, None, json!({})), now).await?;
        tx.commit().await.map_err(DbError::from)?;
        Ok((secret.shown, expires_at))
    }

    /// What a link's page should say, without using the link up.
    pub async fn link_state(&self, secret: &str) -> Result<sessions::LinkState, Refusal> {
        Ok(sessions::link_state(&self.db, &hash(secret), self.now()).await?)
    }

    /// Uses a link up and opens a session. `None`: it is not good (any more).
    pub async fn sign_in(&self, secret: &str, request: &str) -> Result<Option<Session>, Refusal> {
        let now = self.now();
        let mut tx = self.db.begin().await?;
        let Some(user) = sessions::use_link(&mut tx, &hash(secret), now).await? else {
            return Ok(None);
        };
        let cookie = Secret::draw("");
        let csrf = Secret::draw("").hash;
        let expires_at = now + SESSION_LIFE;
        sessions::open(&mut tx, &cookie.hash, &csrf, user, expires_at, now).await?;
        let entry = crate::db::audit::NewEntry {
            id: trainyard_core::model::AuditId(uuid::Uuid::now_v7()),
            actor: Some(user),
            token: None,
            action: "session.open",
            subject_kind: "user",
            subject: Some(user.0),
            team: None,
            detail: json!({}),
            request,
        };
        crate::db::audit::write(&mut tx, entry, now).await?;
        tx.commit().await.map_err(DbError::from)?;
        Ok(Some(Session {
            cookie: cookie.shown,
            csrf,
            expires_at,
        }))
    }

    pub async fn sign_out(&self, ask: Ask<'_>, cookie: &str) -> Result<(), Refusal> {
        let now = self.now();
        let mut tx = self.db.begin().await?;
        sessions::close(&mut tx, &hash(cookie)).await?;
        let user = ask.caller.actor.user;
        crate::db::audit::write(
            &mut tx,
            ask.entry("session.close", "user", user.0, None, json!({})),
            now,
        )
        .await?;
        tx.commit().await.map_err(DbError::from)?;
        self.wake.access();
        Ok(())
    }
}
