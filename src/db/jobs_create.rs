//! Creating jobs, many with one statement: rows, first events, first usage intervals, audit, idempotency keys and each
//! job's own task. Either all of it is there afterwards or none.
//!
//! Deliberately absent: notifications, and the poke of the task that places or admits. Either one inside this
//! transaction would put every create of every server in one line; the caller sends both afterwards. Should it die
//! before, the job's own task is due after [`OWN_LOOK`] and pokes.

use std::collections::BTreeMap;

use chrono::{DateTime, Duration, Utc};
use sqlx::types::Json;
use trainyard_core::model::{AuditId, ClusterId, JobId, Provider, TeamId, TokenId, UserId};
use uuid::Uuid;

use super::{Db, DbError, word};

/// A job that was checked and may be written.
#[derive(Debug, Clone)]
pub struct NewJob {
    pub id: JobId,
    pub audit: AuditId,
    pub team: TeamId,
    pub owner: UserId,
    pub token: Option<TokenId>,
    pub request: String,
    pub name: String,
    pub labels: BTreeMap<String, String>,
    /// The clean document as JSON text.
    pub document: String,
    pub retention: &'static str,
    pub priority: i32,
    pub queue: Option<String>,
    pub cluster_wanted: Option<String>,
    pub cluster: Option<ClusterId>,
    pub replicas: i32,
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpus: i32,
    pub total_steps: Option<i64>,
    pub origin: Option<Origin>,
    pub reason: &'static str,
    pub message: String,
    pub event_message: String,
    pub key: Option<Key>,
}

/// Where a job came from, when it came from another one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Origin {
    pub how: &'static str,
    pub job: JobId,
}

/// An idempotency key with what it was used for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    pub route: &'static str,
    pub key: String,
    pub digest: [u8; 32],
}

/// What a key in use says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Replay {
    /// The same request was answered before: this is its job.
    Same { job: JobId, created_at: DateTime<Utc> },
    /// The key was used for another body.
    Other,
}

/// How long an idempotency key is remembered.
pub const KEY_LIFE: Duration = Duration::hours(24);

/// When a new job's own task is due, if nothing pokes it before.
pub const OWN_LOOK: Duration = Duration::seconds(1);

/// Writes all of them or none. Two jobs of one call must not share an idempotency key.
/// Answers for each job whether it was written; one that was not had a key that is in use, see [`replay`].
pub async fn insert(db: &Db, jobs: &[&NewJob], now: DateTime<Utc>) -> Result<Vec<bool>, DbError> {
    let columns = Columns::of(jobs);
    let mut creator = db.creator().await?;
    let written: sqlx::Result<Vec<Uuid>> = sqlx::query_scalar!(
        r#"/* jobs_create::insert */
        with wanted as (
            select * from unnest(
                $1::uuid[], $2::uuid[], $3::uuid[], $4::uuid[], $5::uuid[], $6::text[], $7::text[], $8::jsonb[],
                $9::text[], $10::text[], $11::int[], $12::text[], $13::text[], $14::uuid[], $15::int[], $16::bigint[],
                $17::bigint[], $18::int[], $19::bigint[], $20::text[], $21::uuid[], $22::text[], $23::text[],
                $24::text[], $25::text[], $26::text[], $27::bytea[]
            ) as wanted (id, audit_id, team_id, owner_id, token_id, request_id, name, labels, document, retention,
                priority, queue, cluster_wanted, cluster_id, replicas, cpu_milli, memory_bytes, gpus, total_steps,
                origin, origin_job_id, reason, message, event_message, route, key, digest)
        ), keyed as (
            insert into idempotency_keys as k (actor_id, route, key, body_digest, subject_id, created_at)
            select owner_id, route, key, digest, id, $28 from wanted where key is not null
            -- One order for everybody, here and below, so that two batches never wait for each other in a circle.
            order by owner_id, route, key
            on conflict (actor_id, route, key) do update
                set body_digest = excluded.body_digest, subject_id = excluded.subject_id, created_at = excluded.created_at
                where k.created_at <= $29
            returning subject_id
        ), fresh as (
            select * from wanted where key is null or id in (select subject_id from keyed)
        ), written as (
            insert into jobs (id, team_id, owner_id, name, labels, document, retention, wanted, phase, reason, message,
                priority, queue, cluster_wanted, cluster_id, replicas, cpu_milli, memory_bytes, gpus, event_seq,
                total_steps, origin, origin_job_id, created_at, queued_at)
            select id, team_id, owner_id, name, labels, document, retention, 'run', 'queued', reason, message,
                priority, queue, cluster_wanted, cluster_id, replicas, cpu_milli, memory_bytes, gpus, 1,
                total_steps, origin, origin_job_id, $28, $28
            from fresh
            returning id
        ), told as (
            insert into events (class, owner_id, seq, owner_kind, team_id, at, kind, actor_id, message)
            select retention, id, 1, 'job', team_id, $28, 'job.created', owner_id, event_message from fresh
        ), counted as (
            insert into usage_intervals (job_id, seq, attempt, phase, from_at, replicas, cpu_milli, memory_bytes, gpus)
            select id, 1, 0, 'queued', $28, replicas, cpu_milli, memory_bytes, gpus from fresh
        ), audited as (
            insert into audit (class, id, at, actor_id, token_id, action, subject_kind, subject_id, team_id, request_id)
            select 'installation', audit_id, $28, owner_id, token_id, 'job.create', 'job', id, team_id, request_id
            from fresh
        ), poked as (
            insert into tasks (kind, subject_id, wake_at, created_at) select 'job', id, $30, $28 from fresh
        )
        select id from written"#,
        &columns.id,
        &columns.audit,
        &columns.team,
        &columns.owner,
        &columns.token as &[Option<Uuid>],
        &columns.request,
        &columns.name,
        &columns.labels as &[Json<&BTreeMap<String, String>>],
        &columns.document,
        &columns.retention,
        &columns.priority,
        &columns.queue as &[Option<String>],
        &columns.cluster_wanted as &[Option<String>],
        &columns.cluster as &[Option<Uuid>],
        &columns.replicas,
        &columns.cpu_milli,
        &columns.memory_bytes,
        &columns.gpus,
        &columns.total_steps as &[Option<i64>],
        &columns.origin as &[Option<String>],
        &columns.origin_job as &[Option<Uuid>],
        &columns.reason,
        &columns.message,
        &columns.event_message,
        &columns.route as &[Option<String>],
        &columns.key as &[Option<String>],
        &columns.digest as &[Option<Vec<u8>>],
        now,
        now - KEY_LIFE,
        now + OWN_LOOK
    )
    .fetch_all(&mut *creator)
    .await;
    let written = creator.done(written)?;

    Ok(jobs.iter().map(|job| written.contains(&job.id.0)).collect())
}

/// What the holder of a key was answered.
pub async fn replay(db: &Db, actor: UserId, key: &Key) -> Result<Replay, DbError> {
    let row = sqlx::query!(
        r#"/* jobs_create::replay */
        select body_digest, subject_id, created_at from idempotency_keys
        where actor_id = $1 and route = $2 and key = $3"#,
        actor.0,
        key.route,
        key.key
    )
    .fetch_one(&db.pool)
    .await?;
    Ok(if row.body_digest == key.digest {
        Replay::Same {
            job: row.subject_id.into(),
            created_at: row.created_at,
        }
    } else {
        Replay::Other
    })
}

/// The batch turned on its side: one array per column.
#[derive(Default)]
struct Columns<'a> {
    id: Vec<Uuid>,
    audit: Vec<Uuid>,
    team: Vec<Uuid>,
    owner: Vec<Uuid>,
    token: Vec<Option<Uuid>>,
    request: Vec<String>,
    name: Vec<String>,
    labels: Vec<Json<&'a BTreeMap<String, String>>>,
    document: Vec<String>,
    retention: Vec<String>,
    priority: Vec<i32>,
    queue: Vec<Option<String>>,
    cluster_wanted: Vec<Option<String>>,
    cluster: Vec<Option<Uuid>>,
    replicas: Vec<i32>,
    cpu_milli: Vec<i64>,
    memory_bytes: Vec<i64>,
    gpus: Vec<i32>,
    total_steps: Vec<Option<i64>>,
    origin: Vec<Option<String>>,
    origin_job: Vec<Option<Uuid>>,
    reason: Vec<String>,
    message: Vec<String>,
    event_message: Vec<String>,
    route: Vec<Option<String>>,
    key: Vec<Option<String>>,
    digest: Vec<Option<Vec<u8>>>,
}

impl<'a> Columns<'a> {
    fn of(jobs: &[&'a NewJob]) -> Self {
        let mut columns = Self::default();
        for job in jobs {
            columns.id.push(job.id.0);
            columns.audit.push(job.audit.0);
            columns.team.push(job.team.0);
            columns.owner.push(job.owner.0);
            columns.token.push(job.token.map(|token| token.0));
            columns.request.push(job.request.clone());
            columns.name.push(job.name.clone());
            columns.labels.push(Json(&job.labels));
            columns.document.push(job.document.clone());
            columns.retention.push(job.retention.to_owned());
            columns.priority.push(job.priority);
            columns.queue.push(job.queue.clone());
            columns.cluster_wanted.push(job.cluster_wanted.clone());
            columns.cluster.push(job.cluster.map(|cluster| cluster.0));
            columns.replicas.push(job.replicas);
            columns.cpu_milli.push(job.cpu_milli);
            columns.memory_bytes.push(job.memory_bytes);
            columns.gpus.push(job.gpus);
            columns.total_steps.push(job.total_steps);
            columns.origin.push(job.origin.map(|origin| origin.how.to_owned()));
            columns.origin_job.push(job.origin.map(|origin| origin.job.0));
            columns.reason.push(job.reason.to_owned());
            columns.message.push(job.message.clone());
            columns.event_message.push(job.event_message.clone());
            columns.route.push(job.key.as_ref().map(|key| key.route.to_owned()));
            columns.key.push(job.key.as_ref().map(|key| key.key.clone()));
            columns.digest.push(job.key.as_ref().map(|key| key.digest.to_vec()));
        }
        columns
    }
}

/// What a document refers to, looked up in one go. Asked only for documents that refer to anything.
#[derive(Debug, Clone, Default)]
pub struct References {
    /// The cluster of that name, if it exists.
    pub cluster: Option<ClusterId>,
    /// The team may use it.
    pub granted: bool,
    /// The clusters that the team may use, by name.
    pub usable: Vec<String>,
    /// What the job may run on: the kind of the cluster of that name, or of all that the team may use.
    pub providers: Vec<Provider>,
    /// Secrets that exist, with their keys.
    pub secrets: BTreeMap<String, Vec<String>>,
    /// The uploaded code is there and the team's own.
    pub code: bool,
}

pub async fn references(
    db: &Db,
    team: TeamId,
    cluster: Option<&str>,
    secrets: &[String],
    code: Option<&str>,
) -> Result<References, DbError> {
    let row = sqlx::query!(
        r#"/* jobs_create::references */
        select
            (select id from clusters where name = $2 and deleted_at is null) as "cluster?",
            coalesce((select array_agg(c.name order by c.name) from clusters c
                join cluster_grants g on g.cluster_id = c.id
                where g.team_id = $1 and c.deleted_at is null), '{}') as "usable!: Vec<String>",
            coalesce((select array_agg(distinct c.provider) from clusters c
                join cluster_grants g on g.cluster_id = c.id
                where g.team_id = $1 and c.deleted_at is null and ($2::text is null or c.name = $2)), '{}')
                as "providers!: Vec<String>",
            coalesce((select jsonb_object_agg(name, to_jsonb(keys)) from (
                select distinct on (name) name, keys, deleted_at from secrets
                where team_id = $1 and name = any($3) order by name, version desc
            ) newest where deleted_at is null), '{}') as "secrets!: Json<BTreeMap<String, Vec<String>>>",
            exists (select from code_archives where digest = $4 and team_id = $1) as "code!""#,
        team.0,
        cluster,
        secrets,
        code
    )
    .fetch_one(&db.pool)
    .await?;
    Ok(References {
        granted: cluster.is_some_and(|name| row.usable.iter().any(|usable| usable == name)),
        cluster: row.cluster.map(ClusterId),
        usable: row.usable,
        providers: (row.providers.iter())
            .map(|provider| word("clusters", team, provider))
            .collect::<Result<_, _>>()?,
        secrets: row.secrets.0,
        code: row.code,
    })
}
