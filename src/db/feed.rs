//! Events for readers: those of one subject by number, and all of them by their place in the feed.
//!
//! Places are given after commit by one holder, so a reader that saw place 7 will never see anything new before it.

use chrono::{DateTime, Utc};
use serde_json::Value;
use trainyard_core::model::{ClusterId, JobId, NodeId, TeamId, UserId};
use uuid::Uuid;

use super::{
    Db, DbError, Scope,
    events::Subject,
    holdings::{self, Holding},
    notify,
};

/// An event as it is read.
#[derive(Debug, Clone, PartialEq)]
pub struct EventRow {
    pub subject: Subject,
    pub seq: i64,
    pub team: Option<TeamId>,
    pub at: DateTime<Utc>,
    pub kind: String,
    pub actor: Option<UserId>,
    pub message: String,
    pub data: Value,
    pub position: Option<i64>,
}

struct RawEvent {
    owner_kind: String,
    owner_id: Uuid,
    seq: i64,
    team_id: Option<Uuid>,
    at: DateTime<Utc>,
    kind: String,
    actor_id: Option<Uuid>,
    message: String,
    data: Value,
    feed_position: Option<i64>,
}

impl TryFrom<RawEvent> for EventRow {
    type Error = DbError;

    fn try_from(raw: RawEvent) -> Result<Self, DbError> {
        let subject = match raw.owner_kind.as_str() {
            "job" => Subject::Job(JobId(raw.owner_id)),
            "node" => Subject::Node(NodeId(raw.owner_id)),
            "cluster" => Subject::Cluster(ClusterId(raw.owner_id)),
            other => {
                return Err(DbError::Inconsistent {
                    table: "events",
                    key: raw.owner_id.to_string(),
                    what: format!("unknown kind of subject {other}"),
                });
            }
        };
        Ok(EventRow {
            subject,
            seq: raw.seq,
            team: raw.team_id.map(TeamId),
            at: raw.at,
            kind: raw.kind,
            actor: raw.actor_id.map(UserId),
            message: raw.message,
            data: raw.data,
            position: raw.feed_position,
        })
    }
}

/// How many places one look at the feed covers, whoever asks and however little of it they may see.
pub const WINDOW: i64 = 10_000;

/// What a reader gets that asks for everything after a number or place.
#[derive(Debug, Clone, PartialEq)]
pub enum Events {
    /// In order; empty: nothing new.
    Next(Vec<EventRow>),
    /// What came next was removed by retention: begin anew.
    Reset,
}

/// Proof that a subject's events may be read, and where they lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SubjectKey {
    subject: Subject,
    class: &'static str,
}

impl SubjectKey {
    pub fn subject(self) -> Subject {
        self.subject
    }

    pub fn id(self) -> Uuid {
        match self.subject {
            Subject::Job(id) => id.0,
            Subject::Node(id) => id.0,
            Subject::Cluster(id) => id.0,
        }
    }
}

/// The key to a subject's events. Nodes and clusters belong to the installation; whoever is in a team that was granted
/// the cluster may read them.
pub async fn readable(db: &Db, scope: &Scope, subject: Subject) -> Result<SubjectKey, DbError> {
    let teams = scope.teams();
    let class = match subject {
        Subject::Job(job) => super::logs::readable(db, scope, job).await?.class().as_str(),
        Subject::Node(node) => {
            sqlx::query_scalar!(
                r#"/* feed::readable node */
                select 1 as "one!" from nodes n
                where n.id = $1 and ($2::uuid[] is null or exists (
                    select 1 from cluster_grants g where g.cluster_id = n.cluster_id and g.team_id = any($2)))"#,
                node.0,
                teams.as_deref()
            )
            .fetch_optional(&db.pool)
            .await?
            .ok_or(DbError::NotFound)?;
            "installation"
        }
        Subject::Cluster(cluster) => {
            sqlx::query_scalar!(
                r#"/* feed::readable cluster */
                select 1 as "one!" from clusters c
                where c.id = $1 and ($2::uuid[] is null or exists (
                    select 1 from cluster_grants g where g.cluster_id = c.id and g.team_id = any($2)))"#,
                cluster.0,
                teams.as_deref()
            )
            .fetch_optional(&db.pool)
            .await?
            .ok_or(DbError::NotFound)?;
            "installation"
        }
    };
    Ok(SubjectKey { subject, class })
}

/// A subject's events after a number, in order.
pub async fn of_subject(db: &Db, key: SubjectKey, after: i64, limit: i64) -> Result<Events, DbError> {
    let rows = sqlx::query_as!(
        RawEvent,
        r#"/* feed::of_subject */
        select owner_kind, owner_id, seq, team_id, at, kind, actor_id, message, data, feed_position
        from events where class = $1 and owner_id = $2 and seq > $3
        order by seq limit $4"#,
        key.class,
        key.id(),
        after,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    // Numbers have no gaps, so a jump means that something was removed. From the beginning, whatever is left will do.
    if after > 0 && rows.first().is_some_and(|row| row.seq > after + 1) {
        return Ok(Events::Reset);
    }
    Ok(Events::Next(
        rows.into_iter().map(EventRow::try_from).collect::<Result<_, _>>()?,
    ))
}

/// The number of a subject's newest event; 0: none.
pub async fn last_of_subject(db: &Db, key: SubjectKey) -> Result<i64, DbError> {
    Ok(sqlx::query_scalar!(
        r#"/* feed::last_of_subject */
        select coalesce(max(seq), 0) as "seq!" from events where class = $1 and owner_id = $2"#,
        key.class,
        key.id()
    )
    .fetch_one(&db.pool)
    .await?)
}

/// The feed after a place, in order, as far as the scope may see it and at most [`WINDOW`] places far. The second value is
/// the place that was looked up to: it moves on even when nothing in between may be seen.
pub async fn of_all(db: &Db, scope: &Scope, after: i64, limit: i64) -> Result<(Events, i64), DbError> {
    let teams = scope.teams();
    let ends = sqlx::query!(r#"/* feed::of_all ends */ select feed_position, feed_pruned from installation"#)
        .fetch_one(&db.pool)
        .await?;
    if (after > 0 && after < ends.feed_pruned) || after > ends.feed_position {
        return Ok((Events::Reset, ends.feed_position));
    }
    // The beginning is where there is something.
    let after = match after {
        0 => (ends.feed_pruned - 1).max(0),
        after => after,
    };
    let end = ends.feed_position.min(after + WINDOW);
    let rows = sqlx::query_as!(
        RawEvent,
        r#"/* feed::of_all */
        select owner_kind, owner_id, seq, team_id, at, kind, actor_id, message, data, feed_position
        from events
        where feed_position > $1 and feed_position <= $2 and ($3::uuid[] is null or team_id = any($3))
        order by feed_position limit $4"#,
        after,
        end,
        teams.as_deref(),
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    let full = rows.len() as i64 >= limit;
    let rows: Vec<EventRow> = rows.into_iter().map(EventRow::try_from).collect::<Result<_, _>>()?;
    let reached = rows.last().filter(|_| full).and_then(|row| row.position).unwrap_or(end);
    Ok((Events::Next(rows), reached))
}

/// The feed's end now, for readers that want only what comes.
pub async fn end(db: &Db) -> Result<i64, DbError> {
    Ok(
        sqlx::query_scalar!("/* feed::end */ select feed_position from installation")
            .fetch_one(&db.pool)
            .await?,
    )
}

/// Gives the next places to events that have none, oldest first and each subject's in its own order. Answers how many.
pub async fn sequence(db: &Db, holding: &Holding, limit: i64, now: DateTime<Utc>) -> Result<u64, DbError> {
    let mut tx = db.begin().await?;
    holdings::check(&mut tx, holding, now).await?;
    let subjects = sqlx::query_scalar!(
        r#"/* feed::sequence */
        with oldest as (
            select class, owner_id, seq from events where feed_position is null order by at, owner_id, seq limit $1
        ), upto as (
            select class, owner_id, max(seq) as seq from oldest group by class, owner_id
        ), picked as (
            -- What stands before a picked event of the same subject goes first, even if its clock said later.
            select e.class, e.owner_id, e.seq,
                   max(e.at) over (partition by e.owner_id order by e.seq) as at
            from events e join upto u on u.class = e.class and u.owner_id = e.owner_id and e.seq <= u.seq
            where e.feed_position is null
        ), placed as (
            select class, owner_id, seq, row_number() over (order by at, owner_id, seq) as place from picked
        ), moved as (
            update installation set feed_position = feed_position + (select count(*) from placed)
            where exists (select 1 from placed)
            returning feed_position - (select count(*) from placed) as base
        ), given as (
            update events e set feed_position = m.base + p.place
            from placed p, moved m
            where e.class = p.class and e.owner_id = p.owner_id and e.seq = p.seq
            returning e.owner_id
        )
        select owner_id from given"#,
        limit
    )
    .fetch_all(&mut *tx)
    .await?;
    let count = subjects.len() as u64;
    let mut distinct = subjects;
    distinct.sort_unstable();
    distinct.dedup();
    for payload in notify::payloads(&distinct) {
        notify::send(&mut *tx, notify::EVENTS, &payload).await?;
    }
    tx.commit().await?;
    Ok(count)
}

/// A subject's events before a number, the newest first: what pages of its history show.
pub async fn of_subject_before(
    db: &Db,
    key: SubjectKey,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<EventRow>, DbError> {
    let rows = sqlx::query_as!(
        RawEvent,
        r#"/* feed::of_subject_before */
        select owner_kind, owner_id, seq, team_id, at, kind, actor_id, message, data, feed_position
        from events where class = $1 and owner_id = $2 and ($3::bigint is null or seq < $3)
        order by seq desc limit $4"#,
        key.class,
        key.id(),
        before,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter().map(EventRow::try_from).collect()
}
