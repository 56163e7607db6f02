//! Links and tokens made at the database itself, by whoever can reach it: the way in before anybody has signed in, and
//! when nobody can any more. People with a token use the API.

use chrono::{DateTime, Duration, Utc};
use secrecy::ExposeSecret;
use serde_json::json;
use trainyard_core::{
    model::{AuditId, TokenId, UserId},
    plan::words,
};
use uuid::Uuid;

use crate::{
    actions::{bootstrap, sign_in, tokens::Secret},
    cli::TokenCommand,
    config::Config,
    db::{Db, DbError, Scope, audit, notify, teams, tokens, users},
};

#[derive(Debug, thiserror::Error)]
pub enum WayInError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("there is no team '{0}'")]
    NoTeam(String),
    #[error("there is no user '{0}'; `trainyard token link --user NAME` makes one and invites them")]
    NoUser(String),
    #[error("'{0}' is not a token's id; `trainyard token list` shows them")]
    NotAnId(String),
    #[error("there is no token {0}; `trainyard token list` shows them")]
    NoToken(TokenId),
}

/// How many tokens a list shows.
const LISTED: i64 = 1_000;

/// Does what was asked and answers what to print.
pub async fn act(config: &Config, db: &Db, command: TokenCommand, now: DateTime<Utc>) -> Result<String, WayInError> {
    let welcome = bootstrap::first_start(db, now).await?;
    match command {
        TokenCommand::Link { user } => {
            let user = match known(db, &user, welcome.user).await? {
                Some(user) => user,
                None => invited(db, &user, now).await?,
            };
            let (secret, until) = sign_in::make_link(db, user, now).await?;
            write(db, "sign_in.invite", "user", user.0, now).await?;
            Ok(format!(
                "{}/sign-in/{}\nIt works once, until {}.\n",
                config.public_url,
                secret.expose_secret(),
                words::exact(until)
            ))
        }
        TokenCommand::Create {
            name,
            user,
            team,
            role,
            expires,
        } => {
            let user = (known(db, &user, welcome.user).await?).ok_or(WayInError::NoUser(user))?;
            let team = match team {
                Some(team) => Some(
                    teams::by_name(db, &Scope::Everything, &team)
                        .await?
                        .ok_or(WayInError::NoTeam(team))?,
                ),
                None => None,
            };
            let role = role.unwrap_or_else(|| if team.is_none() { "admin" } else { "member" }.to_owned());
            let secret = Secret::token();
            let token = tokens::NewToken {
                id: TokenId(Uuid::now_v7()),
                hash: secret.hash,
                user,
                name: &name,
                team,
                role: &role,
                expires_at: Some(now + Duration::days(i64::from(expires))),
            };
            let mut tx = db.begin().await?;
            tokens::insert(&mut tx, &token, now).await?;
            tx.commit().await.map_err(DbError::from)?;
            write(db, "token.create", "token", token.id.0, now).await?;
            Ok(format!(
                "{}\nIt is shown this one time. Its id is {}.\n",
                secret.shown.expose_secret(),
                token.id
            ))
        }
        TokenCommand::List => list(db, now).await,
        TokenCommand::Revoke { id } => {
            let id: TokenId = id.parse().map_err(|_| WayInError::NotAnId(id))?;
            let mut tx = db.begin().await?;
            let live = match tokens::revoke(&mut tx, id, None, now).await {
                Err(DbError::NotFound) => return Err(WayInError::NoToken(id)),
                other => other?,
            };
            notify::send(&mut *tx, notify::ACCESS, "").await?;
            tx.commit().await.map_err(DbError::from)?;
            write(db, "token.revoke", "token", id.0, now).await?;
            Ok(if live {
                "It is worthless now.\n"
            } else {
                "It was revoked before.\n"
            }
            .to_owned())
        }
    }
}

/// The first admin by the word `admin`; others by their name, made if there is nobody of that name.
/// A user by name or id; `admin` is the first one, whatever their name is by now.
async fn known(db: &Db, who: &str, admin: UserId) -> Result<Option<UserId>, WayInError> {
    if who == "admin" {
        return Ok(Some(admin));
    }
    let users = users::list(db, None, i64::MAX).await?;
    let found = users.iter().find(|user| user.name == who || user.id.to_string() == who);
    Ok(found.map(|user| user.id))
}

async fn invited(db: &Db, name: &str, now: DateTime<Utc>) -> Result<UserId, WayInError> {
    let id = UserId(Uuid::now_v7());
    let mut tx = db.begin().await?;
    users::insert(&mut tx, id, name, false, now).await?;
    tx.commit().await.map_err(DbError::from)?;
    write(db, "user.create", "user", id.0, now).await?;
    Ok(id)
}

async fn list(db: &Db, now: DateTime<Utc>) -> Result<String, WayInError> {
    let mut text = format!(
        "{:<32} {:<28} {:<8} {:<14} {}\n",
        "ID", "NAME", "ROLE", "LAST USED", "STATE"
    );
    for token in tokens::list(db, None, None, LISTED).await? {
        let used = token
            .last_used_at
            .map_or_else(|| "never".to_owned(), |at| words::relative(at, now));
        let state = match (token.revoked_at, token.expires_at) {
            (Some(_), _) => "revoked".to_owned(),
            (None, Some(until)) if until <= now => "expired".to_owned(),
            (None, Some(until)) => format!("until {}", words::exact(until)),
            (None, None) => "does not expire".to_owned(),
        };
        text += &format!(
            "{:<32} {:<28} {:<8} {used:<14} {state}\n",
            token.id.to_string(),
            token.name,
            token.role
        );
    }
    Ok(text)
}

/// The program's own deeds have no actor.
async fn write(db: &Db, action: &str, kind: &str, subject: Uuid, now: DateTime<Utc>) -> Result<(), DbError> {
    let mut tx = db.begin().await?;
    let entry = audit::NewEntry {
        id: AuditId(Uuid::now_v7()),
        actor: None,
        token: None,
        action,
        subject_kind: kind,
        subject: Some(subject),
        team: None,
        detail: json!({ "by": "the command line, at the database" }),
        request: "command line",
    };
    audit::write(&mut tx, entry, now).await?;
    Ok(tx.commit().await?)
}
