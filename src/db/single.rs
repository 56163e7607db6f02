//! Connections for single statements that everybody asks for: reads by key, and creates. sqlx tests each connection
//! with a round trip of its own when it is given back to the pool; for a read by key that is a fifth of all its work,
//! here and in Postgres. A few connections whose last statement ended well are therefore kept aside and used again as
//! they are.
//!
//! Whatever did not end well (an error, a caller that left in the middle) goes back to the pool, and is tested there.
//! So does every one while the pool has no other to give: transactions must not wait for what idles here.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{PgConnection, PgPool, Postgres, pool::PoolConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Db, DbError};

/// A connection goes through the pool this often, which ends those that are old or idle for long.
const LOAN: Duration = Duration::from_secs(30);

/// Connections of one purpose.
#[derive(Clone)]
pub(super) struct Aside {
    kept: Arc<Mutex<Vec<Kept>>>,
    /// So many at once, in the order in which they came.
    places: Arc<Semaphore>,
}

struct Kept {
    connection: PoolConnection<Postgres>,
    since: Instant,
}

/// A connection for one statement, outside of transactions.
pub struct Single {
    kept: Kept,
    pool: PgPool,
    from: Aside,
    _place: OwnedSemaphorePermit,
}

impl Db {
    pub async fn reader(&self) -> Result<Single, DbError> {
        self.single(&self.readers).await
    }

    /// For creates, which therefore never wait behind a crowd of readers.
    pub async fn creator(&self) -> Result<Single, DbError> {
        self.single(&self.creators).await
    }

    async fn single(&self, aside: &Aside) -> Result<Single, DbError> {
        let place = match tokio::time::timeout(super::PATIENCE, aside.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Err(sqlx::Error::PoolClosed.into()),
            Err(_) => return Err(sqlx::Error::PoolTimedOut.into()),
        };
        let kept = match aside.take() {
            Some(kept) => kept,
            None => Kept {
                connection: self.pool.acquire().await?,
                since: Instant::now(),
            },
        };
        Ok(Single {
            kept,
            pool: self.pool.clone(),
            from: aside.clone(),
            _place: place,
        })
    }
}

impl Aside {
    pub(super) fn of(connections: usize) -> Self {
        Self {
            kept: Arc::default(),
            places: Arc::new(Semaphore::new(connections.max(1))),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<Kept> {
        self.kept().pop()
    }

    /// Unless they are closed by now, which is asked under the lock that closing takes.
    fn keep(&self, one: Kept) {
        let mut kept = self.kept();
        if !self.places.is_closed() {
            kept.push(one);
        }
    }

    /// Gives back what is kept, and keeps nothing any more: only then can the pool be closed.
    pub(super) fn close(&self) {
        self.places.close();
        self.kept().clear();
    }
}

impl Single {
    /// Takes the connection back with what the statement brought. One that ended well may be had again as it is.
    pub fn done<T>(self, result: sqlx::Result<T>) -> Result<T, DbError> {
        if result.is_err() {
            // What ended this connection (a restart of Postgres) has ended the others.
            self.from.kept().clear();
        } else if self.kept.since.elapsed() < LOAN && !self.is_needed() {
            self.from.keep(self.kept);
        }
        Ok(result?)
    }

    /// All connections are out, of which some do nothing.
    fn is_needed(&self) -> bool {
        self.pool.num_idle() == 0 && self.pool.size() >= self.pool.options().get_max_connections()
    }
}

impl Deref for Single {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.kept.connection
    }
}

impl DerefMut for Single {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.kept.connection
    }
}
