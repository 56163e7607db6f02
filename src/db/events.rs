//! The event log. Numbers have no gaps within a subject, since they are given out under its row's lock.

use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use trainyard_core::model::{ClusterId, JobId, NodeId, UserId};

use super::DbError;

/// What an event is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Subject {
    Job(JobId),
    Node(NodeId),
    Cluster(ClusterId),
}

/// An event to write. Kinds are dotted words such as `job.phase`, `replica.ended`, `node.condition`.
#[derive(Debug, Clone)]
pub struct NewEvent<'a> {
    pub kind: &'a str,
    pub actor: Option<UserId>,
    pub message: &'a str,
    pub data: Value,
}

/// Appends in the caller's transaction and answers the event's number. Locks the subject's row.
pub async fn append(
    tx: &mut PgConnection,
    subject: Subject,
    event: NewEvent<'_>,
    now: DateTime<Utc>,
) -> Result<i64, DbError> {
    let actor = event.actor.map(|user| user.0);
    let seq = match subject {
        Subject::Job(id) => {
            sqlx::query_scalar!(
                r#"/* events::append job */
                with next as (
                    update jobs set event_seq = event_seq + 1 where id = $1 returning event_seq, retention, team_id
                )
                insert into events (class, owner_id, seq, owner_kind, team_id, at, kind, actor_id, message, data)
                select retention, $1, event_seq, 'job', team_id, $2, $3, $4, $5, $6 from next
                returning seq"#,
                id.0,
                now,
                event.kind,
                actor,
                event.message,
                event.data
            )
            .fetch_optional(tx)
            .await?
        }
        Subject::Node(id) => {
            sqlx::query_scalar!(
                r#"/* events::append node */
                with next as (update nodes set event_seq = event_seq + 1 where id = $1 returning event_seq)
                insert into events (class, owner_id, seq, owner_kind, at, kind, actor_id, message, data)
                select 'installation', $1, event_seq, 'node', $2, $3, $4, $5, $6 from next
                returning seq"#,
                id.0,
                now,
                event.kind,
                actor,
                event.message,
                event.data
            )
            .fetch_optional(tx)
            .await?
        }
        Subject::Cluster(id) => {
            sqlx::query_scalar!(
                r#"/* events::append cluster */
                with next as (update clusters set event_seq = event_seq + 1 where id = $1 returning event_seq)
                insert into events (class, owner_id, seq, owner_kind, at, kind, actor_id, message, data)
                select 'installation', $1, event_seq, 'cluster', $2, $3, $4, $5, $6 from next
                returning seq"#,
                id.0,
                now,
                event.kind,
                actor,
                event.message,
                event.data
            )
            .fetch_optional(tx)
            .await?
        }
    };
    seq.ok_or(DbError::NotFound)
}
