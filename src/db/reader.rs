//! Connections for the reads that everybody asks for. sqlx tests each connection with a round trip of its own when it
//! is given back to the pool; for a read by key that is a fifth of all its work, here and in Postgres. A few
//! connections whose last read ended well are therefore kept aside and used again as they are.
//!
//! Whatever did not end well (an error, a caller that left in the middle) goes back to the pool, and is tested there.

use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{PgConnection, Postgres, pool::PoolConnection};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Db, DbError};

/// A connection goes through the pool this often, which ends those that are old or idle for long.
const LOAN: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct Readers {
    kept: Arc<Mutex<Vec<Kept>>>,
    /// Reads at once, in the order in which they came. Half of the pool, so that writes never wait for what idles here.
    places: Arc<Semaphore>,
}

struct Kept {
    connection: PoolConnection<Postgres>,
    since: Instant,
}

/// A connection for one read, outside of transactions.
pub struct Reader {
    kept: Kept,
    readers: Readers,
    _place: OwnedSemaphorePermit,
}

impl Db {
    pub async fn reader(&self) -> Result<Reader, DbError> {
        let readers = self.readers.clone();
        let place = match tokio::time::timeout(super::PATIENCE, readers.places.clone().acquire_owned()).await {
            Ok(Ok(place)) => place,
            Ok(Err(_)) => return Err(sqlx::Error::PoolClosed.into()),
            Err(_) => return Err(sqlx::Error::PoolTimedOut.into()),
        };
        let kept = match readers.take() {
            Some(kept) => kept,
            None => Kept {
                connection: self.pool.acquire().await?,
                since: Instant::now(),
            },
        };
        Ok(Reader {
            kept,
            readers,
            _place: place,
        })
    }
}

impl Readers {
    pub(super) fn of_pool(connections: u32) -> Self {
        Self {
            kept: Arc::default(),
            places: Arc::new(Semaphore::new((connections as usize / 2).max(1))),
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

impl Reader {
    /// Takes the connection back with what the read brought. One that ended well may be had again as it is.
    pub fn done<T>(self, result: sqlx::Result<T>) -> Result<T, DbError> {
        if result.is_err() {
            // What ended this connection (a restart of Postgres) has ended the others.
            self.readers.kept().clear();
        } else if self.kept.since.elapsed() < LOAN {
            self.readers.keep(self.kept);
        }
        Ok(result?)
    }
}

impl Deref for Reader {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.kept.connection
    }
}

impl DerefMut for Reader {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.kept.connection
    }
}
