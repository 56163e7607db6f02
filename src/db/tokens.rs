//! Tokens of people and programs. The hash is stored, the token itself is shown once and never again.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use trainyard_core::model::{TeamId, TokenId, UserId};
use utoipa::ToSchema;

use super::{Db, DbError};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Token {
    pub id: TokenId,
    pub name: String,
    pub user: UserId,
    /// The only team that it reaches. `null`: every team of its user.
    pub team: Option<TeamId>,
    /// `viewer`, `member`, `owner` or `admin`: at most this much, whatever its user may do.
    pub role: String,
    /// The token that made it: it ends with that one. `null`: a browser or the machine's own command line did.
    pub parent: Option<TokenId>,
    pub created_at: DateTime<Utc>,
    pub expires_at: Option<DateTime<Utc>>,
    pub revoked_at: Option<DateTime<Utc>>,
    /// Written some seconds late.
    pub last_used_at: Option<DateTime<Utc>>,
}

pub struct NewToken<'a> {
    pub id: TokenId,
    pub hash: [u8; 32],
    pub user: UserId,
    pub name: &'a str,
    pub team: Option<TeamId>,
    pub role: &'a str,
    /// The token that asks for it.
    pub parent: Option<TokenId>,
    pub expires_at: Option<DateTime<Utc>>,
}

pub async fn insert(tx: &mut PgConnection, token: &NewToken<'_>, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* tokens::insert */
        insert into tokens (id, hash, user_id, name, team_id, role, parent_id, created_at, expires_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9)"#,
        token.id.0,
        &token.hash[..],
        token.user.0,
        token.name,
        token.team.map(|team| team.0),
        token.role,
        token.parent.map(|parent| parent.0),
        now,
        token.expires_at
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// A page of tokens, newest first. `user`: whose; `None`: everybody's.
pub async fn list(db: &Db, user: Option<UserId>, before: Option<TokenId>, limit: i64) -> Result<Vec<Token>, DbError> {
    let rows = sqlx::query!(
        r#"/* tokens::list */
        select id, name, user_id, team_id, role, parent_id, created_at, expires_at, revoked_at, last_used_at from tokens
        where ($1::uuid is null or user_id = $1) and ($2::uuid is null or id < $2) order by id desc limit $3"#,
        user.map(|user| user.0),
        before.map(|before| before.0),
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Token {
            id: row.id.into(),
            name: row.name,
            user: row.user_id.into(),
            team: row.team_id.map(TeamId),
            role: row.role,
            parent: row.parent_id.map(TokenId),
            created_at: row.created_at,
            expires_at: row.expires_at,
            revoked_at: row.revoked_at,
            last_used_at: row.last_used_at,
        })
        .collect())
}

/// How far a token reaches: its only team, if it has one, and its role.
pub async fn reach(tx: &mut PgConnection, id: TokenId) -> Result<(Option<TeamId>, String), DbError> {
    let row = sqlx::query!(
        r#"/* tokens::reach */ select team_id, role from tokens where id = $1"#,
        id.0
    );
    let row = row.fetch_one(tx).await?;
    Ok((row.team_id.map(TeamId), row.role))
}

/// A token's name. `owner`: only if it is this user's.
pub async fn name(db: &Db, id: TokenId, owner: Option<UserId>) -> Result<String, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* tokens::name */
        select name from tokens where id = $1 and ($2::uuid is null or user_id = $2)"#,
        id.0,
        owner.map(|owner| owner.0)
    )
    .fetch_one(&db.pool)
    .await?)
}

/// Ends a token for good, and with it all that it made, and what those made. `owner`: only if it is this user's.
/// Answers which ones that ended, this one first; none if it had ended before, since then they had as well.
pub async fn revoke(
    tx: &mut PgConnection,
    id: TokenId,
    owner: Option<UserId>,
    now: DateTime<Utc>,
) -> Result<Vec<TokenId>, DbError> {
    let found = sqlx::query_scalar!(
        r#"/* tokens::revoke */
        with found as (
            select id, revoked_at from tokens where id = $1 and ($2::uuid is null or user_id = $2) for update
        ), done as (
            update tokens set revoked_at = $3 from found where tokens.id = found.id and found.revoked_at is null
        )
        select revoked_at is null as "live!" from found"#,
        id.0,
        owner.map(|owner| owner.0),
        now
    );
    let live = found.fetch_optional(&mut *tx).await?.ok_or(DbError::NotFound)?;
    let mut ended = Vec::new();
    let mut makers = if live { vec![id.0] } else { Vec::new() };
    // One statement for each generation: it sees what [`hold`] made the one before wait for.
    while !makers.is_empty() {
        ended.extend(makers.iter().copied().map(TokenId));
        let made = sqlx::query_scalar!(
            r#"/* tokens::revoke made */
            update tokens set revoked_at = $2 where parent_id = any($1) and revoked_at is null returning id"#,
            &makers,
            now
        );
        makers = made.fetch_all(&mut *tx).await?;
    }
    Ok(ended)
}

/// Whether a token is not revoked, which nobody can do from then on until the transaction ends.
pub async fn hold(tx: &mut PgConnection, id: TokenId) -> Result<bool, DbError> {
    let live = sqlx::query_scalar!(
        r#"/* tokens::hold */ select revoked_at is null as "live!" from tokens where id = $1 for share"#,
        id.0
    );
    Ok(live.fetch_optional(tx).await?.unwrap_or(false))
}
