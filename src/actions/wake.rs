//! What follows a commit and only saves a second of waiting: notifications, and the poke of the one task that admits or
//! places new jobs. One small task sends them and gathers whatever came while the last ones were on their way: at a
//! thousand creates a second that is a few, none of them holds the lock that Postgres takes for a NOTIFY while a create
//! commits, and creates do not wait for each other at the row of that task.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use tokio::sync::{mpsc, watch};
use uuid::Uuid;

use crate::{
    clock::Clock,
    db::{
        Db, DbError,
        names::Names,
        notify,
        tasks::{self, TaskKind},
    },
};

/// How many subjects may wait to be told about; beyond that listeners find them by looking.
const WAITING: usize = 4096;
/// Between one sending and the next.
const PAUSE: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub struct Waker {
    queue: mpsc::Sender<Signal>,
    names: Names,
    /// Grows whenever what callers may do has changed.
    access: Arc<watch::Sender<u64>>,
}

enum Signal {
    /// A job, node or cluster has news, and a task about it may be due.
    Subject(Uuid),
    /// A new job waits for this task.
    Look(TaskKind, Uuid),
    /// Tokens, users or memberships changed.
    Access,
}

impl Waker {
    pub fn start(db: Db, clock: Arc<dyn Clock>) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        let names = db.names.clone();
        tokio::spawn(send(db, clock, waiting));
        Self {
            queue,
            names,
            access: Arc::default(),
        }
    }

    /// Never waits: a lost one costs a second.
    pub fn subject(&self, subject: Uuid) {
        let _ = self.queue.try_send(Signal::Subject(subject));
    }

    pub fn look(&self, kind: TaskKind, subject: Uuid) {
        let _ = self.queue.try_send(Signal::Look(kind, subject));
    }

    /// What callers may do has changed here. This process goes by it from now on, and the others are told.
    pub fn access(&self) {
        self.access_changed();
        let _ = self.queue.try_send(Signal::Access);
    }

    /// What callers may do has changed, here or elsewhere: what this process knew of them holds no more.
    pub fn access_changed(&self) {
        self.names.drop_all();
        self.access.send_modify(|generation| *generation += 1);
    }

    /// For whoever keeps what callers may do: a number that grows whenever that has changed.
    pub fn access_changes(&self) -> watch::Receiver<u64> {
        self.access.subscribe()
    }
}

async fn send(db: Db, clock: Arc<dyn Clock>, mut waiting: mpsc::Receiver<Signal>) {
    let mut signals = Vec::with_capacity(256);
    while waiting.recv_many(&mut signals, 1024).await > 0 {
        let mut subjects: Vec<Uuid> = Vec::with_capacity(signals.len());
        let mut looks = BTreeSet::new();
        let mut access = false;
        for signal in signals.drain(..) {
            match signal {
                Signal::Subject(subject) => subjects.push(subject),
                Signal::Look(kind, subject) => drop(looks.insert((kind, subject))),
                Signal::Access => access = true,
            }
        }
        subjects.sort_unstable();
        subjects.dedup();
        let mut notices: Vec<(&str, String)> = notify::payloads(&subjects)
            .into_iter()
            .map(|payload| (notify::EVENTS, payload))
            .collect();
        if !subjects.is_empty() || !looks.is_empty() {
            notices.push((notify::TASKS, String::new()));
        }
        if access {
            notices.push((notify::ACCESS, String::new()));
        }
        if let Err(error) = poke(&db, clock.as_ref(), &looks).await {
            tracing::debug!(%error, "tasks could not be poked; the jobs' own looks will");
        }
        if let Err(error) = notify::send_all(&db, &notices).await {
            tracing::debug!(%error, "wake-ups could not be sent; listeners will look by themselves");
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// One statement each: a poke takes its row only for itself.
async fn poke(db: &Db, clock: &dyn Clock, looks: &BTreeSet<(TaskKind, Uuid)>) -> Result<(), DbError> {
    for (kind, subject) in looks {
        let mut connection = db.pool().acquire().await?;
        tasks::poke(&mut connection, *kind, *subject, None, clock.now()).await?;
    }
    Ok(())
}
