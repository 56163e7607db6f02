//! All SQL, and only SQL. Decisions are made elsewhere; here are named transactions, typed errors and keyset pages.
//!
//! Rules: SQL text starts with a comment that names its function, so that `pg_stat_activity` reads like a call stack.
//! `$now` is a parameter. A read that people can reach takes a [`Scope`]. A write by a worker takes the lease or the
//! fence it was done under and fails with [`DbError::Fenced`] when that is no longer held.

use std::{collections::BTreeMap, time::Duration};

use sqlx::{Connection, PgPool, postgres::PgPoolOptions};
use trainyard_core::model::{TeamId, TeamRole, TokenId, UserId};

pub mod access;
pub mod attempts;
pub mod attempts_read;
pub mod audit;
pub mod checks;
pub mod clusters;
pub mod clusters_read;
pub mod code;
pub mod code_uploads;
pub mod conditions;
pub mod events;
pub mod feed;
pub mod fences;
pub mod first_start;
pub mod gone;
pub mod grants;
pub mod holdings;
pub mod installation;
pub mod jobs;
pub mod jobs_create;
pub mod jobs_list;
pub mod jobs_read;
pub mod jobs_wish;
pub mod listen;
pub mod logs;
pub mod metrics;
pub mod names;
pub mod nodes_read;
pub mod notify;
pub mod page_reads;
pub mod partitions;
pub mod queue;
pub mod reports;
pub mod secret_values;
pub mod secrets;
pub mod sessions;
pub mod single;
pub mod steps;
pub mod tasks;
pub mod teams;
pub mod tokens;
pub mod upkeep;
pub mod usage;
pub mod usage_read;
pub mod users;
pub mod why_facts;
pub mod workers;

pub use sqlx::postgres::PgConnectOptions;

/// A transaction on our database.
pub type Tx<'a> = sqlx::Transaction<'a, sqlx::Postgres>;

/// How long one waits for a free connection.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long what must not hang is waited for: a database that went away without a word never answers, and closes nothing.
const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// The database handle. Cheap to clone.
#[derive(Clone)]
pub struct Db {
    pub(crate) pool: PgPool,
    /// Half of the pool, so that transactions never wait for what idles there.
    readers: single::Aside,
    creators: single::Aside,
    /// Of teams, people and clusters, for lists.
    pub names: names::Names,
}

impl Db {
    /// A pool that connects lazily: the program starts while Postgres is still away, and says 503 until it is back.
    pub fn lazy(options: PgConnectOptions, connections: u32) -> Self {
        // A process that stands still in the middle of a transaction (a paused machine, SIGSTOP) would keep its row locks,
        // and with them keep everybody else from taking over what it holds, for as long as it stands.
        let options = options
            .application_name("trainyard")
            .statement_cache_capacity(256)
            .options([("idle_in_transaction_session_timeout", "10s")]);
        let pool = PgPoolOptions::new()
            .max_connections(connections)
            .acquire_timeout(PATIENCE)
            .idle_timeout(Duration::from_secs(300))
            .test_before_acquire(false)
            .connect_lazy_with(options);
        Self {
            pool,
            readers: single::Aside::of(connections as usize / 2),
            creators: single::Aside::of(connections as usize / 4),
            names: names::Names::default(),
        }
    }

    /// Begins a transaction in a task of its own, so that whoever stops waiting for it (a client that left, a deadline)
    /// drops a transaction, which rolls back. sqlx 0.9 forgets a `BEGIN` that was sent and not awaited: the connection
    /// goes back to the pool inside a transaction that nobody commits, and takes the next statements with it.
    pub async fn begin(&self) -> Result<Tx<'static>, DbError> {
        // Waiting for a free connection is dropped with its caller.
        let connection = self.pool.acquire().await?;
        let begun = tokio::spawn(sqlx::Transaction::begin(connection, None)).await;
        Ok(begun.map_err(|_| sqlx::Error::WorkerCrashed)??)
    }

    /// One round trip, for readiness.
    pub async fn ping(&self) -> Result<(), DbError> {
        sqlx::query("/* db::ping */ select 1").execute(&self.pool).await?;
        Ok(())
    }

    /// One connection beside the pool, to hear what stands in its way.
    pub async fn connect(&self) -> Result<(), sqlx::Error> {
        let connection = sqlx::PgConnection::connect_with(&self.pool.connect_options()).await?;
        connection.close().await
    }

    pub async fn migrate(&self) -> Result<(), sqlx::migrate::MigrateError> {
        MIGRATOR.run(&self.pool).await
    }

    /// Ends every connection once its statement is over.
    pub async fn close(&self) {
        self.readers.close();
        self.creators.close();
        self.pool.close().await;
    }

    pub fn pool(&self) -> &PgPool {
        &self.pool
    }
}

/// A statement's answer, or that there was none within [`ANSWERS_WITHIN`]. What the statement did is not known then,
/// and its connection is of no use any more: a pool that got it back would wait for it.
pub(crate) async fn in_time<T>(work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, sqlx::Error> {
    let answer = tokio::time::timeout(ANSWERS_WITHIN, work).await;
    answer.unwrap_or_else(|_| Err(sqlx::Error::Io(std::io::ErrorKind::TimedOut.into())))
}

/// The migrations in this binary; the last one's version is the schema that it needs.
pub static MIGRATOR: sqlx::migrate::Migrator = sqlx::migrate!("./migrations");

/// What can go wrong with the database, as far as callers act differently on it.
#[derive(Debug, thiserror::Error)]
pub enum DbError {
    /// The database is away, restarting or out of connections: say 503, or try again.
    #[error("the database is not available")]
    Unavailable(#[source] sqlx::Error),
    /// A unique or foreign key or a CHECK said no; the constraint's name tells which.
    #[error("constraint {constraint} refused the write")]
    Constraint { constraint: String, source: sqlx::Error },
    /// The lease or holding under which this was decided is no longer ours.
    #[error("the lease or holding is no longer held")]
    Fenced,
    /// The row changed since it was read (generation, ETag).
    #[error("the record changed since it was read")]
    Stale,
    #[error("no such record")]
    NotFound,
    /// A row that we wrote can't be read back as what it should be: our fault, never the caller's.
    #[error("{table} {key}: {what}")]
    Inconsistent {
        table: &'static str,
        key: String,
        what: String,
    },
    #[error("the database refused a statement")]
    Other(#[source] sqlx::Error),
}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            sqlx::Error::RowNotFound => DbError::NotFound,
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::PoolClosed
            | sqlx::Error::WorkerCrashed
            | sqlx::Error::Protocol(_) => DbError::Unavailable(error),
            sqlx::Error::Database(database) => {
                let code = database.code().unwrap_or_default().into_owned();
                // Classes of SQLSTATE: 08 connection, 57P0x shutdown or start-up, 53 out of resources,
                // 40001 and 40P01 serialization and deadlock, 55P03 a lock that was not to be had, 57014
                // cancelled, 25006 read-only (a
                // standby during a switch), 25P03 a transaction that slept too long, as after a suspended machine, 23
                // integrity.
                if code.starts_with("08")
                    || code.starts_with("57P")
                    || code.starts_with("53")
                    || matches!(code.as_str(), "40001" | "40P01" | "55P03" | "57014" | "25006" | "25P03")
                {
                    DbError::Unavailable(error)
                } else if code.starts_with("23") {
                    let constraint = database.constraint().unwrap_or("unnamed").to_owned();
                    DbError::Constraint {
                        constraint,
                        source: error,
                    }
                } else {
                    DbError::Other(error)
                }
            }
            _ => DbError::Other(error),
        }
    }
}

impl DbError {
    /// The same error for another one who waited for the same statement; its source can't be copied.
    pub fn again(&self) -> Self {
        let words = sqlx::Error::Protocol(self.to_string());
        match self {
            DbError::Unavailable(_) => DbError::Unavailable(words),
            DbError::Constraint { constraint, .. } => DbError::Constraint {
                constraint: constraint.clone(),
                source: words,
            },
            DbError::Fenced => DbError::Fenced,
            DbError::Stale => DbError::Stale,
            DbError::NotFound => DbError::NotFound,
            DbError::Inconsistent { table, key, what } => DbError::Inconsistent {
                table,
                key: key.clone(),
                what: what.clone(),
            },
            DbError::Other(_) => DbError::Other(words),
        }
    }

    /// What was to be written can't be, whenever it is tried: what passes by itself is [`DbError::Unavailable`].
    pub fn is_of_the_data(&self) -> bool {
        matches!(self, DbError::Constraint { .. } | DbError::Other(_))
    }

    /// Two transactions met and this one was undone: trying the same again at once will do.
    pub fn is_collision(&self) -> bool {
        match self {
            DbError::Unavailable(sqlx::Error::Database(error)) => {
                matches!(error.code().as_deref(), Some("40001" | "40P01"))
            }
            _ => false,
        }
    }

    /// Trying the same again later may work.
    pub fn is_passing(&self) -> bool {
        matches!(self, DbError::Unavailable(_))
    }
}

/// Reads a stored word back into its closed set.
pub(crate) fn word<T: std::str::FromStr>(table: &'static str, key: impl ToString, text: &str) -> Result<T, DbError>
where
    T::Err: ToString,
{
    text.parse().map_err(|error: T::Err| DbError::Inconsistent {
        table,
        key: key.to_string(),
        what: error.to_string(),
    })
}

/// Who is asking. Made by authentication, and by nothing else outside tests.
#[derive(Debug, Clone, PartialEq)]
pub struct Actor {
    pub user: UserId,
    pub name: String,
    /// The token used, if it was one and not a browser's session.
    pub token: Option<TokenId>,
    /// May act on the installation.
    pub admin: bool,
    /// Teams and what may be done in each, the token's limits already applied.
    pub teams: BTreeMap<TeamId, TeamRole>,
}

impl Actor {
    /// What this actor may read.
    pub fn scope(&self) -> Scope {
        if self.admin {
            Scope::Everything
        } else {
            Scope::Teams(self.teams.keys().copied().collect())
        }
    }

    pub fn may(&self, team: TeamId, role: TeamRole) -> bool {
        self.admin || self.teams.get(&team).is_some_and(|&have| have >= role)
    }
}

/// Whose records a read may see. Every read that people can reach takes one, so none can forget who is asking.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// Workers and admins.
    Everything,
    Teams(Vec<TeamId>),
}

impl Scope {
    /// For SQL: `($1::uuid[] is null or team_id = any($1))`.
    pub(crate) fn teams(&self) -> Option<Vec<uuid::Uuid>> {
        match self {
            Scope::Everything => None,
            Scope::Teams(teams) => Some(teams.iter().map(|team| team.0).collect()),
        }
    }
}
