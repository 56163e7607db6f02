//! The first start on a database: the installation's id, the first admin, the first team. Running it again finds what
//! the first run made.

use chrono::{DateTime, Utc};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use trainyard_core::model::{AuditId, TeamId, TokenId, UserId};
use uuid::Uuid;

use super::{sign_in, tokens::Secret};
use crate::db::{Db, DbError, audit, first_start, tokens, users};

/// How the first admin is known among the identities of issuer `local`.
const FIRST: &str = "first-admin";
/// The team that everybody starts with.
const FIRST_TEAM: &str = "default";

/// Who lives here after the first start.
#[derive(Debug, Clone)]
pub struct Welcome {
    pub installation: Uuid,
    /// The first admin.
    pub user: UserId,
    /// This start made them.
    pub first: bool,
}

/// Makes what is missing. Two processes that do it at once make it once.
pub async fn first_start(db: &Db, now: DateTime<Utc>) -> Result<Welcome, DbError> {
    let mut tx = db.begin().await?;
    let installation = first_start::installation(&mut tx, Uuid::now_v7(), now).await?;
    if let Some(user) = first_start::local_user(&mut tx, FIRST).await? {
        return Ok(Welcome {
            installation,
            user,
            first: false,
        });
    }
    let user = UserId(Uuid::now_v7());
    users::insert(&mut tx, user, "Admin", true, now).await?;
    users::add_identity(&mut tx, user, "local", FIRST, now).await?;
    let team = first_start::team(&mut tx, TeamId(Uuid::now_v7()), FIRST_TEAM, user, now).await?;
    write(
        &mut tx,
        "installation.start",
        "user",
        user.0,
        json!({ "team": team }),
        now,
    )
    .await?;
    tx.commit().await?;
    Ok(Welcome {
        installation,
        user,
        first: true,
    })
}

/// A token for the commands on this machine.
pub async fn local_token(db: &Db, welcome: &Welcome, now: DateTime<Utc>) -> Result<SecretString, DbError> {
    let secret = Secret::token();
    let id = TokenId(Uuid::now_v7());
    let token = tokens::NewToken {
        id,
        hash: secret.hash,
        user: welcome.user,
        name: "this machine's command line",
        team: None,
        role: "admin",
        parent: None,
        expires_at: None,
    };
    let mut tx = db.begin().await?;
    tokens::insert(&mut tx, &token, now).await?;
    write(
        &mut tx,
        "token.create",
        "token",
        id.0,
        json!({ "name": token.name, "role": "admin" }),
        now,
    )
    .await?;
    tx.commit().await?;
    Ok(secret.shown)
}

/// The secret part of a one-time link, for `/sign-in/{secret}`. It holds for 15 minutes.
pub async fn signin_link(db: &Db, user: UserId, now: DateTime<Utc>) -> Result<String, DbError> {
    let (secret, _) = sign_in::make_link(db, user, now).await?;
    Ok(secret.expose_secret().to_owned())
}

/// The program's own deeds have no actor.
async fn write(
    tx: &mut crate::db::Tx<'_>,
    action: &str,
    kind: &str,
    subject: Uuid,
    detail: serde_json::Value,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    let entry = audit::NewEntry {
        id: AuditId(Uuid::now_v7()),
        actor: None,
        token: None,
        action,
        subject_kind: kind,
        subject: Some(subject),
        team: None,
        detail,
        request: "start",
    };
    audit::write(tx, entry, now).await
}
