//! Live views: what the database tells once is told to many readers.
//!
//! A followed job has one reader here, whose lines are encoded once and shared as bytes; a subject's events likewise.
//! A reader of the stream first catches up from the store and then goes live, without loss and without seeing anything
//! twice: the live reader is started first, and what it sends is compared with what was read.
//!
//! Wake-ups come from Postgres; one that is lost costs a second, since everybody also looks by themselves.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::{Notify, broadcast, watch};
use tokio_util::sync::CancellationToken;
use trainyard_core::model::JobId;
use uuid::Uuid;

use crate::db::{
    Db,
    listen::{Listener, Wake},
    logs::follow,
    notify,
};

pub mod events;
pub mod frame;
mod live;
pub mod logs;

/// What the time is.
pub type Now = Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>;

/// Between looks without a wake-up.
const LOOK: Duration = Duration::from_secs(1);
/// How long a follow is written down for, and how often it is renewed.
const FOLLOW_FOR: TimeDelta = TimeDelta::seconds(30);
const RENEW: Duration = Duration::from_secs(10);
/// An idle connection hears from us this often.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// What slow readers and floods are held to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Messages that a slow client may leave waiting.
    pub waiting: usize,
    /// More text than this in one look is not sent live: readers go on from the store, or are told what they missed.
    pub text: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            waiting: 256,
            text: 16 << 20,
        }
    }
}

/// Everything that is followed in this process. Cheap to clone.
#[derive(Clone)]
pub struct Hub {
    inner: Arc<Inner>,
}

struct Inner {
    db: Db,
    now: Now,
    stop: CancellationToken,
    limits: Limits,
    logs: Mutex<HashMap<JobId, Channel<live::Item>>>,
    events: Mutex<HashMap<events::Source, Channel<events::Item>>>,
}

/// One live reader and those who listen to it.
struct Channel<T> {
    sender: broadcast::Sender<Arc<T>>,
    wake: Arc<Notify>,
    /// True once the reader stands at a place from which on it will miss nothing.
    ready: watch::Receiver<bool>,
}

/// What a subscriber holds.
struct Subscription<T> {
    receiver: broadcast::Receiver<Arc<T>>,
    ready: watch::Receiver<bool>,
}

impl<T> Channel<T> {
    fn new(limits: Limits) -> (Self, watch::Sender<bool>) {
        let (ready, is_ready) = watch::channel(false);
        let channel = Self {
            sender: broadcast::channel(limits.waiting).0,
            wake: Arc::new(Notify::new()),
            ready: is_ready,
        };
        (channel, ready)
    }

    fn subscribe(&self) -> Subscription<T> {
        Subscription {
            receiver: self.sender.subscribe(),
            ready: self.ready.clone(),
        }
    }
}

impl<T> Subscription<T> {
    /// Waits until the reader will miss nothing. `false`: it ended before.
    async fn is_ready(&mut self) -> bool {
        self.ready.wait_for(|ready| *ready).await.is_ok()
    }
}

impl Hub {
    /// Starts following. `listener` hears [`notify::LOGS`] and [`notify::EVENTS`].
    pub fn start(db: &Db, listener: &Listener, now: Now, stop: CancellationToken) -> Self {
        Self::with_limits(db, listener, now, Limits::default(), stop)
    }

    /// The same, with other limits.
    pub fn with_limits(db: &Db, listener: &Listener, now: Now, limits: Limits, stop: CancellationToken) -> Self {
        let hub = Self {
            inner: Arc::new(Inner {
                db: db.clone(),
                now,
                stop,
                limits,
                logs: Mutex::default(),
                events: Mutex::default(),
            }),
        };
        let inner = hub.inner.clone();
        let wakes = listener.subscribe();
        tokio::spawn(async move {
            tokio::select! {
                () = inner.stop.cancelled() => {}
                () = inner.dispatch(wakes) => {}
                () = inner.renew() => {}
            }
        });
        hub
    }
}

impl Inner {
    /// Brings wake-ups to the readers that they are for.
    async fn dispatch(&self, mut wakes: broadcast::Receiver<Wake>) {
        loop {
            match wakes.recv().await {
                Ok(Wake::Notified { channel, payload }) => {
                    let ids = payload.split(',').filter_map(|id| Uuid::try_parse(id).ok());
                    if channel == notify::LOGS {
                        let logs = lock(&self.logs);
                        ids.filter_map(|id| logs.get(&JobId(id)))
                            .for_each(|channel| channel.wake.notify_one());
                    } else if channel == notify::EVENTS {
                        self.wake_events(&ids.collect::<Vec<_>>());
                    }
                }
                Ok(Wake::Reconnected) | Err(broadcast::error::RecvError::Lagged(_)) => self.wake_all(),
                Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
            }
        }
    }

    fn wake_events(&self, ids: &[Uuid]) {
        for (source, channel) in lock(&self.events).iter() {
            let concerned = match source {
                events::Source::Feed => true,
                events::Source::Subject(key) => ids.contains(&key.id()),
            };
            if concerned {
                channel.wake.notify_one();
            }
        }
    }

    fn wake_all(&self) {
        lock(&self.logs).values().for_each(|channel| channel.wake.notify_one());
        lock(&self.events)
            .values()
            .for_each(|channel| channel.wake.notify_one());
    }

    /// Keeps the follows of this process written down.
    async fn renew(&self) {
        let mut tick = tokio::time::interval(RENEW);
        loop {
            tick.tick().await;
            let jobs: Vec<JobId> = lock(&self.logs).keys().copied().collect();
            self.write_follows(&jobs).await;
        }
    }

    async fn write_follows(&self, jobs: &[JobId]) {
        if jobs.is_empty() {
            return;
        }
        // Unwritten, output comes every second or two instead of every 50 ms.
        if let Err(error) = follow::follow(&self.db, jobs, (self.now)() + FOLLOW_FOR).await {
            tracing::warn!(%error, "a live view could not be written down; it will be slower");
        }
    }
}

/// A panic elsewhere leaves these maps whole: no change of theirs is in two steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a reader out when nobody listens to it any more. Under the lock, so that nobody subscribes meanwhile.
fn leave<K: Eq + Hash, T>(map: &Mutex<HashMap<K, Channel<T>>>, key: &K) -> bool {
    let mut map = lock(map);
    let alone = map.get(key).is_none_or(|channel| channel.sender.receiver_count() == 0);
    if alone {
        map.remove(key);
    }
    alone
}
