//! People.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use trainyard_core::model::UserId;
use utoipa::ToSchema;

use super::{Db, DbError};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct User {
    pub id: UserId,
    pub name: String,
    /// May act on the installation: clusters, nodes, users, every team.
    pub admin: bool,
    pub created_at: DateTime<Utc>,
    pub disabled_at: Option<DateTime<Utc>>,
}

/// A page of people, newest first.
pub async fn list(db: &Db, before: Option<UserId>, limit: i64) -> Result<Vec<User>, DbError> {
    Ok(sqlx::query_as!(
        User,
        r#"/* users::list */
        select id, name, admin, created_at, disabled_at from users
        where $1::uuid is null or id < $1 order by id desc limit $2"#,
        before.map(|before| before.0),
        limit
    )
    .fetch_all(&db.pool)
    .await?)
}

pub async fn get(db: &Db, id: UserId) -> Result<User, DbError> {
    Ok(sqlx::query_as!(
        User,
        r#"/* users::get */ select id, name, admin, created_at, disabled_at from users where id = $1"#,
        id.0
    )
    .fetch_one(&db.pool)
    .await?)
}

pub async fn insert(
    tx: &mut PgConnection,
    id: UserId,
    name: &str,
    admin: bool,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* users::insert */ insert into users (id, name, admin, created_at) values ($1, $2, $3, $4)"#,
        id.0,
        name,
        admin,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

pub async fn add_identity(
    tx: &mut PgConnection,
    user: UserId,
    issuer: &str,
    subject: &str,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* users::add_identity */
        insert into identities (issuer, subject, user_id, created_at) values ($1, $2, $3, $4)"#,
        issuer,
        subject,
        user.0,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What may change of a person. `None` leaves it.
#[derive(Debug, Clone, Default)]
pub struct UserChange {
    pub name: Option<String>,
    pub admin: Option<bool>,
    pub disabled: Option<bool>,
}

/// Changes a person. The last admin who can still sign in stays one: that refusal is [`DbError::Stale`].
pub async fn update(tx: &mut PgConnection, id: UserId, change: &UserChange, now: DateTime<Utc>) -> Result<(), DbError> {
    // All admins are locked in one order, so that two of them can't retire each other at the same moment.
    let admins = sqlx::query_scalar!(
        r#"/* users::update admins */ select id from users where admin and disabled_at is null order by id for update"#
    )
    .fetch_all(&mut *tx)
    .await?;
    let leaves = change.admin == Some(false) || change.disabled == Some(true);
    if leaves && admins == [id.0] {
        return Err(DbError::Stale);
    }
    let done = sqlx::query!(
        r#"/* users::update */
        update users set name = coalesce($2, name), admin = coalesce($3, admin),
            disabled_at = case when $4 then coalesce(disabled_at, $5) when $4 = false then null else disabled_at end
        where id = $1"#,
        id.0,
        change.name,
        change.admin,
        change.disabled,
        now
    )
    .execute(tx)
    .await?;
    if done.rows_affected() == 0 {
        Err(DbError::NotFound)
    } else {
        Ok(())
    }
}
