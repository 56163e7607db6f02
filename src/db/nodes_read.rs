//! Nodes and what runs on them, as people see them. A team sees the nodes of the clusters that it may use.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use trainyard_core::model::{ClusterId, JobId, NodeId, NodePoolId, ReplicaPhase};
use utoipa::ToSchema;

use super::{
    Db, DbError, Scope,
    jobs_read::{ClusterRef, TeamRef},
    word,
};

#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Node {
    pub id: NodeId,
    pub name: String,
    pub cluster: ClusterRef,
    pub node_pool: Option<NodePoolId>,
    /// `ready`, `not_ready` or `gone`.
    pub phase: String,
    pub reason: String,
    pub message: String,
    #[schema(value_type = Object)]
    pub labels: Value,
    /// `cpu_milli`, `memory_bytes`, `gpus`, `pods`, and named others.
    #[schema(value_type = Object)]
    pub capacity: Value,
    #[schema(value_type = Object)]
    pub allocatable: Value,
    #[schema(value_type = Object)]
    pub facts: Value,
    /// The last sample.
    #[schema(value_type = Object)]
    pub usage: Value,
    /// Conditions that do not hold as they should.
    pub troubles: i64,
    /// Those of them that are critical.
    pub critical: i64,
    pub first_seen_at: DateTime<Utc>,
    pub observed_at: DateTime<Utc>,
    pub stale_since: Option<DateTime<Utc>>,
    pub gone_at: Option<DateTime<Utc>>,
}

/// Which nodes. Everything left out lets every node through.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct NodeFilter {
    pub cluster: Option<ClusterId>,
    pub phase: Option<String>,
    /// Nodes that went away, too.
    pub gone: bool,
}

async fn select(
    db: &Db,
    scope: &Scope,
    one: Option<NodeId>,
    filter: &NodeFilter,
    after: Option<(&str, NodeId)>,
    limit: i64,
) -> Result<Vec<Node>, DbError> {
    let teams = scope.teams();
    let (after_name, after_id) = after.map(|(name, id)| (name, id.0)).unzip();
    let rows = sqlx::query!(
        r#"/* nodes_read::select */
        select n.id, n.name, n.cluster_id, c.name as cluster_name, n.node_pool_id, n.phase, n.reason, n.message,
            n.labels, n.capacity, n.allocatable, n.facts, n.usage, n.first_seen_at, n.observed_at, n.stale_since,
            n.gone_at,
            (select count(*) from conditions k where k.subject_kind = 'node' and k.subject_id = n.id
                and k.severity <> 'info' and k.status = 'true') as "troubles!",
            (select count(*) from conditions k where k.subject_kind = 'node' and k.subject_id = n.id
                and k.severity = 'critical' and k.status = 'true') as "critical!"
        from nodes n join clusters c on c.id = n.cluster_id
        where c.deleted_at is null and ($2::uuid is null or n.id = $2) and ($3::uuid is null or n.cluster_id = $3)
            and ($4::text is null or n.phase = $4) and ($5 or n.gone_at is null)
            and ($6::text is null or (n.name, n.id) > ($6, $7))
            and ($1::uuid[] is null or exists (
                select from cluster_grants g where g.cluster_id = c.id and g.team_id = any($1)))
        order by n.name, n.id limit $8"#,
        teams.as_deref(),
        one.map(|one| one.0),
        filter.cluster.map(|cluster| cluster.0),
        filter.phase,
        filter.gone || one.is_some(),
        after_name,
        after_id,
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Node {
            id: row.id.into(),
            name: row.name,
            cluster: ClusterRef {
                id: row.cluster_id.into(),
                name: row.cluster_name,
            },
            node_pool: row.node_pool_id.map(NodePoolId),
            phase: row.phase,
            reason: row.reason,
            message: row.message,
            labels: row.labels,
            capacity: row.capacity,
            allocatable: row.allocatable,
            facts: row.facts,
            usage: row.usage,
            troubles: row.troubles,
            critical: row.critical,
            first_seen_at: row.first_seen_at,
            observed_at: row.observed_at,
            stale_since: row.stale_since,
            gone_at: row.gone_at,
        })
        .collect())
}

/// A page of nodes by name.
pub async fn list(
    db: &Db,
    scope: &Scope,
    filter: &NodeFilter,
    after: Option<(&str, NodeId)>,
    limit: i64,
) -> Result<Vec<Node>, DbError> {
    select(db, scope, None, filter, after, limit).await
}

pub async fn get(db: &Db, scope: &Scope, id: NodeId) -> Result<Node, DbError> {
    let page = select(db, scope, Some(id), &NodeFilter::default(), None, 1).await?;
    page.into_iter().next().ok_or(DbError::NotFound)
}

/// A replica that holds room on a node.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct NodeReplica {
    pub job: JobId,
    pub job_name: String,
    pub team: TeamRef,
    pub attempt: i32,
    pub role: String,
    pub index: i32,
    pub rank: i32,
    pub phase: ReplicaPhase,
    pub gpu_indices: Vec<i32>,
    pub started_at: Option<DateTime<Utc>>,
    pub step: Option<i64>,
}

/// What runs on a node that the scope was found to see: jobs of its teams only, the oldest job first.
pub async fn replicas(db: &Db, scope: &Scope, node: &Node, limit: i64) -> Result<Vec<NodeReplica>, DbError> {
    let teams = scope.teams();
    let rows = sqlx::query!(
        r#"/* nodes_read::replicas */
        select j.id as job_id, j.name as job_name, j.team_id, t.name as team_name, a.number, r.role, r.index, r.rank,
            r.phase, r.gpu_indices, r.started_at, r.step
        from replicas r join attempts a on a.id = r.attempt_id join jobs j on j.id = r.job_id
            join teams t on t.id = j.team_id
        where r.node_id = $1 and r.phase in ('waiting', 'starting', 'running')
            and ($2::uuid[] is null or j.team_id = any($2))
        order by j.id, r.rank limit $3"#,
        node.id.0,
        teams.as_deref(),
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    rows.into_iter()
        .map(|row| {
            Ok(NodeReplica {
                job: row.job_id.into(),
                job_name: row.job_name,
                team: TeamRef {
                    id: row.team_id.into(),
                    name: row.team_name,
                },
                attempt: row.number,
                phase: word("replicas", format!("{} {}", row.role, row.index), &row.phase)?,
                role: row.role,
                index: row.index,
                rank: row.rank,
                gpu_indices: row.gpu_indices,
                started_at: row.started_at,
                step: row.step,
            })
        })
        .collect()
}
