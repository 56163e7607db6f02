//! What the first start writes: the installation's row, and its first inhabitants.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::{TeamId, TeamRole, UserId};
use uuid::Uuid;

use super::{DbError, teams};

/// Writes the installation's row if there is none, locks it, and answers the id that holds. A second first start waits
/// here, so that it sees what the first one wrote.
pub async fn installation(tx: &mut PgConnection, id: Uuid, now: DateTime<Utc>) -> Result<Uuid, DbError> {
    sqlx::query!(
        r#"/* first_start::installation */
        insert into installation (id, created_at) values ($1, $2) on conflict (singleton) do nothing"#,
        id,
        now
    )
    .execute(&mut *tx)
    .await?;
    Ok(
        sqlx::query_scalar!(r#"/* first_start::installation lock */ select id from installation for update"#)
            .fetch_one(tx)
            .await?,
    )
}

/// The person whom the program itself recognises by a name of its own.
pub async fn local_user(tx: &mut PgConnection, subject: &str) -> Result<Option<UserId>, DbError> {
    let user = sqlx::query_scalar!(
        r#"/* first_start::local_user */ select user_id from identities where issuer = 'local' and subject = $1"#,
        subject
    )
    .fetch_optional(tx)
    .await?;
    Ok(user.map(UserId))
}

/// Makes a team with one owner, if there is no team yet.
pub async fn team(
    tx: &mut PgConnection,
    id: TeamId,
    name: &str,
    owner: UserId,
    now: DateTime<Utc>,
) -> Result<Option<TeamId>, DbError> {
    let made = sqlx::query_scalar!(
        r#"/* first_start::team */
        insert into teams (id, name, created_at) select $1, $2, $3 where not exists (select from teams)
        returning id"#,
        id.0,
        name,
        now
    )
    .fetch_optional(&mut *tx)
    .await?;
    if made.is_some() {
        teams::put_member(tx, id, owner, TeamRole::Owner, now).await?;
    }
    Ok(made.map(TeamId))
}
