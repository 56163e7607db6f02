//! Conditions: what holds now of a job, a node or a cluster. A change of status or reason is an event of the subject.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::PgConnection;
use trainyard_core::model::{ConditionStatus, Severity};
use uuid::Uuid;

use super::{
    Db, DbError,
    events::{self, NewEvent, Subject},
    word,
};

#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub kind: String,
    pub status: ConditionStatus,
    pub severity: Severity,
    pub reason: String,
    pub message: String,
    pub evidence: Value,
    pub since: DateTime<Utc>,
}

fn place(subject: Subject) -> (&'static str, Uuid) {
    match subject {
        Subject::Job(id) => ("job", id.0),
        Subject::Node(id) => ("node", id.0),
        Subject::Cluster(id) => ("cluster", id.0),
    }
}

/// Sets a condition. Same status and reason: only words, evidence and the time of the look change.
pub async fn set(
    tx: &mut PgConnection,
    subject: Subject,
    condition: &Condition,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    let (kind, id) = place(subject);
    let before = sqlx::query!(
        r#"/* conditions::set before */
        select status, reason from conditions where subject_kind = $1 and subject_id = $2 and type = $3 for update"#,
        kind,
        id,
        condition.kind
    )
    .fetch_optional(&mut *tx)
    .await?;
    let changed = before.is_none_or(|row| row.status != condition.status.as_str() || row.reason != condition.reason);
    sqlx::query!(
        r#"/* conditions::set */
        insert into conditions (subject_kind, subject_id, type, status, severity, reason, message, evidence, since, observed_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        on conflict (subject_kind, subject_id, type) do update set
            since = case when conditions.status = $4 then conditions.since else $9 end,
            status = $4, severity = $5, reason = $6, message = $7, evidence = $8, observed_at = $10"#,
        kind,
        id,
        condition.kind,
        condition.status.as_str(),
        condition.severity.as_str(),
        condition.reason,
        condition.message,
        condition.evidence,
        condition.since,
        now
    )
    .execute(&mut *tx)
    .await?;
    if changed {
        let data = json!({
            "type": condition.kind, "status": condition.status, "severity": condition.severity,
            "reason": condition.reason, "evidence": condition.evidence,
        });
        let event = NewEvent {
            kind: "condition.changed",
            actor: None,
            message: &condition.message,
            data,
        };
        events::append(tx, subject, event, now).await?;
    }
    Ok(())
}

/// Takes a condition away, with an event if it was there.
pub async fn clear(
    tx: &mut PgConnection,
    subject: Subject,
    condition: &str,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    let (kind, id) = place(subject);
    let gone = sqlx::query!(
        r#"/* conditions::clear */
        delete from conditions where subject_kind = $1 and subject_id = $2 and type = $3 returning message"#,
        kind,
        id,
        condition
    )
    .fetch_optional(&mut *tx)
    .await?;
    if gone.is_some() {
        let message = format!("No longer: {condition}");
        let data = json!({ "type": condition, "status": "false" });
        events::append(
            tx,
            subject,
            NewEvent {
                kind: "condition.changed",
                actor: None,
                message: &message,
                data,
            },
            now,
        )
        .await?;
    }
    Ok(())
}

pub async fn of(db: &Db, subject: Subject) -> Result<Vec<Condition>, DbError> {
    let (kind, id) = place(subject);
    let rows = sqlx::query!(
        r#"/* conditions::of */
        select type, status, severity, reason, message, evidence, since from conditions
        where subject_kind = $1 and subject_id = $2 order by type"#,
        kind,
        id
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(Condition {
                status: word("conditions", id, &row.status)?,
                severity: word("conditions", id, &row.severity)?,
                kind: row.r#type,
                reason: row.reason,
                message: row.message,
                evidence: row.evidence,
                since: row.since,
            })
        })
        .collect()
}
