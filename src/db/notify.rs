//! Wake-ups through Postgres. A notification says where to look, never what changed, and may be lost: every listener
//! also looks by itself once a second.

use sqlx::Executor;
use uuid::Uuid;

use super::DbError;

/// Tasks are due. Payload: a machine id, or nothing.
pub const TASKS: &str = "trainyard_tasks";
/// Subjects got events. Payload: comma-separated UUIDs of the subjects.
pub const EVENTS: &str = "trainyard_events";
/// Streams got output. Payload: comma-separated UUIDs of the jobs.
pub const LOGS: &str = "trainyard_logs";
/// Somebody began to follow a job's logs. Payload: the job's UUID.
pub const FOLLOWS: &str = "trainyard_follows";
/// A token, user or membership changed: cached actors are stale. No payload.
pub const ACCESS: &str = "trainyard_access";

/// Everything that a process listens to.
pub const ALL: &[&str] = &[TASKS, EVENTS, LOGS, FOLLOWS, ACCESS];

/// Sends one notification. Postgres limits a payload to 8,000 bytes; longer lists are cut into several.
pub async fn send<'e>(
    executor: impl Executor<'e, Database = sqlx::Postgres>,
    channel: &str,
    payload: &str,
) -> Result<(), DbError> {
    sqlx::query("/* notify::send */ select pg_notify($1, $2)")
        .bind(channel)
        .bind(payload)
        .execute(executor)
        .await?;
    Ok(())
}

/// Payloads for a list of ids, each short enough for one notification.
pub fn payloads(ids: &[Uuid]) -> Vec<String> {
    ids.chunks(200)
        .map(|some| some.iter().map(Uuid::to_string).collect::<Vec<_>>().join(","))
        .collect()
}

/// Sends several notifications in one round trip, in one transaction of their own.
pub async fn send_all(db: &super::Db, notices: &[(&str, String)]) -> Result<(), DbError> {
    let (channels, payloads): (Vec<&str>, Vec<&str>) = notices
        .iter()
        .map(|(channel, payload)| (*channel, payload.as_str()))
        .unzip();
    sqlx::query("/* notify::send_all */ select pg_notify(channel, payload) from unnest($1::text[], $2::text[]) n (channel, payload)")
        .bind(&channels)
        .bind(&payloads)
        .execute(&db.pool)
        .await?;
    Ok(())
}
