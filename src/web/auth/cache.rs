//! Callers that were recognised a moment ago. An entry lives for some seconds at most; a notification that access changed
//! (a token revoked, a membership taken away) drops all of them at once, in every process.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use tokio::sync::broadcast::error::RecvError;
use tokio_util::sync::CancellationToken;
use trainyard_core::model::TokenId;

use crate::db::{
    Db,
    access::{self, Caller},
    listen::{Listener, Wake},
    notify,
};

/// What a lost notification costs at most.
const LIFE: Duration = Duration::from_secs(5);
/// Callers that are kept; beyond, all are dropped and asked for again.
const KEPT: usize = 10_000;
/// How often last uses are written down.
const WRITE: Duration = Duration::from_secs(20);

#[derive(Clone, Default)]
pub struct AccessCache {
    inner: Arc<Mutex<Inner>>,
}

#[derive(Default)]
struct Inner {
    /// Grows whenever access changes; what was loaded before must not be kept after.
    generation: u64,
    callers: HashMap<[u8; 32], (Instant, Arc<Caller>)>,
    tokens: HashMap<TokenId, DateTime<Utc>>,
    sessions: HashMap<[u8; 32], DateTime<Utc>>,
}

/// A look into the database that began under a generation.
#[derive(Debug, Clone, Copy)]
pub struct Loading(u64);

impl AccessCache {
    pub fn new() -> Self {
        Self::default()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // No change of these maps is in two steps, so a panic elsewhere leaves them whole.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn get(&self, hash: &[u8; 32]) -> Option<Arc<Caller>> {
        let inner = self.lock();
        let (at, caller) = inner.callers.get(hash)?;
        (at.elapsed() < LIFE).then(|| caller.clone())
    }

    pub fn begin(&self) -> Loading {
        Loading(self.lock().generation)
    }

    pub fn put(&self, loading: Loading, hash: [u8; 32], caller: Caller) -> Arc<Caller> {
        let caller = Arc::new(caller);
        let mut inner = self.lock();
        if inner.generation == loading.0 {
            if inner.callers.len() >= KEPT {
                inner.callers.clear();
            }
            inner.callers.insert(hash, (Instant::now(), caller.clone()));
        }
        caller
    }

    pub fn drop_all(&self) {
        let mut inner = self.lock();
        inner.generation += 1;
        inner.callers.clear();
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

/// Keeps the cache honest until told to stop, and then writes the last uses.
pub async fn keep(cache: &AccessCache, db: &Db, listener: &Listener, stop: CancellationToken) {
    let mut wakes = listener.subscribe();
    let mut write = tokio::time::interval(WRITE);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            wake = wakes.recv() => match wake {
                Ok(Wake::Notified { channel, .. }) if channel != notify::ACCESS => {}
                Ok(_) | Err(RecvError::Lagged(_)) => {
                    cache.drop_all();
                    db.names.drop_all();
                }
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
    fn what_was_loaded_before_access_changed_is_not_kept_after() {
        let cache = AccessCache::new();
        let loading = cache.begin();
        cache.drop_all();
        cache.put(loading, [1; 32], caller());
        assert!(cache.get(&[1; 32]).is_none());
        cache.put(cache.begin(), [1; 32], caller());
        assert!(cache.get(&[1; 32]).is_some());
        cache.drop_all();
        assert!(cache.get(&[1; 32]).is_none());
    }
}
