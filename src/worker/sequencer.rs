//! The feed's one holder: gives events their places after commit.

use std::time::Duration;

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

use super::ingest::Now;
use crate::db::{Db, DbError, feed, holdings::Holding, listen::Wake, notify};

/// Events placed in one transaction.
const BATCH: i64 = 1000;
/// Between looks, without a wake-up. Events of requests send none, so this is how late a live reader may see them.
const PAUSE: Duration = Duration::from_millis(200);

/// Places events until the holding is lost (`Fenced`) or the program stops.
pub async fn run(
    db: Db,
    holding: Holding,
    now: Now,
    mut wakes: broadcast::Receiver<Wake>,
    stop: CancellationToken,
) -> Result<(), DbError> {
    loop {
        let pause = match feed::sequence(&db, &holding, BATCH, now()).await {
            Ok(placed) if placed >= BATCH as u64 => Duration::ZERO,
            Ok(_) => PAUSE,
            Err(DbError::Fenced) => return Err(DbError::Fenced),
            Err(error) => {
                tracing::warn!(%error, "events could not be placed in the feed; trying again");
                Duration::from_secs(1)
            }
        };
        tokio::select! {
            () = stop.cancelled() => return Ok(()),
            () = tokio::time::sleep(pause) => {}
            () = next_event(&mut wakes) => {}
        }
    }
}

async fn next_event(wakes: &mut broadcast::Receiver<Wake>) {
    loop {
        match wakes.recv().await {
            // Our own notifications wake us too; the look that follows is cheap and finds nothing.
            Ok(Wake::Notified { channel, .. }) if channel == notify::EVENTS => return,
            Ok(Wake::Notified { .. }) => {}
            Ok(Wake::Reconnected) | Err(broadcast::error::RecvError::Lagged(_)) => return,
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
