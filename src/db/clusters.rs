//! Clusters and nodes as workers write them: this machine's own, and what was seen when.

use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::PgConnection;
use trainyard_core::model::{ClusterId, NodeId};
use uuid::Uuid;

use super::{
    Db, DbError,
    events::{self, NewEvent, Subject},
};

/// This machine as a cluster: made at the first start of a worker here, with a grant for every team that exists, and
/// found again by its machine id.
pub async fn ensure_local(
    db: &Db,
    machine_id: &str,
    name: &str,
    id: ClusterId,
    now: DateTime<Utc>,
) -> Result<ClusterId, DbError> {
    let mut tx = db.begin().await?;
    let found = sqlx::query_scalar!(
        r#"/* clusters::ensure_local find */ select id from clusters where machine_id = $1 and deleted_at is null"#,
        machine_id
    )
    .fetch_optional(&mut *tx)
    .await?;
    if let Some(found) = found {
        return Ok(found.into());
    }
    // The first machine gets the plain name; a further one is told apart by its host's.
    let made = sqlx::query_scalar!(
        r#"/* clusters::ensure_local */
        insert into clusters (id, name, provider, machine_id, phase, reason, message, created_at, updated_at)
        select $1, case when exists (select 1 from clusters where name = 'local' and deleted_at is null) then $2 else 'local' end,
            'local', $3, 'active', 'ready', 'This machine runs jobs as processes', $4, $4
        on conflict do nothing returning id"#,
        id.0,
        name,
        machine_id,
        now
    )
    .fetch_optional(&mut *tx)
    .await?;
    let Some(made) = made else {
        return Err(DbError::Stale);
    };
    sqlx::query!(
        r#"/* clusters::ensure_local grants */
        insert into cluster_grants (cluster_id, team_id, level, created_at) select $1, id, 'use', $2 from teams
        on conflict do nothing"#,
        made,
        now
    )
    .execute(&mut *tx)
    .await?;
    let message = "This machine became a cluster";
    let event = NewEvent {
        kind: "cluster.created",
        actor: None,
        message,
        data: json!({ "provider": "local" }),
    };
    events::append(&mut tx, Subject::Cluster(made.into()), event, now).await?;
    tx.commit().await?;
    Ok(made.into())
}

/// What a worker sees of a node, whole.
#[derive(Debug, Clone)]
pub struct NodeSight<'a> {
    pub name: &'a str,
    pub identity: &'a str,
    pub ready: bool,
    pub reason: &'a str,
    pub message: &'a str,
    pub labels: Value,
    pub capacity: Value,
    pub allocatable: Value,
    pub facts: Value,
    pub usage: Value,
}

/// Writes what is seen of a node; a change of phase, and its first sight, are events. Answers whether it can be used
/// again, after it was away or for the first time.
pub async fn see_node(
    tx: &mut PgConnection,
    cluster: ClusterId,
    new_id: Uuid,
    sight: &NodeSight<'_>,
    now: DateTime<Utc>,
) -> Result<(NodeId, bool), DbError> {
    let phase = if sight.ready { "ready" } else { "not_ready" };
    let before = sqlx::query!(
        r#"/* clusters::see_node before */
        select id, phase, stale_since is not null as "stale!" from nodes where cluster_id = $1 and identity = $2 and gone_at is null for update"#,
        cluster.0,
        sight.identity
    )
    .fetch_optional(&mut *tx)
    .await?;
    let id = before.as_ref().map_or(new_id, |row| row.id);
    sqlx::query!(
        r#"/* clusters::see_node */
        insert into nodes (id, cluster_id, name, identity, phase, reason, message, labels, capacity, allocatable, facts,
            usage, first_seen_at, observed_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13)
        on conflict (id) do update set
            name = $3, phase = $5, reason = $6, message = $7, labels = $8, capacity = $9, allocatable = $10, facts = $11,
            usage = $12, observed_at = $13, stale_since = null"#,
        id,
        cluster.0,
        sight.name,
        sight.identity,
        phase,
        sight.reason,
        sight.message,
        sight.labels,
        sight.capacity,
        sight.allocatable,
        sight.facts,
        sight.usage,
        now
    )
    .execute(&mut *tx)
    .await?;
    let appeared = before.as_ref().is_none_or(|row| row.phase != phase || row.stale);
    if before.as_ref().is_none_or(|row| row.phase != phase) {
        let kind = if before.is_none() {
            "node.appeared"
        } else {
            "node.phase"
        };
        let data = json!({ "from": before.map(|row| row.phase), "to": phase, "reason": sight.reason });
        events::append(
            tx,
            Subject::Node(id.into()),
            NewEvent {
                kind,
                actor: None,
                message: sight.message,
                data,
            },
            now,
        )
        .await?;
    }
    Ok((id.into(), appeared))
}

/// Writes what is known of the cluster as a whole and that it was looked at now.
pub async fn see_cluster(
    tx: &mut PgConnection,
    cluster: ClusterId,
    facts: &Value,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* clusters::see_cluster */
        update clusters set facts = $2, observed_at = $3, stale_since = null where id = $1"#,
        cluster.0,
        facts,
        now
    )
    .execute(tx)
    .await?;
    Ok(())
}

/// What nobody looked at for `after` is stale since its last look: clusters, their nodes and their open jobs.
/// Any process may run this; it needs no worker, since it is the lack of one that it tells.
pub async fn mark_stale(db: &Db, after: chrono::Duration, now: DateTime<Utc>) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"/* clusters::mark_stale */
        with gone as (
            update clusters set stale_since = coalesce(observed_at, created_at)
            where deleted_at is null and phase = 'active' and stale_since is null
                and coalesce(observed_at, created_at) < $1
            returning id, stale_since
        ), their_nodes as (
            update nodes set stale_since = gone.stale_since from gone
            where nodes.cluster_id = gone.id and nodes.gone_at is null and nodes.stale_since is null
        )
        update jobs set stale_since = gone.stale_since from gone
        where jobs.cluster_id = gone.id and jobs.phase in ('starting', 'running', 'stopping') and jobs.stale_since is null"#,
        now - after
    )
    .execute(&db.pool)
    .await?;
    Ok(done.rows_affected())
}
