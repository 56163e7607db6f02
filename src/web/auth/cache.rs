//! Callers that were recognised a moment ago. An entry lives for some seconds at most; a notification that access changed
//! (a token revoked, a membership taken away) ends all of them at once, in every process; in the process of the deed it
//! needs none, see [`Waker::access`].

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use tokio::sync::{broadcast::error::RecvError, watch};
use tokio_util::sync::CancellationToken;
use trainyard_core::model::TokenId;

use crate::{
    actions::wake::Waker,
    db::{
        Db,
        access::{self, Caller},
        listen::{Listener, Wake},
        notify,
    },
};

/// What a lost notification costs at most.
const LIFE: Duration = Duration::from_secs(5);
/// Callers that are kept; beyond, all are dropped and asked for again.
const KEPT: usize = 10_000;
/// How often last uses are written down.
const WRITE: Duration = Duration::from_secs(20);

#[derive(Clone)]
pub struct AccessCache {
    /// Grows whenever access changes; what was loaded before does not hold after.
    generation: watch::Receiver<u64>,
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    callers: HashMap<[u8; 32], Known>,
    tokens: HashMap<TokenId, DateTime<Utc>>,
    sessions: HashMap<[u8; 32], DateTime<Utc>>,
}

/// A look into the database that began under a generation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loading(u64);

struct Known {
    at: Instant,
    loaded: Loading,
    caller: Arc<Caller>,
}

impl AccessCache {
    /// With a number that grows whenever access changes.
    pub fn new(generation: watch::Receiver<u64>) -> Self {
        Self {
            generation,
            inner: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No change of these maps is in two steps, so a panic elsewhere leaves them whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, hash: &[u8; 32]) -> Option<Arc<Caller>> {
        let inner = self.lock();
        let known = inner.callers.get(hash)?;
        (known.loaded == self.begin() && known.at.elapsed() < LIFE).then(|| known.caller.clone())
    }

    pub fn begin(&self) -> Loading {
        Loading(*self.generation.borrow())
    }

    pub fn put(&self, loading: Loading, hash: [u8; 32], caller: Caller) -> Arc<Caller> {
        let caller = Arc::new(caller);
        let mut inner = self.lock();
        if inner.callers.len() >= KEPT {
            inner.callers.clear();
        }
        let known = Known {
            at: Instant::now(),
            loaded: loading,
            caller: caller.clone(),
        };
        inner.callers.insert(hash, known);
        caller
    }

    pub fn used_token(&self, id: TokenId, at: DateTime<Utc>) {
        self.lock().tokens.insert(id, at);
    }

    pub fn used_session(&self, hash: [u8; 32], at: DateTime<Utc>) {
        self.lock().sessions.insert(hash, at);
    }

    /// Writes last uses down; what could not be written is tried again with the next ones.
    pub async fn write_uses(&self, db: &Db) {
        let (tokens, sessions) = {
            let mut inner = self.lock();
            (std::mem::take(&mut inner.tokens), std::mem::take(&mut inner.sessions))
        };
        let token_uses: Vec<_> = tokens.into_iter().collect();
        let session_uses: Vec<_> = sessions.into_iter().collect();
        if let Err(error) = access::touch(db, &token_uses, &session_uses).await {
            tracing::debug!(%error, "last uses could not be written");
            let mut inner = self.lock();
            for (id, at) in token_uses {
                inner.tokens.entry(id).or_insert(at);
            }
            for (hash, at) in session_uses {
                inner.sessions.entry(hash).or_insert(at);
            }
        }
    }
}

/// Hears of changes elsewhere until told to stop, and writes the last uses now and then.
pub async fn keep(cache: &AccessCache, wake: &Waker, db: &Db, listener: &Listener, stop: CancellationToken) {
    let mut wakes = listener.subscribe();
    let mut write = tokio::time::interval(WRITE);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            heard = wakes.recv() => match heard {
                Ok(Wake::Notified { channel, .. }) if channel != notify::ACCESS => {}
                Ok(_) | Err(RecvError::Lagged(_)) => wake.access_changed(),
                Err(RecvError::Closed) => break,
            },
            _ = write.tick() => {
                cache.write_uses(db).await;
            }
        }
    }
    cache.write_uses(db).await;
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use trainyard_core::model::{JobId, UserId};
    use uuid::Uuid;

    use super::*;
    use crate::db::{Actor, access::Via};

    fn caller() -> Caller {
        Caller {
            actor: Actor {
                user: UserId(Uuid::nil()),
                name: "Ada".into(),
                token: None,
                admin: false,
                teams: BTreeMap::new(),
            },
            team_names: BTreeMap::new(),
            via: Via::Job {
                job: JobId(Uuid::nil()),
                attempt: 1,
            },
            restored_at: None,
        }
    }

    #[test]
    fn what_was_loaded_before_access_changed_does_not_hold_after() {
        let (change, generation) = watch::channel(0);
        let cache = AccessCache::new(generation);
        let loading = cache.begin();
        change.send_replace(1);
        cache.put(loading, [1; 32], caller());
        assert!(cache.get(&[1; 32]).is_none());
        cache.put(cache.begin(), [1; 32], caller());
        assert!(cache.get(&[1; 32]).is_some());
        change.send_replace(2);
        assert!(cache.get(&[1; 32]).is_none());
    }
}
