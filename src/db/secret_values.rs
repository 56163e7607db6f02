//! Secrets as workers read them: sealed. The API's side, which never reads a value, is elsewhere.

use sqlx::PgConnection;
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

/// Every version whose value is stored, newest first, replaced and deleted ones included: a running attempt may still
/// have one.
pub async fn all(db: &Db, team: TeamId, name: &str) -> Result<Vec<Stored>, DbError> {
    versions(db, team, name, true).await
}

async fn versions(db: &Db, team: TeamId, name: &str, all: bool) -> Result<Vec<Stored>, DbError> {
    let rows = sqlx::query!(
        r#"/* secret_values::versions */
        select id, key_id, nonce, ciphertext from secrets
        where team_id = $1 and name = $2 and ($3 or deleted_at is null) and ciphertext <> ''
        order by version desc limit case when $3 then null else 1 end"#,
        team.0,
        name,
        all
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| stored(row.id, &row.key_id, &row.nonce, row.ciphertext))
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

fn stored(id: Uuid, key_id: &str, nonce: &[u8], ciphertext: Vec<u8>) -> Result<Stored, DbError> {
    let wrong = |what: &str| DbError::Inconsistent {
        table: "secrets",
        key: id.to_string(),
        what: what.to_owned(),
    };
    Ok(Stored {
        id,
        sealed: Sealed {
            key_id: KeyId::parse(key_id).ok_or_else(|| wrong("key_id is not a key's id"))?,
            nonce: nonce.try_into().map_err(|_| wrong("nonce is not 24 bytes"))?,
            ciphertext,
        },
    })
}

/// Taken by whoever reads the key ring to seal a row, until the row is committed; shared among them.
const SEALING: i64 = 0x7472_6169_6e6b_6579;

/// Before the ring is read, in the transaction that will write what is sealed with it.
pub async fn begin_sealing(tx: &mut PgConnection) -> Result<(), DbError> {
    sqlx::query("/* secret_values::begin_sealing */ select pg_advisory_xact_lock_shared($1)")
        .bind(SEALING)
        .execute(tx)
        .await?;
    Ok(())
}

/// Returns once everybody who had read the ring before has committed or given up.
pub async fn await_sealing(db: &Db) -> Result<(), DbError> {
    let mut tx = db.begin().await?;
    sqlx::query("/* secret_values::await_sealing */ select pg_advisory_xact_lock($1)")
        .bind(SEALING)
        .execute(&mut *tx)
        .await?;
    Ok(tx.commit().await?)
}

/// The next rows, in the order of their ids, that are sealed with another key than this one; locked. Deleted ones too:
/// what they held is still masked in logs.
pub async fn under_other_keys(
    tx: &mut PgConnection,
    key: &str,
    after: Option<Uuid>,
    limit: i64,
) -> Result<Vec<Stored>, DbError> {
    let rows = sqlx::query!(
        r#"/* secret_values::under_other_keys */
        select id, key_id, nonce, ciphertext from secrets
        where key_id <> $1 and ciphertext <> '' and ($2::uuid is null or id > $2) order by id limit $3 for update"#,
        key,
        after,
        limit
    )
    .fetch_all(tx)
    .await?;
    rows.into_iter()
        .map(|row| stored(row.id, &row.key_id, &row.nonce, row.ciphertext))
        .collect()
}

pub async fn seal_anew(tx: &mut PgConnection, id: Uuid, sealed: &Sealed) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* secret_values::seal_anew */ update secrets set key_id = $2, nonce = $3, ciphertext = $4 where id = $1"#,
        id,
        sealed.key_id.as_str(),
        &sealed.nonce[..],
        sealed.ciphertext
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// The keys that any value needs.
pub async fn keys_in_use(db: &Db) -> Result<Vec<String>, DbError> {
    let keys = sqlx::query_scalar!(
        r#"/* secret_values::keys_in_use */ select distinct key_id from secrets where ciphertext <> ''"#
    );
    Ok(keys.fetch_all(&db.pool).await?)
}
