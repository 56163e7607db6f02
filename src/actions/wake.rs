//! Notifications after commits. They only save a second of waiting, so they are sent by one small task that gathers
//! whatever came while the last ones were on their way: at a thousand creates a second that is a few, and none of them
//! holds the lock that Postgres takes for a NOTIFY while a create commits.

use tokio::sync::mpsc;
use uuid::Uuid;

use crate::db::{Db, notify};

/// How many subjects may wait to be told about; beyond that listeners find them by looking.
const WAITING: usize = 4096;

#[derive(Clone)]
pub struct Waker {
    queue: mpsc::Sender<Signal>,
}

enum Signal {
    /// A job, node or cluster has news, and a task about it may be due.
    Subject(Uuid),
    /// Tokens, users or memberships changed.
    Access,
}

impl Waker {
    pub fn start(db: Db) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        tokio::spawn(send(db, waiting));
        Self { queue }
    }

    /// Never waits: a lost one costs a second.
    pub fn subject(&self, subject: Uuid) {
        let _ = self.queue.try_send(Signal::Subject(subject));
    }

    pub fn access(&self) {
        let _ = self.queue.try_send(Signal::Access);
    }
}

async fn send(db: Db, mut waiting: mpsc::Receiver<Signal>) {
    let mut signals = Vec::with_capacity(256);
    while waiting.recv_many(&mut signals, 1024).await > 0 {
        let mut subjects: Vec<Uuid> = Vec::with_capacity(signals.len());
        let mut access = false;
        for signal in signals.drain(..) {
            match signal {
                Signal::Subject(subject) => subjects.push(subject),
                Signal::Access => access = true,
            }
        }
        subjects.sort_unstable();
        subjects.dedup();
        let mut notices: Vec<(&str, String)> = notify::payloads(&subjects)
            .into_iter()
            .map(|payload| (notify::EVENTS, payload))
            .collect();
        if !subjects.is_empty() {
            notices.push((notify::TASKS, String::new()));
        }
        if access {
            notices.push((notify::ACCESS, String::new()));
        }
        if let Err(error) = notify::send_all(&db, &notices).await {
            tracing::debug!(%error, "wake-ups could not be sent; listeners will look by themselves");
        }
    }
}
