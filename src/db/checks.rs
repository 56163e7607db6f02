//! Checks: questions to a cluster or a cloud, written by people and answered by workers.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
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

/// Who can answer a question to a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A worker on this machine.
    Machine(String),
    /// The machine that it is was declared gone.
    Gone,
    /// Nobody that is known here.
    Nowhere,
}

pub async fn place(db: &Db, cluster: ClusterId) -> Result<Place, DbError> {
    let row = sqlx::query!(
        r#"/* checks::place */
        select machine_id, exists (select from nodes n where n.cluster_id = c.id and n.gone_at is not null)
            and not exists (select from nodes n where n.cluster_id = c.id and n.gone_at is null) as "gone!"
        from clusters c where id = $1 and deleted_at is null"#,
        cluster.0
    )
    .fetch_optional(&db.pool)
    .await?;
    Ok(match row {
        Some(row) if row.gone => Place::Gone,
        Some(row) => row.machine_id.map_or(Place::Nowhere, Place::Machine),
        None => Place::Nowhere,
    })
}

/// Writes the answer, or the words of why there is none. The first one stays.
pub async fn answer(
    tx: &mut PgConnection,
    id: CheckId,
    answer: &Result<Value, String>,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    let (phase, value) = match answer {
        Ok(value) => ("answered", value.clone()),
        Err(message) => ("failed", json!({ "message": message })),
    };
    sqlx::query!(
        r#"/* checks::answer */
        update checks set phase = $2, answer = $3, answered_at = $4 where id = $1 and phase = 'waiting'"#,
        id.0,
        phase,
        value,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What was asked last about a cluster, answered or not.
pub async fn newest(db: &Db, cluster: ClusterId) -> Result<Option<Check>, DbError> {
    let id = sqlx::query_scalar!(
        r#"/* checks::newest */ select id from checks where cluster_id = $1 order by id desc limit 1"#,
        cluster.0
    )
    .fetch_optional(&db.pool)
    .await?;
    match id {
        Some(id) => get(db, None, CheckId(id)).await.map(Some),
        None => Ok(None),
    }
}

/// Ends the wait of questions that nobody answered: their cluster has no worker. Answers how many there were.
pub async fn give_up(db: &Db, asked_before: DateTime<Utc>, now: DateTime<Utc>) -> Result<u64, DbError> {
    let answer = json!({ "message": "nobody answered: no worker looks after the cluster" });
    let done = sqlx::query!(
        r#"/* checks::give_up */
        with late as (
            update checks set phase = 'failed', answer = $3, answered_at = $2
            where phase = 'waiting' and created_at < $1 returning id
        )
        delete from tasks using late where tasks.kind = 'check' and tasks.subject_id = late.id"#,
        asked_before,
        now,
        answer
    );
    Ok(done.execute(&db.pool).await?.rows_affected())
}
