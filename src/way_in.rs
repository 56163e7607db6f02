//! Links and tokens made at the database itself, by whoever can reach it: the way in before anybody has signed in, and
//! when nobody can any more. People with a token use the API.

use chrono::{DateTime, Duration, Utc};
use secrecy::ExposeSecret;
use serde_json::json;
use trainyard_core::{
    model::{AuditId, TeamRole, TokenId, UserId},
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
                parent: None,
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
            let ended = match tokens::revoke(&mut tx, id, None, now).await {
                Err(DbError::NotFound) => return Err(WayInError::NoToken(id)),
                other => other?,
            };
            notify::send(&mut *tx, notify::ACCESS, "").await?;
            tx.commit().await.map_err(DbError::from)?;
            for token in &ended {
                write(db, "token.revoke", "token", token.0, now).await?;
            }
            Ok(match ended.len() {
                0 => "It was revoked before.\n".to_owned(),
                1 => "It is worthless now.\n".to_owned(),
                all => format!("It is worthless now, and {} that it made.\n", all - 1),
            })
        }
    }
}

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
        "{:<32} {:<28} {:<20} {:<8} {:<14} {}\n",
        "ID", "NAME", "OWNER", "ROLE", "LAST USED", "STATE"
    );
    let people = users::list(db, None, i64::MAX).await?;
    let mut memberships = Vec::new();
    for team in teams::list(db, &Scope::Everything, None, i64::MAX).await? {
        let members = teams::members(db, &Scope::Everything, team.id).await?;
        memberships.extend(members.into_iter().map(|member| (team.id, member)));
    }
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
        let owner = people.iter().find(|user| user.id == token.user);
        let in_teams = memberships
            .iter()
            .filter(|(team, member)| member.user == token.user && token.team.is_none_or(|only| only == *team));
        let highest = in_teams.map(|(_, member)| member.role).max();
        text += &format!(
            "{:<32} {:<28} {:<20} {:<8} {used:<14} {state}\n",
            token.id.to_string(),
            token.name,
            owner.map_or("", |user| user.name.as_str()),
            effective(
                &token.role,
                owner.is_some_and(|user| user.admin),
                token.team.is_some(),
                highest
            ),
        );
    }
    Ok(text)
}

/// What a token is good for, as `db::access` reckons it: at most its own role, and at most what its owner may do in the
/// teams that it reaches, `highest` of them.
fn effective(role: &str, admin: bool, one_team: bool, highest: Option<TeamRole>) -> String {
    if role == "admin" && admin {
        return role.to_owned();
    }
    let highest = if admin && one_team {
        Some(TeamRole::Owner)
    } else {
        highest
    };
    match (highest, role.parse::<TeamRole>()) {
        (None, _) => "none".to_owned(),
        (Some(highest), Ok(most)) => highest.min(most).to_string(),
        // No ceiling of its own.
        (Some(highest), Err(_)) => highest.to_string(),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_good_for_no_more_than_its_owner_is() {
        use TeamRole::{Member, Owner, Viewer};
        assert_eq!(effective("admin", true, false, None), "admin");
        assert_eq!(effective("admin", false, false, Some(Viewer)), "viewer");
        assert_eq!(effective("owner", false, true, Some(Member)), "member");
        assert_eq!(effective("viewer", false, false, Some(Owner)), "viewer");
        assert_eq!(effective("member", false, true, None), "none");
        assert_eq!(effective("member", true, true, None), "member");
    }
}
