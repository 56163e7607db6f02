//! What only pages ask: counts of a few, the cells of a grid, why a page's jobs wait, whether anything changed at all.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use trainyard_core::{
    model::{ClusterId, JobId, NodeId},
    plan::admit::NotYet,
};

use super::{Db, DbError, Scope, clusters_read::Cluster, jobs_read::Home};

/// Beyond this, counting is not cheap any more and a page says "more than".
pub const COUNTED: i64 = 10_000;

/// How many jobs are in each phase that has not ended, and how many failed lately. Each stops at [`COUNTED`] + 1.
pub async fn open_jobs(db: &Db, scope: &Scope, since: DateTime<Utc>) -> Result<BTreeMap<String, i64>, DbError> {
    let teams = scope.teams();
    let rows = sqlx::query!(
        r#"/* page_reads::open_jobs */
        with scope (team) as (select id from teams where $1::uuid[] is null or id = any($1))
        select p.phase as "phase!", (
            -- Team by team, since that is how the index is ordered: without it an admin's page would read all jobs.
            select count(*) from (
                select from scope s cross join lateral (
                    select from jobs j where j.team_id = s.team and j.phase = p.phase and j.deleted_at is null limit $2) l
                limit $2) counted) as "count!"
        from unnest(array['queued', 'starting', 'running', 'stopping', 'suspended']) p (phase)
        union all
        select 'failed', (
            select count(*) from (
                select from scope s cross join lateral (
                    select from jobs j
                    where j.team_id = s.team and j.phase = 'failed' and j.deleted_at is null and j.ended_at >= $3
                    limit $2) l
                limit $2) counted)"#,
        teams.as_deref(),
        COUNTED + 1,
        since
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(|row| (row.phase, row.count)).collect())
}

/// What a list shows of a job beside its record.
#[derive(Debug, Clone, Default)]
pub struct Aside {
    /// What admission said last, if it waits.
    pub not_yet: Option<NotYet>,
    /// Replicas of the newest attempt that run.
    pub running: i64,
    /// What is wrong with it while it runs, the worst first: the conditions' names.
    pub troubles: Vec<String>,
    /// One of them is critical.
    pub critical: bool,
    /// Seconds that its attempts took together.
    pub ran: f64,
    /// The end of the newest attempt, unless that is still open.
    pub attempt_ended_at: Option<DateTime<Utc>>,
}

/// For jobs that the scope was found to see.
pub async fn asides(db: &Db, jobs: &[JobId], now: DateTime<Utc>) -> Result<BTreeMap<JobId, Aside>, DbError> {
    let ids: Vec<uuid::Uuid> = jobs.iter().map(|job| job.0).collect();
    let rows = sqlx::query!(
        r#"/* page_reads::asides */
        select j.id, case when j.phase in ('queued', 'suspended') then j.why end as why,
            case when j.phase in ('starting', 'running', 'stopping') then (
                select count(*) from attempts a join replicas r on r.attempt_id = a.id
                where a.job_id = j.id and a.number = j.attempt and r.phase = 'running') else 0 end as "running!",
            coalesce(k.troubles, '{}') as "troubles!", coalesce(k.critical, false) as "critical!",
            coalesce(t.ran, 0)::float8 as "ran!", t.ended_at as "ended_at?"
        from jobs j
            cross join lateral (
                select array_agg(c.type order by c.severity = 'critical' desc, c.since) as troubles,
                    bool_or(c.severity = 'critical') as critical
                from conditions c
                where c.subject_kind = 'job' and c.subject_id = j.id and c.status = 'true' and c.severity <> 'info'
                    and j.phase in ('starting', 'running', 'stopping')) k
            cross join lateral (
                select sum(greatest(extract(epoch from coalesce(a.ended_at, $2) - a.admitted_at), 0)) as ran,
                    max(a.ended_at) filter (where a.number = j.attempt) as ended_at
                from attempts a where a.job_id = j.id) t
        where j.id = any($1)"#,
        &ids,
        now
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let not_yet = row.why.and_then(|why| serde_json::from_value(why).ok());
            (
                JobId(row.id),
                Aside {
                    not_yet,
                    running: row.running,
                    troubles: row.troubles,
                    critical: row.critical,
                    ran: row.ran,
                    attempt_ended_at: row.ended_at,
                },
            )
        })
        .collect())
}

/// How many incarnations each replica of an attempt had.
pub async fn incarnations(db: &Db, home: &Home, attempt: i32) -> Result<BTreeMap<(String, i32), i64>, DbError> {
    let rows = sqlx::query!(
        r#"/* page_reads::incarnations */
        select i.role, i.index, count(*) as "count!"
        from incarnations i join attempts a on a.id = i.attempt_id
        where a.job_id = $1 and a.number = $2 group by i.role, i.index"#,
        home.id.0,
        attempt
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(|row| ((row.role, row.index), row.count)).collect())
}

/// Changes whenever a job's page may look different, and costs one row.
pub async fn pulse(db: &Db, scope: &Scope, job: JobId) -> Result<(i64, i64, Option<i64>), DbError> {
    let teams = scope.teams();
    let row = sqlx::query!(
        r#"/* page_reads::pulse */
        select event_seq, generation, step from jobs
        where id = $1 and deleted_at is null and ($2::uuid[] is null or team_id = any($2))"#,
        job.0,
        teams.as_deref()
    )
    .fetch_one(&db.pool)
    .await?;
    Ok((row.event_seq, row.generation, row.step))
}

/// A node as a cell of the grid, or a row of the table.
#[derive(Debug, Clone)]
pub struct Cell {
    pub id: NodeId,
    pub name: String,
    pub cluster: String,
    pub pool: Option<String>,
    pub phase: String,
    pub message: String,
    pub stale_since: Option<DateTime<Utc>>,
    pub observed_at: DateTime<Utc>,
    /// Conditions that hold and should not, and those of them that are critical.
    pub troubles: i64,
    pub critical: i64,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpus: i64,
}

/// Every node that the scope may see, at most `limit`.
pub async fn cells(db: &Db, scope: &Scope, cluster: Option<ClusterId>, limit: i64) -> Result<Vec<Cell>, DbError> {
    let teams = scope.teams();
    Ok(sqlx::query_as!(
        Cell,
        r#"/* page_reads::cells */
        select n.id, n.name, c.name as cluster, p.name as "pool?", n.phase, n.message, n.stale_since, n.observed_at,
            coalesce(k.troubles, 0) as "troubles!", coalesce(k.critical, 0) as "critical!",
            coalesce((n.allocatable ->> 'cpu_milli')::bigint, 0) as "cpu_milli!",
            coalesce((n.allocatable ->> 'memory_bytes')::bigint, 0) as "memory_bytes!",
            coalesce((n.allocatable ->> 'gpus')::bigint, 0) as "gpus!"
        from nodes n join clusters c on c.id = n.cluster_id left join node_pools p on p.id = n.node_pool_id
            left join (
                select subject_id, count(*) as troubles, count(*) filter (where severity = 'critical') as critical
                from conditions
                where subject_kind = 'node' and status = 'true' and severity <> 'info' group by subject_id
            ) k on k.subject_id = n.id
        where n.gone_at is null and c.deleted_at is null and ($2::uuid is null or n.cluster_id = $2)
            and ($1::uuid[] is null or exists (
                select from cluster_grants g where g.cluster_id = n.cluster_id and g.team_id = any($1)))
        order by c.name, p.name nulls last, n.name limit $3"#,
        teams.as_deref(),
        cluster.map(|cluster| cluster.0),
        limit
    )
    .fetch_all(&db.pool)
    .await?)
}

/// What the worst condition of each of some nodes says, where one holds that should not.
pub async fn worst_on(db: &Db, nodes: &[NodeId]) -> Result<BTreeMap<NodeId, String>, DbError> {
    let ids: Vec<uuid::Uuid> = nodes.iter().map(|node| node.0).collect();
    let rows = sqlx::query!(
        r#"/* page_reads::worst_on */
        select distinct on (subject_id) subject_id, message from conditions
        where subject_kind = 'node' and subject_id = any($1) and status = 'true' and severity <> 'info'
        order by subject_id, severity = 'critical' desc, since"#,
        &ids
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| (NodeId(row.subject_id), row.message))
        .collect())
}

/// How many replicas hold room on each of some nodes.
pub async fn replicas_on(db: &Db, nodes: &[NodeId]) -> Result<BTreeMap<NodeId, i64>, DbError> {
    let ids: Vec<uuid::Uuid> = nodes.iter().map(|node| node.0).collect();
    let rows = sqlx::query!(
        r#"/* page_reads::replicas_on */
        select node_id as "node!", count(*) as "count!" from replicas
        where node_id = any($1) and phase in ('waiting', 'starting', 'running') group by node_id"#,
        &ids
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows.into_iter().map(|row| (NodeId(row.node), row.count)).collect())
}

/// The node whose id ends so; the short address of a cell carries the last ten hexadecimal digits.
pub async fn node_by_tail(db: &Db, scope: &Scope, tail: &str) -> Result<NodeId, DbError> {
    let teams = scope.teams();
    let id = sqlx::query_scalar!(
        r#"/* page_reads::node_by_tail */
        select n.id from nodes n
        where right(n.id::text, 10) = $1 and ($2::uuid[] is null or exists (
            select from cluster_grants g where g.cluster_id = n.cluster_id and g.team_id = any($2)))
        order by n.gone_at desc nulls first limit 1"#,
        tail,
        teams.as_deref()
    )
    .fetch_one(&db.pool)
    .await?;
    Ok(NodeId(id))
}

/// A job in a cluster's queue.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// From 1, over all teams.
    pub place: i64,
    pub id: JobId,
    pub name: String,
    pub team: String,
    pub priority: i32,
    pub replicas: i32,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpus: i32,
    pub queued_at: DateTime<Utc>,
    pub not_yet: Option<NotYet>,
}

/// The front of a queue, as far as the scope may see it.
pub async fn queue(db: &Db, scope: &Scope, cluster: &Cluster, limit: i64) -> Result<Vec<Waiting>, DbError> {
    let teams = scope.teams();
    let rows = sqlx::query!(
        r#"/* page_reads::queue */
        select q.place as "place!", j.id, j.name, t.name as team, j.priority, j.replicas, j.cpu_milli, j.memory_bytes,
            j.gpus, j.queued_at, j.why
        from (
            select id, row_number() over (order by priority desc, queued_at, id) as place from jobs
            where cluster_id = $1 and phase = 'queued' and deleted_at is null
            order by priority desc, queued_at, id limit 1000
        ) q join jobs j on j.id = q.id join teams t on t.id = j.team_id
        where $2::uuid[] is null or j.team_id = any($2)
        order by q.place limit $3"#,
        cluster.id.0,
        teams.as_deref(),
        limit
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| Waiting {
            place: row.place,
            id: row.id.into(),
            name: row.name,
            team: row.team,
            priority: row.priority,
            replicas: row.replicas,
            cpu_milli: row.cpu_milli,
            memory_bytes: row.memory_bytes,
            gpus: row.gpus,
            queued_at: row.queued_at,
            not_yet: row.why.and_then(|why| serde_json::from_value(why).ok()),
        })
        .collect())
}

/// What is free on a cluster's ready nodes: what they have, less what attempts hold.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub cpu_milli: i64,
    pub cpu_milli_free: i64,
    pub memory_bytes: i64,
    pub memory_bytes_free: i64,
    pub gpus: i64,
    pub gpus_free: i64,
}

/// For clusters that the scope was found to see.
pub async fn rooms(db: &Db, clusters: &[ClusterId]) -> Result<BTreeMap<ClusterId, Room>, DbError> {
    let ids: Vec<uuid::Uuid> = clusters.iter().map(|cluster| cluster.0).collect();
    let rows = sqlx::query!(
        r#"/* page_reads::rooms */
        select c.id as "id!", n.cpu as "cpu!", n.memory as "memory!", n.gpus as "gpus!",
            n.cpu - h.cpu as "cpu_free!", n.memory - h.memory as "memory_free!", n.gpus - h.gpus as "gpus_free!"
        from unnest($1::uuid[]) c (id), lateral (
            select coalesce(sum((allocatable ->> 'cpu_milli')::bigint), 0)::bigint as cpu,
                coalesce(sum((allocatable ->> 'memory_bytes')::bigint), 0)::bigint as memory,
                coalesce(sum((allocatable ->> 'gpus')::bigint), 0)::bigint as gpus
            from nodes where cluster_id = c.id and gone_at is null and phase = 'ready') n, lateral (
            select coalesce(sum(cpu_milli), 0)::bigint as cpu, coalesce(sum(memory_bytes), 0)::bigint as memory,
                coalesce(sum(gpus), 0)::bigint as gpus
            from jobs where cluster_id = c.id and phase in ('starting', 'running', 'stopping')) h"#,
        &ids
    )
    .fetch_all(&db.pool)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let room = Room {
                cpu_milli: row.cpu,
                cpu_milli_free: row.cpu_free.max(0),
                memory_bytes: row.memory,
                memory_bytes_free: row.memory_free.max(0),
                gpus: row.gpus,
                gpus_free: row.gpus_free.max(0),
            };
            (ClusterId(row.id), room)
        })
        .collect())
}

/// Nodes and clusters whose name has a text in it: (is a node, id, name, phase).
pub async fn named(db: &Db, scope: &Scope, text: &str, limit: i64) -> Result<Vec<Named>, DbError> {
    let teams = scope.teams();
    Ok(sqlx::query_as!(
        Named,
        r#"/* page_reads::named */
        (select true as "is_node!", n.id as "id!", n.name as "name!", n.phase as "phase!" from nodes n
         where n.gone_at is null and strpos(lower(n.name), lower($1)) > 0 and ($2::uuid[] is null or exists (
            select from cluster_grants g where g.cluster_id = n.cluster_id and g.team_id = any($2)))
         order by n.name limit $3)
        union all
        (select false, c.id, c.name, c.phase from clusters c
         where c.deleted_at is null and strpos(lower(c.name), lower($1)) > 0 and ($2::uuid[] is null or exists (
            select from cluster_grants g where g.cluster_id = c.id and g.team_id = any($2)))
         order by c.name limit $3)"#,
        text,
        teams.as_deref(),
        limit
    )
    .fetch_all(&db.pool)
    .await?)
}

/// What a node on which a job ran went through.
#[derive(Debug, Clone)]
pub struct NodePast {
    pub name: String,
    pub stale_since: Option<DateTime<Utc>>,
    /// Changes of its phase and its conditions, the newest first.
    pub changes: Vec<Event>,
}

/// The pasts of the nodes that a job's replicas were on, up to a moment: at most 500 nodes with the last 50 changes each.
pub async fn nodes_of_job(db: &Db, home: &Home, until: DateTime<Utc>) -> Result<Vec<NodePast>, DbError> {
    let rows = sqlx::query!(
        r#"/* page_reads::nodes_of_job */
        select n.id, n.name, n.stale_since, e.seq as "seq?", e.at as "at?", e.kind as "kind?", e.message as "message?",
            e.data as "data?"
        from (select distinct node_id from replicas where job_id = $1 and node_id is not null limit 500) r
            join nodes n on n.id = r.node_id
            left join lateral (
                select seq, at, kind, message, data from events
                where class = 'installation' and owner_id = n.id and at <= $2
                    and kind in ('node.phase', 'condition.changed')
                order by seq desc limit 50) e on true
        order by n.name, n.id, e.seq desc"#,
        home.id.0,
        until
    )
    .fetch_all(&db.pool)
    .await?;
    let mut nodes: Vec<NodePast> = Vec::new();
    let mut id = None;
    for row in rows {
        let change = (row.seq.zip(row.at).zip(row.kind).zip(row.message).zip(row.data)).map(
            |((((seq, at), kind), message), data)| Event {
                seq,
                at,
                kind,
                actor: None,
                message,
                data,
            },
        );
        if id.replace(row.id) != Some(row.id) {
            nodes.push(NodePast {
                name: row.name,
                stale_since: row.stale_since,
                changes: Vec::new(),
            });
        }
        if let Some(last) = nodes.last_mut() {
            last.changes.extend(change);
        }
    }
    Ok(nodes)
}

#[derive(Debug, Clone)]
pub struct Named {
    pub is_node: bool,
    pub id: uuid::Uuid,
    pub name: String,
    pub phase: String,
}

/// An event with its actor's name.
#[derive(Debug, Clone)]
pub struct Event {
    pub seq: i64,
    pub at: DateTime<Utc>,
    pub kind: String,
    /// `None`: Trainyard itself.
    pub actor: Option<String>,
    pub message: String,
    pub data: serde_json::Value,
}

/// Events of a job that the scope was found to see, before a number, the newest first.
pub async fn job_events(db: &Db, home: &Home, before: Option<i64>, limit: i64) -> Result<Vec<Event>, DbError> {
    events(db, &home.class, home.id.0, before, limit).await
}

/// Events of a node or a cluster that the scope was found to see, the newest first.
pub async fn installation_events(db: &Db, owner: uuid::Uuid, limit: i64) -> Result<Vec<Event>, DbError> {
    events(db, "installation", owner, None, limit).await
}

async fn events(
    db: &Db,
    class: &str,
    owner: uuid::Uuid,
    before: Option<i64>,
    limit: i64,
) -> Result<Vec<Event>, DbError> {
    Ok(sqlx::query_as!(
        Event,
        r#"/* page_reads::events */
        select e.seq, e.at, e.kind, u.name as "actor?", e.message, e.data
        from events e left join users u on u.id = e.actor_id
        where e.class = $1 and e.owner_id = $2 and ($3::bigint is null or e.seq < $3) order by e.seq desc limit $4"#,
        class,
        owner,
        before,
        limit
    )
    .fetch_all(&db.pool)
    .await?)
}
