//! The one row that is this installation, and its first inhabitants.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use trainyard_core::model::{TeamId, TeamRole, UserId};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Db, DbError};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Installation {
    #[schema(value_type = String, format = "uuid")]
    pub id: Uuid,
    pub created_at: DateTime<Utc>,
    /// Set after a restore: workers only observe until a person confirms.
    pub restored_at: Option<DateTime<Utc>>,
}

/// `None`: nobody ran the first start yet.
pub async fn get(db: &Db) -> Result<Option<Installation>, DbError> {
    Ok(sqlx::query_as!(
        Installation,
        r#"/* installation::get */ select id, created_at, restored_at from installation"#
    )
    .fetch_optional(&db.pool)
    .await?)
}

/// Writes the row if there is none, and answers the id that holds.
pub async fn ensure(tx: &mut PgConnection, id: Uuid, now: DateTime<Utc>) -> Result<Uuid, DbError> {
    sqlx::query!(
        r#"/* installation::ensure */
        insert into installation (id, created_at) values ($1, $2) on conflict (singleton) do nothing"#,
        id,
        now
    )
    .execute(&mut *tx)
    .await?;
    // The lock makes a second first start wait, so that it sees what the first one wrote.
    Ok(
        sqlx::query_scalar!(r#"/* installation::ensure read */ select id from installation for update"#)
            .fetch_one(tx)
            .await?,
    )
}

/// The person whom the program itself recognises: the first admin of this machine.
pub async fn local_user(tx: &mut PgConnection, subject: &str) -> Result<Option<UserId>, DbError> {
    let user = sqlx::query_scalar!(
        r#"/* installation::local_user */ select user_id from identities where issuer = 'local' and subject = $1"#,
        subject
    )
    .fetch_optional(tx)
    .await?;
    Ok(user.map(UserId))
}

/// The newest schema version that was applied whole. `None`: no migration ran.
pub async fn schema_version(db: &Db) -> Result<Option<i64>, DbError> {
    // The table belongs to the migrator, so the checked macros may not find it where the schema was made by hand.
    let version = sqlx::query_scalar::<_, Option<i64>>(
        "/* installation::schema_version */ select max(version) from _sqlx_migrations where success",
    )
    .fetch_one(&db.pool)
    .await
    .map_err(DbError::from);
    match version {
        Ok(version) => Ok(version),
        // 42P01: the table is not there.
        Err(DbError::Other(sqlx::Error::Database(error))) if error.code().as_deref() == Some("42P01") => Ok(None),
        Err(error) => Err(error),
    }
}

/// Makes a team with one owner, if there is no team yet.
pub async fn first_team(
    tx: &mut PgConnection,
    id: TeamId,
    name: &str,
    owner: UserId,
    now: DateTime<Utc>,
) -> Result<Option<TeamId>, DbError> {
    let made = sqlx::query_scalar!(
        r#"/* installation::first_team */
        insert into teams (id, name, created_at) select $1, $2, $3 where not exists (select from teams)
        returning id"#,
        id.0,
        name,
        now
    )
    .fetch_optional(&mut *tx)
    .await?;
    if made.is_some() {
        super::teams::put_member(tx, id, owner, TeamRole::Owner, now).await?;
    }
    Ok(made.map(TeamId))
}
