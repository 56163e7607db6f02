//! What is of use for a time only, removed by age, a bounded batch at a time. Each function answers how many rows went;
//! as many as [`BATCH`]: there may be more. Doing one of these twice, or in two processes at once, does no harm.
//!
//! What lies in partitions is dropped with them: see [`super::partitions`]; logs: see [`super::logs::keep`].

use chrono::{DateTime, Utc};

use super::{Db, DbError};

/// So many rows are removed by one statement, so that none runs for long.
pub const BATCH: u64 = 5_000;

/// Keys under which a repeated request gets the answer of the first.
pub async fn idempotency_keys(db: &Db, made_before: DateTime<Utc>) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"/* upkeep::idempotency_keys */
        delete from idempotency_keys where (actor_id, route, key) in (
            select actor_id, route, key from idempotency_keys where created_at < $1 order by created_at limit $2
            for update skip locked)"#,
        made_before,
        BATCH as i64
    );
    Ok(done.execute(&db.pool).await?.rows_affected())
}

/// Values of secrets that were replaced or deleted, once nothing that may have been given them is left to print them: no
/// attempt of their team that was admitted before then and still has processes or output to store. The row stays.
pub async fn replaced_secrets(db: &Db, replaced_before: DateTime<Utc>) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"/* upkeep::replaced_secrets */
        update secrets set ciphertext = '' where id in (
            select s.id from secrets s
            where s.deleted_at < $1 and s.ciphertext <> '' and not exists (
                select from attempts a join jobs j on j.id = a.job_id
                where a.released_at is null and j.team_id = s.team_id
                    -- One that was being started just then may have read it before.
                    and a.admitted_at <= s.deleted_at + interval '1 minute')
            limit $2 for update skip locked)"#,
        replaced_before,
        BATCH as i64
    );
    Ok(done.execute(&db.pool).await?.rows_affected())
}

/// Workers that were killed left without a word. One that only slept writes its row anew when it wakes.
pub async fn silent_workers(db: &Db, silent_since: DateTime<Utc>) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"/* upkeep::silent_workers */ delete from workers where heartbeat_at < $1"#,
        silent_since
    );
    Ok(done.execute(&db.pool).await?.rows_affected())
}

/// Marks of people who read logs live and went.
pub async fn log_follows(db: &Db, until: DateTime<Utc>) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"/* upkeep::log_follows */
        delete from log_follows where job_id in (
            select job_id from log_follows where until_at < $1 limit $2 for update skip locked)"#,
        until,
        BATCH as i64
    );
    Ok(done.execute(&db.pool).await?.rows_affected())
}

/// Points of nodes' series. Nodes live on, so their ranges are never over.
pub async fn node_metrics(db: &Db, before: DateTime<Utc>) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"/* upkeep::node_metrics */
        delete from metric_chunks m using (
            select class, owner_id, attempt, series, role, index, seq from metric_chunks
            where class = 'installation' and last_at < $1 order by last_at limit $2 for update skip locked
        ) old
        where m.class = 'installation' and m.owner_id = old.owner_id and m.attempt = old.attempt
            and m.series = old.series and m.role = old.role and m.index = old.index and m.seq = old.seq"#,
        before,
        BATCH as i64
    );
    Ok(done.execute(&db.pool).await?.rows_affected())
}

/// Events of nodes and clusters, likewise. The newest of each stays, since the next number follows from it in readers'
/// eyes; readers of the feed that stand before what went begin anew.
pub async fn installation_events(db: &Db, before: DateTime<Utc>) -> Result<u64, DbError> {
    let removed = sqlx::query_scalar!(
        r#"/* upkeep::installation_events */
        with old as (
            select e.owner_id, e.seq, e.feed_position from events e
            where e.class = 'installation' and e.at < $1 and e.feed_position is not null
                and exists (select from events n where n.class = 'installation' and n.owner_id = e.owner_id and n.seq > e.seq)
            order by e.at limit $2
        ), noted as (
            update installation set feed_pruned = greatest(feed_pruned, (select max(feed_position) from old))
            where exists (select from old)
        ), gone as (
            delete from events e using old
            where e.class = 'installation' and e.owner_id = old.owner_id and e.seq = old.seq
            returning 1
        )
        select count(*) as "removed!" from gone"#,
        before,
        BATCH as i64
    );
    Ok(removed.fetch_one(&db.pool).await? as u64)
}

/// Checks that were answered long ago.
pub async fn answered_checks(db: &Db, answered_before: DateTime<Utc>) -> Result<u64, DbError> {
    let done = sqlx::query!(
        r#"/* upkeep::answered_checks */
        delete from checks where id in (
            select id from checks where answered_at < $1 limit $2 for update skip locked)"#,
        answered_before,
        BATCH as i64
    );
    Ok(done.execute(&db.pool).await?.rows_affected())
}
