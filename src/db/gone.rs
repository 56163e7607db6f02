//! Machines that will not come back, as a person has said. What was theirs is given to whoever is left.

use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::PgConnection;
use trainyard_core::model::{AttemptId, ClusterId, JobId, NodeId, UserId};

use super::{
    DbError,
    events::{self, NewEvent, Subject},
    holdings, jobs,
    logs::JobKey,
    tasks::{self, TaskKind},
    word,
};

/// A node that is to be declared gone, locked.
#[derive(Debug, Clone)]
pub struct Candidate {
    pub id: NodeId,
    pub name: String,
    pub cluster: ClusterId,
    pub provider: String,
    /// For a local cluster, which this node is.
    pub machine: Option<String>,
    pub observed_at: DateTime<Utc>,
    pub stale_since: Option<DateTime<Utc>>,
    pub gone_at: Option<DateTime<Utc>>,
}

pub async fn lock(tx: &mut PgConnection, node: NodeId) -> Result<Candidate, DbError> {
    let row = sqlx::query!(
        r#"/* gone::lock */
        select n.name, n.cluster_id, c.provider, c.machine_id, n.observed_at, n.stale_since, n.gone_at
        from nodes n join clusters c on c.id = n.cluster_id where n.id = $1 for update of n"#,
        node.0
    )
    .fetch_one(tx)
    .await?;
    Ok(Candidate {
        id: node,
        name: row.name,
        cluster: row.cluster_id.into(),
        provider: row.provider,
        machine: row.machine_id,
        observed_at: row.observed_at,
        stale_since: row.stale_since,
        gone_at: row.gone_at,
    })
}

/// Writes that the machine is gone, frees its work for any worker, and asks for a look at every job that it has. Answers
/// how many attempts still lived there.
pub async fn declare(
    tx: &mut PgConnection,
    node: &Candidate,
    machine: &str,
    by: UserId,
    message: &str,
    now: DateTime<Utc>,
) -> Result<usize, DbError> {
    sqlx::query!(
        r#"/* gone::declare */
        update nodes set phase = 'gone', reason = 'declared_gone', message = $2, gone_at = $3 where id = $1"#,
        node.id.0,
        message,
        now
    )
    .execute(&mut *tx)
    .await?;
    // Whoever still believes to hold the machine finds that the holding is not theirs any more.
    sqlx::query!(
        r#"/* gone::declare holdings */ delete from holdings where kind = $1 and subject_id = $2"#,
        holdings::CLUSTER,
        node.cluster.0
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        r#"/* gone::declare workers */ delete from workers where machine_id = $1"#,
        machine
    )
    .execute(&mut *tx)
    .await?;
    let live = sqlx::query_scalar!(
        r#"/* gone::declare live */
        select distinct a.job_id from attempts a join replicas r on r.attempt_id = a.id
        where a.cluster_id = $1 and (a.phase <> 'ended' or a.output_stored_at is null) and r.node_id = $2"#,
        node.cluster.0,
        node.id.0
    )
    .fetch_all(&mut *tx)
    .await?;
    sqlx::query!(
        r#"/* gone::declare tasks */
        update tasks set machine_id = null, lease_token = null, lease_worker = null, pokes = pokes + 1, wake_at = $2
        where machine_id = $1"#,
        machine,
        now
    )
    .execute(&mut *tx)
    .await?;
    tasks::poke_all(tx, TaskKind::Job, &live, None, now).await?;
    let message = format!("{} is gone: {message}", node.name);
    let data = json!({ "to": "gone", "reason": "declared_gone", "attempts": live.len() });
    let event = NewEvent {
        kind: "node.phase",
        actor: Some(by),
        message: &message,
        data,
    };
    events::append(tx, Subject::Node(node.id), event, now).await?;
    // Others may take what waits for it, unless a document wants this cluster and no other.
    super::queue::unplace(tx, node.cluster, None).await?;
    let older = sqlx::query!(
        r#"/* gone::declare older */
        select distinct a.id, a.job_id, j.retention from attempts a
        join jobs j on j.id = a.job_id join replicas r on r.attempt_id = a.id
        where a.cluster_id = $1 and a.phase = 'ended' and a.output_stored_at is null and a.number < j.attempt
            and r.node_id = $2"#,
        node.cluster.0,
        node.id.0
    );
    // Looks are at each job's newest attempt; nobody will come for these.
    for row in older.fetch_all(&mut *tx).await? {
        let key = JobKey::of_worker(JobId(row.job_id), word("jobs", row.job_id, &row.retention)?);
        give_up_output(tx, key, row.id.into(), now).await?;
    }
    Ok(live.len())
}

/// After the end of an attempt on a machine that is gone: its output is given up, and its job may go to another cluster
/// if it named none.
pub async fn give_up(
    tx: &mut PgConnection,
    key: JobKey,
    attempt: AttemptId,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    give_up_output(tx, key, attempt, now).await?;
    jobs::unplace(tx, key.job()).await
}

/// What an attempt printed and nobody stored is given up, with a gap where it would stand, and what it left is nobody's to
/// remove.
async fn give_up_output(
    tx: &mut PgConnection,
    key: JobKey,
    attempt: AttemptId,
    now: DateTime<Utc>,
) -> Result<(), DbError> {
    const REASON: &str = "its machine is gone, with what it printed from here on";
    // A flush's time is later than any before it, whatever the clocks say.
    let at = sqlx::query_scalar!(
        r#"/* gone::give_up time */
        select greatest($3, max(last_at) + interval '1 millisecond') as "at!" from log_streams
        where class = $1 and job_id = $2"#,
        key.class().as_str(),
        key.job().0,
        now
    )
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query!(
        r#"/* gone::give_up gaps */
        insert into log_chunks (class, job_id, stream_id, byte_offset, place, bytes, first_line, lines, line_start,
            first_at, last_at, sealed, codec, gap_reason, kind)
        select s.class, s.job_id, s.id, s.bytes, (
                select count(*) from log_chunks c where c.class = s.class and c.job_id = s.job_id and c.stream_id = s.id
                    and c.byte_offset = s.bytes and c.kind = 'gap'
            ), 0, s.lines, 0, s.line_start, $4, $4, true, 'raw', $5, 'gap'
        from log_streams s where s.class = $1 and s.job_id = $2 and s.attempt_id = $3 and s.ended_at is null"#,
        key.class().as_str(),
        key.job().0,
        attempt.0,
        at,
        REASON
    )
    .execute(&mut *tx)
    .await?;
    sqlx::query!(
        r#"/* gone::give_up streams */
        update log_streams set ended_at = $4, last_at = $4, first_at = coalesce(first_at, $4), ingest_state = null
        where class = $1 and job_id = $2 and attempt_id = $3 and ended_at is null"#,
        key.class().as_str(),
        key.job().0,
        attempt.0,
        at
    )
    .execute(&mut *tx)
    .await?;
    super::logs::write::output_stored(tx, &[attempt], at.timestamp_millis()).await?;
    super::attempts::settle(tx, &[attempt]).await?;
    super::attempts::released(tx, attempt, at).await
}
