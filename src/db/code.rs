//! Uploaded code archives as workers read them.

use trainyard_core::model::TeamId;

use super::{Db, DbError};

/// A team's archive by its digest (`sha256:...`), whole.
pub async fn load(db: &Db, team: TeamId, digest: &str) -> Result<Option<Vec<u8>>, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* code::load */ select data from code_archives where team_id = $1 and digest = $2"#,
        team.0,
        digest
    )
    .fetch_optional(&db.pool)
    .await?)
}
