//! The bound in front of the database: so many requests at once, so many waiting for a short time, and everybody else is
//! told at once to come back. A client that goes away takes its request with it: the future is dropped, and so is its
//! place, whether it waited or worked.
//!
//! A place is held until the head of the answer is ready. Streams (live views, downloads) go on without one.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{Code, Error};

#[derive(Debug, Clone, Copy)]
pub struct Bound {
    pub at_once: usize,
    pub waiting: usize,
    /// How long one waits before it is turned away.
    pub patience: Duration,
}

#[derive(Clone)]
pub struct Admission {
    bound: Bound,
    places: Arc<Semaphore>,
    waiting: Arc<AtomicUsize>,
}

impl Admission {
    pub fn new(bound: Bound) -> Self {
        Self {
            bound,
            places: Arc::new(Semaphore::new(bound.at_once)),
            waiting: Arc::new(AtomicUsize::new(0)),
        }
    }

    pub async fn enter(&self) -> Result<OwnedSemaphorePermit, Error> {
        if let Ok(place) = self.places.clone().try_acquire_owned() {
            return Ok(place);
        }
        let line = Line::join(&self.waiting);
        if line.place >= self.bound.waiting {
            return Err(full());
        }
        let place = tokio::time::timeout(self.bound.patience, self.places.clone().acquire_owned()).await;
        match place {
            Ok(Ok(place)) => Ok(place),
            // Nobody closes the semaphore, so this is the patience running out.
            Ok(Err(_)) | Err(_) => Err(full()),
        }
    }
}

fn full() -> Error {
    metrics::counter!("trainyard_http_refused_total", "reason" => "overload").increment(1);
    Error::new(
        Code::Overloaded,
        "More requests wait than can be answered soon; this one was not begun",
    )
    .hint("try again after the time in Retry-After")
    .retry_after(1)
}

/// A place in the line, given back however waiting ends.
struct Line<'a> {
    count: &'a AtomicUsize,
    place: usize,
}

impl<'a> Line<'a> {
    fn join(count: &'a AtomicUsize) -> Self {
        let place = count.fetch_add(1, Ordering::Relaxed);
        Self { count, place }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_line_has_an_end_and_whoever_leaves_it_makes_room() {
        let bound = Bound {
            at_once: 1,
            waiting: 1,
            patience: Duration::from_secs(60),
        };
        let admission = Admission::new(bound);
        let held = admission.enter().await.unwrap();
        let mut waits = Box::pin(admission.enter());
        assert!(futures::poll!(&mut waits).is_pending());
        let refused = admission.enter().await.unwrap_err();
        assert_eq!((refused.0.status, refused.0.retry_after), (503, Some(1)));
        drop(waits);
        let mut waits = Box::pin(admission.enter());
        assert!(
            futures::poll!(&mut waits).is_pending(),
            "the one who left made room in the line"
        );
        drop(held);
        assert!(waits.await.is_ok());
    }
}
