//! Sign-in links and browser sessions. Only hashes are stored: what is in the database signs nobody in.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::UserId;

use super::{Db, DbError};

pub async fn add_link(
    tx: &mut PgConnection,
    hash: &[u8; 32],
    user: UserId,
    expires_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* sessions::add_link */
        insert into signin_links (hash, user_id, created_at, expires_at) values ($1, $2, $3, $4)"#,
        &hash[..],
        user.0,
        now,
        expires_at
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Uses a link up. `None`: it does not exist, is too old, was used, or its user is disabled; nobody is told which.
pub async fn use_link(tx: &mut PgConnection, hash: &[u8; 32], now: DateTime<Utc>) -> Result<Option<UserId>, DbError> {
    let user = sqlx::query_scalar!(
        r#"/* sessions::use_link */
        update signin_links l set used_at = $2 from users u
        where l.hash = $1 and l.used_at is null and l.expires_at > $2 and u.id = l.user_id and u.disabled_at is null
        returning l.user_id"#,
        &hash[..],
        now
    )
    .fetch_optional(tx)
    .await?;
    Ok(user.map(UserId))
}

pub async fn open(
    tx: &mut PgConnection,
    hash: &[u8; 32],
    csrf: &[u8; 32],
    user: UserId,
    expires_at: DateTime<Utc>,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* sessions::open */
        insert into sessions (hash, user_id, csrf, created_at, last_seen_at, expires_at)
        values ($1, $2, $3, $4, $4, $5)"#,
        &hash[..],
        user.0,
        &csrf[..],
        now,
        expires_at
    )
    .execute(tx)
    .await?;
    Ok(())
}

pub async fn close(tx: &mut PgConnection, hash: &[u8; 32]) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* sessions::close */ delete from sessions where hash = $1"#,
        &hash[..]
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// Removes what is no longer of use: expired sessions, and links a day after their end.
pub async fn sweep(db: &Db, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* sessions::sweep */ delete from sessions where expires_at <= $1"#,
        now
    )
    .execute(&db.pool)
    .await?;
    sqlx::query!(
        r#"/* sessions::sweep links */ delete from signin_links where expires_at <= $1"#,
        now - chrono::Duration::days(1)
    )
    .execute(&db.pool)
    .await?;
    Ok(())
}

/// What can be told to somebody who holds a link's secret part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    Open,
    Expired,
    Used,
    Unknown,
}

pub async fn link_state(db: &Db, hash: &[u8; 32], now: DateTime<Utc>) -> Result<LinkState, DbError> {
    let row = sqlx::query!(
        r#"/* sessions::link_state */ select expires_at, used_at from signin_links where hash = $1"#,
        &hash[..]
    )
    .fetch_optional(&db.pool)
    .await?;
    Ok(match row {
        None => LinkState::Unknown,
        Some(row) if row.used_at.is_some() => LinkState::Used,
        Some(row) if row.expires_at <= now => LinkState::Expired,
        Some(_) => LinkState::Open,
    })
}
