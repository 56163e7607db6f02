//! Events as people read them: of one subject by number, and the feed across subjects by position.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use trainyard_core::model::{ClusterId, JobId, NodeId, TeamId, UserId};
use utoipa::ToSchema;
use uuid::Uuid;

use super::{Db, DbError, Scope, jobs_read::UserRef};

/// The log of one subject, of which events are numbered without gaps.
#[derive(Debug, Clone, PartialEq)]
pub struct EventLog {
    /// The partition: a job's retention class, else `installation`.
    pub class: String,
    pub owner: Uuid,
}

impl EventLog {
    pub fn of_job(home: &super::jobs_read::Home) -> Self {
        Self {
            class: home.class.clone(),
            owner: home.id.0,
        }
    }

    /// For a node or a cluster that the scope was found to see.
    pub fn of_installation(owner: Uuid) -> Self {
        Self {
            class: "installation".into(),
            owner,
        }
    }
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Event {
    /// From 1, without gaps.
    pub seq: i64,
    pub at: DateTime<Utc>,
    /// Dotted: `job.phase`, `replica.ended`, `node.condition`.
    pub kind: String,
    /// `null`: Trainyard itself.
    pub actor: Option<UserRef>,
    pub message: String,
    #[schema(value_type = Object)]
    pub data: Value,
}

/// Events after a number, in order.
pub async fn after(db: &Db, log: &EventLog, seq: i64, limit: i64) -> Result<Vec<Event>, DbError> {
    let rows = sqlx::query!(
        r#"/* events_read::after */
        select e.seq, e.at, e.kind, e.actor_id, u.name as "actor_name?", e.message, e.data
        from events e left join users u on u.id = e.actor_id
        where e.class = $1 and e.owner_id = $2 and e.seq > $3 order by e.seq limit $4"#,
        log.class,
        log.owner,
        seq,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Event {
            seq: row.seq,
            at: row.at,
            kind: row.kind,
            actor: row.actor_id.zip(row.actor_name).map(|(id, name)| UserRef { id: id.into(), name }),
            message: row.message,
            data: row.data,
        })
        .collect())
}

/// Events before a number, the newest first.
pub async fn before(db: &Db, log: &EventLog, seq: Option<i64>, limit: i64) -> Result<Vec<Event>, DbError> {
    let rows = sqlx::query!(
        r#"/* events_read::before */
        select e.seq, e.at, e.kind, e.actor_id, u.name as "actor_name?", e.message, e.data
        from events e left join users u on u.id = e.actor_id
        where e.class = $1 and e.owner_id = $2 and ($3::bigint is null or e.seq < $3) order by e.seq desc limit $4"#,
        log.class,
        log.owner,
        seq,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Event {
            seq: row.seq,
            at: row.at,
            kind: row.kind,
            actor: row.actor_id.zip(row.actor_name).map(|(id, name)| UserRef { id: id.into(), name }),
            message: row.message,
            data: row.data,
        })
        .collect())
}

/// An event in the feed across subjects.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct FeedEvent {
    /// Grows along the feed. Numbers may be missing: events that the reader may not see have positions, too.
    pub position: i64,
    /// `job`, `node` or `cluster`.
    pub subject_kind: String,
    /// The subject's id.
    pub subject: String,
    pub team: Option<TeamId>,
    pub seq: i64,
    pub at: DateTime<Utc>,
    pub kind: String,
    pub actor: Option<UserId>,
    pub message: String,
    #[schema(value_type = Object)]
    pub data: Value,
}

/// The feed after a position, in order. A scope of teams sees what happened in these teams; the installation's own
/// events are for admins.
pub async fn feed(db: &Db, scope: &Scope, after: i64, limit: i64) -> Result<Vec<FeedEvent>, DbError> {
    let teams = scope.teams();
    let rows = sqlx::query!(
        r#"/* events_read::feed */
        select feed_position as "position!", owner_kind, owner_id, team_id, seq, at, kind, actor_id, message, data
        from events
        where feed_position > $1 and ($2::uuid[] is null or team_id = any($2)) order by feed_position limit $3"#,
        after,
        teams.as_deref(),
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| FeedEvent {
            position: row.position,
            subject: match row.owner_kind.as_str() {
                "node" => NodeId(row.owner_id).to_string(),
                "cluster" => ClusterId(row.owner_id).to_string(),
                _ => JobId(row.owner_id).to_string(),
            },
            subject_kind: row.owner_kind,
            team: row.team_id.map(TeamId),
            seq: row.seq,
            at: row.at,
            kind: row.kind,
            actor: row.actor_id.map(UserId),
            message: row.message,
            data: row.data,
        })
        .collect())
}

/// Where the feed stands: its oldest position that is still there, and the newest one given out.
pub async fn feed_ends(db: &Db) -> Result<(Option<i64>, i64), DbError> {
    let row = sqlx::query!(
        r#"/* events_read::feed_ends */
        select (select min(feed_position) from events where feed_position is not null) as oldest,
            coalesce((select feed_position from installation), 0) as "newest!""#
    )
    .fetch_one(&db.pool)
    .await?;
    Ok((row.oldest, row.newest))
}
