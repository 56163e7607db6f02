//! Listening for notifications, on a connection of its own: a pool's connection would be missing from the pool.
//!
//! One listener per process serves everybody who wants to be woken. It reconnects by itself and then says so, since
//! what was sent meanwhile is lost; and every reader also looks by itself once a second.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::{ANSWERS_WITHIN, Db, in_time};

/// Why to look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wake {
    Notified {
        channel: String,
        payload: String,
    },
    /// The connection was made, at the start or again: something may have been missed.
    Reconnected,
}

/// Wake-ups for whoever subscribes.
#[derive(Clone)]
pub struct Listener {
    sender: broadcast::Sender<Wake>,
}

/// After so long without a word the database is asked whether it is still there: a connection whose other end went away
/// without closing it looks like one on which nothing happens.
const SILENCE: Duration = Duration::from_secs(10);

/// Wake-ups that a slow subscriber may leave waiting; beyond, it is told that it missed some.
const WAITING: usize = 1024;

impl Listener {
    /// Listens until `stop`.
    pub fn start(db: &Db, channels: &'static [&'static str], stop: CancellationToken) -> Self {
        let (sender, _) = broadcast::channel(WAITING);
        let listener = Self { sender: sender.clone() };
        let db = db.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = listen(&db, channels, &sender) => {}
            }
        });
        listener
    }

    pub fn subscribe(&self) -> broadcast::Receiver<Wake> {
        self.sender.subscribe()
    }
}

async fn listen(db: &Db, channels: &[&str], sender: &broadcast::Sender<Wake>) {
    let options = db.pool.connect_options();
    loop {
        // A pool each time: a connection that is given up sees to its own end, and the next one is not to wait for that.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .acquire_timeout(ANSWERS_WITHIN)
            .connect_lazy_with((*options).clone());
        if let Err(error) = listen_once(&pool, channels, sender).await {
            tracing::debug!(%error, "the connection for wake-ups is gone; making another");
        }
        // Readers look by themselves meanwhile.
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

async fn listen_once(
    pool: &sqlx::PgPool,
    channels: &[&str],
    sender: &broadcast::Sender<Wake>,
) -> Result<(), sqlx::Error> {
    let mut listener = PgListener::connect_with(pool).await?;
    in_time(listener.listen_all(channels.iter().copied())).await?;
    // Nobody listening to us is not an error: somebody may subscribe later.
    sender.send(Wake::Reconnected).ok();
    loop {
        let Ok(heard) = tokio::time::timeout(SILENCE, listener.try_recv()).await else {
            in_time(sqlx::query("/* listen::ping */ select 1").execute(&mut listener)).await?;
            continue;
        };
        let Some(notification) = heard? else {
            return Ok(());
        };
        sender
            .send(Wake::Notified {
                channel: notification.channel().to_owned(),
                payload: notification.payload().to_owned(),
            })
            .ok();
    }
}
