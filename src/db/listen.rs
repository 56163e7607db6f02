//! Listening for notifications, on a connection of its own: a pool's connection would be missing from the pool.
//!
//! One listener per process serves everybody who wants to be woken. It reconnects by itself and then says so, since
//! what was sent meanwhile is lost; and every reader also looks by itself once a second.

use std::time::Duration;

use sqlx::postgres::{PgListener, PgPoolOptions};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::Db;

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
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .connect_lazy_with((*options).clone());
    loop {
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
    listener.listen_all(channels.iter().copied()).await?;
    // Nobody listening to us is not an error: somebody may subscribe later.
    sender.send(Wake::Reconnected).ok();
    while let Some(notification) = listener.try_recv().await? {
        sender
            .send(Wake::Notified {
                channel: notification.channel().to_owned(),
                payload: notification.payload().to_owned(),
            })
            .ok();
    }
    Ok(())
}
