//! The installation's one row, and what a restore does to a database as a whole.

use chrono::{DateTime, Utc};
use sqlx::{PgConnection, migrate::Migrate};
use uuid::Uuid;

use super::{Db, DbError, MIGRATOR};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Installation {
    /// On every label, tag and token that we write anywhere.
    pub id: Uuid,
    pub created_at: DateTime<Utc>,
    /// Set by a restore, until a person confirms: workers only observe.
    pub restored_at: Option<DateTime<Utc>>,
}

/// Makes the row at the first start, and returns the one that is there.
pub async fn ensure(db: &Db, id: Uuid, now: DateTime<Utc>) -> Result<Installation, DbError> {
    sqlx::query!(
        "/* installation::ensure */ insert into installation (id, created_at) values ($1, $2) on conflict do nothing",
        id,
        now
    )
    .execute(&db.pool)
    .await?;
    read(db).await
}

pub async fn read(db: &Db) -> Result<Installation, DbError> {
    let row = sqlx::query_as!(
        Installation,
        "/* installation::read */ select id, created_at, restored_at from installation"
    );
    Ok(row.fetch_one(&db.pool).await?)
}

/// Ends the time of only observing after a restore, and answers when that was made. `None`: there was none.
pub async fn confirm_restore(tx: &mut PgConnection) -> Result<Option<DateTime<Utc>>, DbError> {
    let done = sqlx::query_scalar!(
        r#"/* installation::confirm_restore */
        with old as (select restored_at from installation where restored_at is not null for update)
        update installation set restored_at = null from old returning old.restored_at"#
    );
    Ok(done.fetch_optional(tx).await?.flatten())
}

/// The database's clock, and so the one that counts.
pub async fn clock(db: &Db) -> Result<DateTime<Utc>, DbError> {
    let now = sqlx::query_scalar!(r#"/* installation::clock */ select clock_timestamp() as "now!""#);
    Ok(now.fetch_one(&db.pool).await?)
}

/// How the database's schema stands to the one that this program was built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Schema {
    /// Nothing of ours is there.
    Absent,
    /// `migrate` is needed.
    Older {
        found: i64,
        needed: i64,
    },
    Current(i64),
    /// A newer program was here. One release newer is tolerated.
    Newer {
        found: i64,
        needed: i64,
    },
    /// A migration broke off half-way, which none does that runs in a transaction.
    Broken {
        version: i64,
    },
}

/// The schema that this program was built with.
pub fn needed_schema() -> i64 {
    MIGRATOR.iter().map(|migration| migration.version).max().unwrap_or(0)
}

pub async fn schema(db: &Db) -> Result<Schema, DbError> {
    const TABLE: &str = "_sqlx_migrations";
    let needed = needed_schema();
    let there = sqlx::query_scalar!(
        r#"/* installation::schema */ select to_regclass('_sqlx_migrations') is not null as "there!""#
    );
    let mut connection = db.pool.acquire().await?;
    if !there.fetch_one(&mut *connection).await? {
        return Ok(Schema::Absent);
    }
    let fault = |error: sqlx::migrate::MigrateError| match error {
        sqlx::migrate::MigrateError::Execute(error) => DbError::from(error),
        other => DbError::Other(sqlx::Error::Migrate(Box::new(other))),
    };
    if let Some(version) = connection.dirty_version(TABLE).await.map_err(fault)? {
        return Ok(Schema::Broken { version });
    }
    let applied = connection.list_applied_migrations(TABLE).await.map_err(fault)?;
    Ok(match applied.iter().map(|migration| migration.version).max() {
        None => Schema::Absent,
        Some(found) if found < needed => Schema::Older { found, needed },
        Some(found) if found > needed => Schema::Newer { found, needed },
        Some(found) => Schema::Current(found),
    })
}

/// Tables that are there already, of ours or of anybody.
pub async fn tables(db: &Db) -> Result<i64, DbError> {
    let count = sqlx::query_scalar!(
        r#"/* installation::tables */
        select count(*) as "count!" from pg_class
        where relkind in ('r', 'p', 'v', 'm') and relnamespace = 'public'::regnamespace"#
    );
    Ok(count.fetch_one(&db.pool).await?)
}

/// Connections of other Trainyard processes to this database.
pub async fn others(db: &Db) -> Result<i64, DbError> {
    let count = sqlx::query_scalar!(
        r#"/* installation::others */
        select count(*) as "count!" from pg_stat_activity
        where application_name = 'trainyard' and datname = current_database() and pid <> pg_backend_pid()"#
    );
    Ok(count.fetch_one(&db.pool).await?)
}

/// The database server's major version.
pub async fn server_major(db: &Db) -> Result<u32, DbError> {
    let connection = db.pool.acquire().await?;
    Ok(connection.server_version_num().unwrap_or(0) / 10_000)
}

/// What a restore runs before the backup's own statements, in one transaction with them.
pub const BEFORE_RESTORE: &str = "/* installation::BEFORE_RESTORE */
drop schema public cascade;
create schema public;
";

/// What a restore runs after the backup's own statements, in one transaction with them: no worker ever sees the old
/// records without the word that they are restored ones, and no browser is signed in that was signed out since.
pub fn after_restore(now: DateTime<Utc>) -> String {
    format!(
        "/* installation::after_restore */\nupdate public.installation set restored_at = '{}';\n\
         delete from public.sessions;\ndelete from public.signin_links;\n",
        now.to_rfc3339()
    )
}
