//! Who works: for people who ask, and so that a clean stop gives its leases back at once.

use chrono::{DateTime, Utc};
use trainyard_core::model::WorkerId;

use super::{Db, DbError};

pub async fn beat(db: &Db, id: WorkerId, machine_id: &str, now: DateTime<Utc>) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* workers::beat */
        insert into workers (id, machine_id, version, started_at, heartbeat_at) values ($1, $2, $3, $4, $4)
        on conflict (id) do update set heartbeat_at = $4"#,
        id.0,
        machine_id,
        env!("CARGO_PKG_VERSION"),
        now
    )
    .execute(&db.pool)
    .await?;
    Ok(())
}

/// Other machines that have had a worker since.
pub async fn elsewhere(db: &Db, machine_id: &str, since: DateTime<Utc>) -> Result<i64, DbError> {
    let count = sqlx::query_scalar!(
        r#"/* workers::elsewhere */
        select count(distinct machine_id) as "count!" from workers where machine_id <> $1 and heartbeat_at > $2"#,
        machine_id,
        since
    );
    Ok(count.fetch_one(&db.pool).await?)
}

/// Signs off: the worker's holdings end now.
pub async fn leave(db: &Db, id: WorkerId) -> Result<(), DbError> {
    sqlx::query!(
        r#"/* workers::leave */
        with gone as (delete from workers where id = $1)
        delete from holdings where worker_id = $1"#,
        id.0
    )
    .execute(&db.pool)
    .await?;
    Ok(())
}
