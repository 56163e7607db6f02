//! Secrets as workers read them: sealed. The API's side, which never reads a value, is elsewhere.

use trainyard_core::model::TeamId;
use uuid::Uuid;

use super::{Db, DbError};
use crate::keys::{KeyId, Sealed};

/// A stored secret: a sealed JSON object of key to value, bound to its row's id.
pub struct Stored {
    pub id: Uuid,
    pub sealed: Sealed,
}

pub async fn newest(db: &Db, team: TeamId, name: &str) -> Result<Option<Stored>, DbError> {
    Ok(versions(db, team, name, false).await?.into_iter().next())
}

/// Every version that is stored, newest first, deleted ones included: a running attempt may still have one.
pub async fn all(db: &Db, team: TeamId, name: &str) -> Result<Vec<Stored>, DbError> {
    versions(db, team, name, true).await
}

async fn versions(db: &Db, team: TeamId, name: &str, all: bool) -> Result<Vec<Stored>, DbError> {
    let rows = sqlx::query!(
        r#"/* secret_values::versions */
        select id, key_id, nonce, ciphertext from secrets
        where team_id = $1 and name = $2 and ($3 or deleted_at is null)
        order by version desc limit case when $3 then null else 1 end"#,
        team.0,
        name,
        all
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let wrong = |what: &str| DbError::Inconsistent {
                table: "secrets",
                key: row.id.to_string(),
                what: what.to_owned(),
            };
            let key_id = KeyId::parse(&row.key_id).ok_or_else(|| wrong("key_id is not a key's id"))?;
            let nonce = row
                .nonce
                .as_slice()
                .try_into()
                .map_err(|_| wrong("nonce is not 24 bytes"))?;
            Ok(Stored {
                id: row.id,
                sealed: Sealed {
                    key_id,
                    nonce,
                    ciphertext: row.ciphertext,
                },
            })
        })
        .collect()
}

/// The (secret, key) pairs of a team that exist, among all its live secrets' newest versions.
pub async fn known_keys(db: &Db, team: TeamId) -> Result<Vec<(String, Vec<String>)>, DbError> {
    let rows = sqlx::query!(
        r#"/* secret_values::known_keys */
        select distinct on (name) name, keys from secrets
        where team_id = $1 and deleted_at is null order by name, version desc"#,
        team.0
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.name, row.keys)).collect())
}
