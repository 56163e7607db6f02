//! Secrets as people see them: names, keys and versions, never a value. Workers read values in `secret_values`.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use trainyard_core::model::{SecretId, TeamId, UserId};
use utoipa::ToSchema;

use super::{Db, DbError};
use crate::keys::Sealed;

/// A secret without its values.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct Secret {
    pub name: String,
    pub version: i32,
    /// The keys that it has values for.
    pub keys: Vec<String>,
    pub created_by: UserId,
    /// When this version was put.
    pub created_at: DateTime<Utc>,
}

/// The newest versions, by name.
pub async fn list(db: &Db, team: TeamId, after: Option<&str>, limit: i64) -> Result<Vec<Secret>, DbError> {
    let rows = sqlx::query!(
        r#"/* secrets::list */
        select name, version, keys, created_by, created_at from (
            select distinct on (name) name, version, keys, created_by, created_at, deleted_at from secrets
            where team_id = $1 and ($2::text is null or name > $2) order by name, version desc
        ) newest where deleted_at is null order by name limit $3"#,
        team.0,
        after,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Secret {
            name: row.name,
            version: row.version,
            keys: row.keys,
            created_by: row.created_by.into(),
            created_at: row.created_at,
        })
        .collect())
}

/// The newest version of one.
pub async fn get(db: &Db, team: TeamId, name: &str) -> Result<Secret, DbError> {
    let row = sqlx::query!(
        r#"/* secrets::get */
        select version, keys, created_by, created_at from secrets
        where team_id = $1 and name = $2 and deleted_at is null order by version desc limit 1"#,
        team.0,
        name
    )
    .fetch_one(&db.pool)
    .await?;
    Ok(Secret {
        name: name.to_owned(),
        version: row.version,
        keys: row.keys,
        created_by: row.created_by.into(),
        created_at: row.created_at,
    })
}

/// A version that was sealed for its row's id.
pub struct NewVersion<'a> {
    pub id: SecretId,
    pub team: TeamId,
    pub name: &'a str,
    pub keys: Vec<String>,
    pub sealed: &'a Sealed,
    pub by: UserId,
}

/// Writes the next version. Nobody can ask for the values of older ones any more; they stay sealed as long as a running
/// attempt may print them, and go with [`super::upkeep::replaced_secrets`].
pub async fn put(tx: &mut PgConnection, new: &NewVersion<'_>, now: DateTime<Utc>) -> Result<i32, DbError> {
    // One writer per team at a time, so that versions have no gaps and no twins.
    sqlx::query!(
        r#"/* secrets::put lock */ select id from teams where id = $1 for update"#,
        new.team.0
    )
    .fetch_one(&mut *tx)
    .await?;
    let version = sqlx::query_scalar!(
        r#"/* secrets::put */
        insert into secrets (id, team_id, name, version, keys, key_id, nonce, ciphertext, created_by, created_at)
        select $1, $2, $3, 1 + coalesce((select max(version) from secrets where team_id = $2 and name = $3), 0),
            $4, $5, $6, $7, $8, $9
        returning version"#,
        new.id.0,
        new.team.0,
        new.name,
        &new.keys,
        new.sealed.key_id.as_str(),
        &new.sealed.nonce[..],
        new.sealed.ciphertext,
        new.by.0,
        now
    )
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query!(
        r#"/* secrets::put replace */
        update secrets set deleted_at = $4
        where team_id = $1 and name = $2 and version < $3 and deleted_at is null"#,
        new.team.0,
        new.name,
        version,
        now
    )
    .execute(tx)
    .await?;
    Ok(version)
}

/// Hides the name; the values go as those of replaced versions do. Jobs that name it stop being admitted.
pub async fn delete(tx: &mut PgConnection, team: TeamId, name: &str, now: DateTime<Utc>) -> Result<(), DbError> {
    let done = sqlx::query!(
        r#"/* secrets::delete */
        update secrets set deleted_at = $3 where team_id = $1 and name = $2 and deleted_at is null"#,
        team.0,
        name,
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
