//! Grants of clusters to teams.

use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use trainyard_core::model::{ClusterId, TeamId};

use super::DbError;

#[derive(Debug, Clone, PartialEq)]
pub struct GrantTerms<'a> {
    pub namespace: Option<&'a str>,
    pub queue: Option<&'a str>,
    /// `use` or `privileged`.
    pub level: &'a str,
}

pub async fn put(
    tx: &mut PgConnection,
    cluster: ClusterId,
    team: TeamId,
    terms: &GrantTerms<'_>,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* grants::put */
        insert into cluster_grants (cluster_id, team_id, namespace, queue, level, created_at)
        values ($1, $2, $3, $4, $5, $6)
        on conflict (cluster_id, team_id) do update
            set namespace = excluded.namespace, queue = excluded.queue, level = excluded.level"#,
        cluster.0,
        team.0,
        terms.namespace,
        terms.queue,
        terms.level,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

pub async fn remove(tx: &mut PgConnection, cluster: ClusterId, team: TeamId) -> Result<(), DbError> {
    let done = sqlx::query!(
        r#"/* grants::remove */ delete from cluster_grants where cluster_id = $1 and team_id = $2"#,
        cluster.0,
        team.0
    )
    .execute(tx)
    .await?;
    if done.rows_affected() == 0 {
        Err(DbError::NotFound)
    } else {
        Ok(())
    }
}
