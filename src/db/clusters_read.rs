//! Clusters, their grants and node pools, as people see them. A team sees the clusters that it may use.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use trainyard_core::model::{ClusterId, NodePoolId, Provider, TeamId};
use utoipa::ToSchema;

use super::{Db, DbError, Scope, jobs_read::TeamRef, word};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Cluster {
    pub id: ClusterId,
    pub name: String,
    pub provider: Provider,
    /// `pending`, `active`, `deleting`, `deleted` or `failed`.
    pub phase: String,
    pub reason: String,
    pub message: String,
    /// What the worker found: versions, limits that can be enforced, trust domain.
    #[schema(value_type = Object)]
    pub facts: Value,
    /// No worker has looked at it since.
    pub stale_since: Option<DateTime<Utc>>,
    pub observed_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub nodes: i64,
    pub nodes_ready: i64,
    pub jobs_queued: i64,
    pub jobs_active: i64,
}

/// A page of clusters by name; `one`: only this one.
async fn select(
    db: &Db,
    scope: &Scope,
    one: Option<ClusterId>,
    after: Option<&str>,
    limit: i64,
) -> Result<Vec<Cluster>, DbError> {
    let teams = scope.teams();
    let rows = sqlx::query!(
        r#"/* clusters_read::select */
        select c.id, c.name, c.provider, c.phase, c.reason, c.message, c.facts, c.stale_since, c.observed_at,
            c.created_at, c.updated_at,
            (select count(*) from nodes n where n.cluster_id = c.id and n.gone_at is null) as "nodes!",
            (select count(*) from nodes n where n.cluster_id = c.id and n.gone_at is null and n.phase = 'ready')
                as "nodes_ready!",
            (select count(*) from jobs j where j.cluster_id = c.id and j.phase = 'queued') as "jobs_queued!",
            (select count(*) from jobs j where j.cluster_id = c.id
                and j.phase in ('starting', 'running', 'stopping')) as "jobs_active!"
        from clusters c
        where c.deleted_at is null and ($2::uuid is null or c.id = $2) and ($3::text is null or c.name > $3)
            and ($1::uuid[] is null or exists (
                select from cluster_grants g where g.cluster_id = c.id and g.team_id = any($1)))
        order by c.name limit $4"#,
        teams.as_deref(),
        one.map(|one| one.0),
        after,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            let id = ClusterId(row.id);
            Ok(Cluster {
                id,
                name: row.name,
                provider: word("clusters", id, &row.provider)?,
                phase: row.phase,
                reason: row.reason,
                message: row.message,
                facts: row.facts,
                stale_since: row.stale_since,
                observed_at: row.observed_at,
                created_at: row.created_at,
                updated_at: row.updated_at,
                nodes: row.nodes,
                nodes_ready: row.nodes_ready,
                jobs_queued: row.jobs_queued,
                jobs_active: row.jobs_active,
            })
        })
        .collect()
}

pub async fn list(db: &Db, scope: &Scope, after: Option<&str>, limit: i64) -> Result<Vec<Cluster>, DbError> {
    select(db, scope, None, after, limit).await
}

pub async fn get(db: &Db, scope: &Scope, id: ClusterId) -> Result<Cluster, DbError> {
    select(db, scope, Some(id), None, 1)
        .await?
        .pop()
        .ok_or(DbError::NotFound)
}

/// A cluster's id by its name, among those that the scope may see.
pub async fn by_name(db: &Db, scope: &Scope, name: &str) -> Result<Option<ClusterId>, DbError> {
    let teams = scope.teams();
    let id = sqlx::query_scalar!(
        r#"/* clusters_read::by_name */
        select c.id from clusters c
        where c.name = $1 and c.deleted_at is null and ($2::uuid[] is null or exists (
            select from cluster_grants g where g.cluster_id = c.id and g.team_id = any($2)))"#,
        name,
        teams.as_deref()
    )
    .fetch_optional(&db.pool)
    .await?;
    Ok(id.map(ClusterId))
}

/// Which team may use a cluster, and how freely.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Grant {
    pub team: TeamRef,
    pub namespace: Option<String>,
    pub queue: Option<String>,
    /// `use` or `privileged`.
    pub level: String,
    pub created_at: DateTime<Utc>,
}

/// A cluster's grants: all for an admin, those of their own teams for others.
pub async fn grants(db: &Db, scope: &Scope, cluster: ClusterId) -> Result<Vec<Grant>, DbError> {
    let teams = scope.teams();
    let rows = sqlx::query!(
        r#"/* clusters_read::grants */
        select g.team_id, t.name as team_name, g.namespace, g.queue, g.level, g.created_at
        from cluster_grants g join teams t on t.id = g.team_id
        where g.cluster_id = $1 and ($2::uuid[] is null or g.team_id = any($2)) order by t.name"#,
        cluster.0,
        teams.as_deref()
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Grant {
            team: TeamRef {
                id: row.team_id.into(),
                name: row.team_name,
            },
            namespace: row.namespace,
            queue: row.queue,
            level: row.level,
            created_at: row.created_at,
        })
        .collect())
}

/// A cluster that a team may use, and on what terms.
#[derive(Debug, Clone)]
pub struct Granted {
    pub cluster: ClusterId,
    pub name: String,
    pub namespace: Option<String>,
    pub queue: Option<String>,
    /// `use` or `privileged`.
    pub level: String,
    pub created_at: DateTime<Utc>,
}

/// The clusters of a team that the scope was found to see, by name.
pub async fn granted(db: &Db, team: TeamId) -> Result<Vec<Granted>, DbError> {
    Ok(sqlx::query_as!(
        Granted,
        r#"/* clusters_read::granted */
        select g.cluster_id as cluster, c.name, g.namespace, g.queue, g.level, g.created_at
        from cluster_grants g join clusters c on c.id = g.cluster_id
        where g.team_id = $1 and c.deleted_at is null order by c.name"#,
        team.0
    )
    .fetch_all(&db.pool)
    .await?)
}

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NodePool {
    pub id: NodePoolId,
    pub name: String,
    #[schema(value_type = Object)]
    pub spec: Value,
    pub nodes: i64,
    pub created_at: DateTime<Utc>,
}

/// The node pools of a cluster that the scope was found to see.
pub async fn node_pools(db: &Db, cluster: &Cluster) -> Result<Vec<NodePool>, DbError> {
    let rows = sqlx::query!(
        r#"/* clusters_read::node_pools */
        select p.id, p.name, p.spec, p.created_at,
            (select count(*) from nodes n where n.node_pool_id = p.id and n.gone_at is null) as "nodes!"
        from node_pools p where p.cluster_id = $1 and p.deleted_at is null order by p.name"#,
        cluster.id.0
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| NodePool {
            id: row.id.into(),
            name: row.name,
            spec: row.spec,
            nodes: row.nodes,
            created_at: row.created_at,
        })
        .collect())
}
