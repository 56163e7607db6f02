//! What time it is. Decisions get times as arguments; loops and handlers get theirs from a [`Clock`].
//!
//! The database's clock is the one that counts, since several servers and workers share it: [`SystemClock`] follows
//! it by [`SystemClock::follow`], so that ten processes on ten machines agree without a round trip for each question.

use std::{
    sync::atomic::{AtomicI64, Ordering},
    time::Duration,
};

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use tokio::sync::watch;

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> DateTime<Utc>;

    /// Returns once that much time has passed on this clock.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// This machine's clock, shifted to the database's.
#[derive(Debug, Default)]
pub struct SystemClock {
    ahead_by_micros: AtomicI64,
}

impl SystemClock {
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes over the database's time, which was asked for and answered at these moments of this machine's clock.
    /// Answers that took long say little, so the caller should prefer quick ones; one now and then is enough.
    pub fn follow(&self, database: DateTime<Utc>, asked: DateTime<Utc>, answered: DateTime<Utc>) {
        let middle = asked + (answered - asked) / 2;
        let ahead = (database - middle).num_microseconds().unwrap_or(0);
        self.ahead_by_micros.store(ahead, Ordering::Relaxed);
    }

    /// How far the database's clock is ahead of this machine's; negative when it is behind.
    pub fn ahead_by(&self) -> TimeDelta {
        TimeDelta::microseconds(self.ahead_by_micros.load(Ordering::Relaxed))
    }
}

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        Utc::now() + self.ahead_by()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(duration))
    }
}

/// A clock that stands still until it is told to move. Sleepers wake when it has moved far enough.
#[derive(Debug, Clone)]
pub struct FakeClock {
    now: watch::Sender<DateTime<Utc>>,
}

impl FakeClock {
    pub fn at(now: DateTime<Utc>) -> Self {
        Self {
            now: watch::Sender::new(now),
        }
    }

    pub fn advance(&self, duration: Duration) {
        // A duration beyond chrono's range is a test's mistake; the clock then goes as far as it can.
        let step = TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX);
        self.now
            .send_modify(|now| *now = now.checked_add_signed(step).unwrap_or(DateTime::<Utc>::MAX_UTC));
    }
}

impl Clock for FakeClock {
    fn now(&self) -> DateTime<Utc> {
        *self.now.borrow()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let mut now = self.now.subscribe();
        let step = TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX);
        let until = self.now().checked_add_signed(step).unwrap_or(DateTime::<Utc>::MAX_UTC);
        Box::pin(async move {
            // An error means that the clock itself is gone: nobody can wake the sleeper any more.
            if now.wait_for(|now| *now >= until).await.is_err() {
                std::future::pending::<()>().await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn noon() -> DateTime<Utc> {
        DateTime::from_timestamp(1_764_504_000, 0).unwrap()
    }

    #[test]
    fn the_system_clock_agrees_with_the_database_it_follows() {
        let clock = SystemClock::new();
        let asked = noon();
        let answered = asked + TimeDelta::milliseconds(10);
        clock.follow(noon() + TimeDelta::seconds(90), asked, answered);
        assert_eq!(clock.ahead_by(), TimeDelta::milliseconds(89_995));
    }

    #[test]
    fn a_sleeper_wakes_when_its_time_has_come_and_not_before() {
        let clock = FakeClock::at(noon());
        let mut sleeper = clock.sleep(Duration::from_secs(10));
        clock.advance(Duration::from_secs(9));
        assert!((&mut sleeper).now_or_never().is_none());
        clock.advance(Duration::from_secs(1));
        assert!(sleeper.now_or_never().is_some());
        assert_eq!(clock.now(), noon() + TimeDelta::seconds(10));
    }
}
