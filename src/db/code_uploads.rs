//! Uploaded code as people see it: stored once per team and content.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgConnection;
use trainyard_core::model::{TeamId, UserId};
use utoipa::ToSchema;

use super::{Db, DbError};

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct CodeArchive {
    /// `sha256:` and 64 hexadecimal digits: what a document's `code.upload` names.
    pub digest: String,
    pub team: TeamId,
    pub bytes: i64,
    pub created_by: UserId,
    pub created_at: DateTime<Utc>,
}

/// Stores an archive. `false`: the team has it already.
pub async fn insert(
    tx: &mut PgConnection,
    team: TeamId,
    digest: &str,
    data: &[u8],
    by: UserId,
    now: DateTime<Utc>,
) -> Result<bool, DbError> {
    let done = sqlx::query!(
        r#"/* code_uploads::insert */
        insert into code_archives (digest, team_id, bytes, data, created_by, created_at)
        values ($1, $2, $3, $4, $5, $6) on conflict do nothing"#,
        digest,
        team.0,
        i64::try_from(data.len()).unwrap_or(i64::MAX),
        data,
        by.0,
        now
    )
    .execute(tx)
    .await?;
    Ok(done.rows_affected() == 1)
}

pub async fn about(db: &Db, team: TeamId, digest: &str) -> Result<CodeArchive, DbError> {
    let row = sqlx::query!(
        r#"/* code_uploads::about */
        select digest, team_id, bytes, created_by, created_at from code_archives where team_id = $1 and digest = $2"#,
        team.0,
        digest
    )
    .fetch_one(&db.pool)
    .await?;
    Ok(CodeArchive {
        digest: row.digest,
        team: row.team_id.into(),
        bytes: row.bytes,
        created_by: row.created_by.into(),
        created_at: row.created_at,
    })
}
