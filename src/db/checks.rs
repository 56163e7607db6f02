//! Checks: questions to a cluster or a cloud, written by people and answered by workers.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::PgConnection;
use trainyard_core::model::{CheckId, ClusterId, UserId};
use utoipa::ToSchema;

use super::{Db, DbError};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Check {
    pub id: CheckId,
    /// What is asked, such as `cluster.look`.
    pub kind: String,
    pub cluster: Option<ClusterId>,
    pub requested_by: Option<UserId>,
    #[schema(value_type = Object)]
    pub question: Value,
    /// `waiting`, `answered` or `failed`.
    pub phase: String,
    #[schema(value_type = Option<Object>)]
    pub answer: Option<Value>,
    pub created_at: DateTime<Utc>,
    pub answered_at: Option<DateTime<Utc>>,
}

pub struct NewCheck<'a> {
    pub id: CheckId,
    pub kind: &'a str,
    pub cluster: Option<ClusterId>,
    pub by: UserId,
    pub question: &'a Value,
}

/// Writes the question. Answers the machine whose worker can reply, where it has to be a certain one.
pub async fn insert(tx: &mut PgConnection, new: &NewCheck<'_>, now: DateTime<Utc>) -> Result<Option<String>, DbError> {
    sqlx::query!(
        r#"/* checks::insert */
        insert into checks (id, kind, cluster_id, requested_by, question, phase, created_at)
        values ($1, $2, $3, $4, $5, 'waiting', $6)"#,
        new.id.0,
        new.kind,
        new.cluster.map(|cluster| cluster.0),
        new.by.0,
        new.question,
        now
    )
    .execute(&mut *tx)
    .await?;
    let machine = sqlx::query_scalar!(
        r#"/* checks::insert machine */ select machine_id from clusters where id = $1"#,
        new.cluster.map(|cluster| cluster.0)
    )
    .fetch_optional(tx)
    .await?;
    Ok(machine.flatten())
}

/// A check, for the person who asked, or for anybody (an admin).
pub async fn get(db: &Db, asked_by: Option<UserId>, id: CheckId) -> Result<Check, DbError> {
    let row = sqlx::query!(
        r#"/* checks::get */
        select id, kind, cluster_id, requested_by, question, phase, answer, created_at, answered_at from checks
        where id = $1 and ($2::uuid is null or requested_by = $2)"#,
        id.0,
        asked_by.map(|user| user.0)
    )
    .fetch_one(&db.pool)
    .await?;
    Ok(Check {
        id: row.id.into(),
        kind: row.kind,
        cluster: row.cluster_id.map(ClusterId),
        requested_by: row.requested_by.map(UserId),
        question: row.question,
        phase: row.phase,
        answer: row.answer,
        created_at: row.created_at,
        answered_at: row.answered_at,
    })
}
