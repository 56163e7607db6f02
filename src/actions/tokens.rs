//! Tokens of people and programs.
//!
//! A token is `ty_` and 256 random bits; the database has its SHA-256 and nothing else. A token never makes a stronger
//! or a longer-lived one than itself, and what it made is revoked with it.

use chrono::{DateTime, Utc};
use data_encoding::BASE64URL_NOPAD;
use rand::Rng;
use secrecy::SecretString;
use serde_json::json;
use sha2::{Digest, Sha256};
use trainyard_core::model::{TeamId, TeamRole, TokenId, UserId};
use uuid::Uuid;

use super::{Actions, Ask, FieldFault, Refusal, found};
use crate::db::{
    DbError,
    access::Via,
    audit, teams,
    tokens::{self, NewToken},
};

const PREFIX: &str = "ty_";

/// 256 random bits as people and programs carry them.
pub struct Secret {
    pub shown: SecretString,
    pub hash: [u8; 32],
}

impl Secret {
    pub fn draw(prefix: &str) -> Self {
        let mut bits = [0u8; 32];
        rand::rng().fill_bytes(&mut bits);
        let shown = format!("{prefix}{}", BASE64URL_NOPAD.encode(&bits));
        let hash = hash(&shown);
        Self {
            shown: shown.into(),
            hash,
        }
    }

    pub fn token() -> Self {
        Self::draw(PREFIX)
    }
}

/// What is stored and looked up in place of a secret.
pub fn hash(shown: &str) -> [u8; 32] {
    Sha256::digest(shown.as_bytes()).into()
}

/// A token that is wanted.
#[derive(Debug, Clone)]
pub struct TokenWish {
    pub name: String,
    pub team: Option<TeamId>,
    /// `viewer`, `member`, `owner` or `admin`.
    pub role: String,
    pub expires_at: Option<DateTime<Utc>>,
}

pub struct MadeToken {
    pub id: TokenId,
    pub shown: SecretString,
    pub expires_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
}

impl Actions {
    /// Makes a token of the caller's. It is shown in this answer and never again.
    pub async fn create_token(&self, ask: Ask<'_>, wish: &TokenWish) -> Result<MadeToken, Refusal> {
        let now = self.now();
        check(wish, now)?;
        let rank = rank(&wish.role).unwrap_or(0);
        let mut expires_at = wish.expires_at;
        match &ask.caller.via {
            Via::Session { .. } => {}
            Via::Token {
                team,
                role,
                expires_at: own,
                ..
            } => {
                if (team.is_some() && wish.team != *team) || rank > self::rank(role).unwrap_or(0) {
                    return Err(Refusal::Forbidden {
                        needs: "a token that reaches as far itself, or a browser's session".into(),
                    });
                }
                expires_at = match (expires_at, own) {
                    (Some(wanted), Some(own)) => Some(wanted.min(*own)),
                    (None, own) => *own,
                    (wanted, None) => wanted,
                };
            }
            Via::Job { .. } => {
                return Err(Refusal::Forbidden {
                    needs: "a person's token or session".into(),
                });
            }
        }
        if wish.role == "admin" {
            ask.admin()?;
        } else if let Some(team) = wish.team {
            let role: TeamRole = wish.role.parse().unwrap_or(TeamRole::Owner);
            let known = match teams::get(&self.db, &ask.caller.actor.scope(), team).await {
                Err(DbError::NotFound) => {
                    let fault = FieldFault::new(
                        "team",
                        "not_found",
                        "there is no team of this id, or you may not see it",
                    );
                    let fault = fault.value(team.to_string()).hint("list the teams that you are in");
                    return Err(Refusal::Faults(vec![fault]));
                }
                known => known?,
            };
            if !ask.caller.actor.may(team, role) {
                return Err(Refusal::role(role, &known.name));
            }
        }
        let secret = Secret::token();
        let id = TokenId(Uuid::now_v7());
        let new = NewToken {
            id,
            hash: secret.hash,
            user: ask.caller.actor.user,
            name: &wish.name,
            team: wish.team,
            role: &wish.role,
            parent: ask.caller.actor.token,
            expires_at,
        };
        let mut tx = self.db.begin().await?;
        if let Some(parent) = new.parent
            && !tokens::hold(&mut tx, parent).await?
        {
            return Err(Refusal::Forbidden {
                needs: "a token that is not revoked".into(),
            });
        }
        tokens::insert(&mut tx, &new, now).await?;
        let detail = json!({ "name": wish.name, "role": wish.role, "expires_at": expires_at });
        audit::write(
            &mut tx,
            ask.entry("token.create", "token", id.0, wish.team, detail),
            now,
        )
        .await?;
        tx.commit().await.map_err(DbError::from)?;
        Ok(MadeToken {
            id,
            shown: secret.shown,
            expires_at,
            created_at: now,
        })
    }

    /// Ends a token for good, and what it made: one's own, or anybody's for an admin. A token ends itself and such as
    /// reach no further.
    pub async fn revoke_token(&self, ask: Ask<'_>, id: TokenId) -> Result<(), Refusal> {
        let owner: Option<UserId> = (!ask.caller.actor.admin).then_some(ask.caller.actor.user);
        let now = self.now();
        let mut tx = self.db.begin().await?;
        let ended = found("token", id, tokens::revoke(&mut tx, id, owner, now).await)?;
        if let Via::Token {
            id: own, team, role, ..
        } = &ask.caller.via
            && *own != id
        {
            let (its_team, its_role) = tokens::reach(&mut tx, id).await?;
            if (team.is_some() && its_team != *team) || rank(&its_role) > rank(role) {
                return Err(Refusal::Forbidden {
                    needs: "a token that reaches as far itself, or a browser's session".into(),
                });
            }
        }
        for token in ended {
            let detail = match token == id {
                true => json!({}),
                false => json!({ "with": id }),
            };
            audit::write(&mut tx, ask.entry("token.revoke", "token", token.0, None, detail), now).await?;
        }
        tx.commit().await.map_err(DbError::from)?;
        self.wake.access();
        Ok(())
    }
}

fn rank(role: &str) -> Option<u8> {
    ["viewer", "member", "owner", "admin"]
        .iter()
        .position(|known| *known == role)
        .map(|place| place as u8)
}

fn check(wish: &TokenWish, now: DateTime<Utc>) -> Result<(), Refusal> {
    let mut faults = Vec::new();
    if !(1..=128).contains(&wish.name.chars().count()) || wish.name.chars().any(char::is_control) {
        faults.push(
            FieldFault::new(
                "name",
                "wrong_form",
                "a token's name has 1 to 128 characters, none a control character",
            )
            .value(&wish.name)
            .hint("say what uses it, for example nightly-evaluation"),
        );
    }
    if rank(&wish.role).is_none() {
        faults.push(
            FieldFault::new(
                "role",
                "unknown_word",
                "a token's role is viewer, member, owner or admin",
            )
            .value(&wish.role),
        );
    }
    if wish.role == "admin" && wish.team.is_some() {
        faults.push(
            FieldFault::new(
                "team",
                "conflict",
                "a token with the role admin reaches everything, so it has no team",
            )
            .hint("leave the team out, or ask for the role owner"),
        );
    }
    if let Some(at) = wish.expires_at.filter(|at| *at <= now) {
        faults.push(FieldFault::new("expires_at", "out_of_range", "that time has passed").value(at.to_rfc3339()));
    }
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Faults(faults))
    }
}
