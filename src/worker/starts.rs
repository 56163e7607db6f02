//! Starts that take their time (code from a slow address). They go on beside the look that began them, so that the job is
//! looked at meanwhile, can be cancelled, and keeps nobody else's work waiting.
//!
//! Nothing here has to last: a start that is broken off, with its process or by a stop, is begun again by the next look that
//! wants it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use tokio_util::task::AbortOnDropHandle;
use trainyard_core::model::AttemptId;

use crate::runtimes::RuntimeError;

/// So many may go on at once in one process; further ones wait for the next look.
const MOST: usize = 64;

/// A start that goes on. Dropping it breaks it off.
pub type Start = AbortOnDropHandle<Result<(), RuntimeError>>;

#[derive(Default)]
pub struct Starts(Mutex<BTreeMap<AttemptId, Start>>);

impl Starts {
    /// The attempt's start, if it was begun here and nobody has asked how it went.
    pub fn take(&self, attempt: AttemptId) -> Option<Start> {
        self.all().remove(&attempt)
    }

    pub fn keep(&self, attempt: AttemptId, start: Start) {
        self.all().insert(attempt, start);
    }

    /// Whether another one may begin. Those that nobody asked about by the time that room is short are forgotten.
    pub fn has_room(&self) -> bool {
        let mut all = self.all();
        if all.len() >= MOST {
            all.retain(|_, start| !start.is_finished());
        }
        all.len() < MOST
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<AttemptId, Start>> {
        // Every change is a single insert or remove, so a panic elsewhere leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
