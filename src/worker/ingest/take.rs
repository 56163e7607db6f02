//! Reading what is new in all due streams, within one budget of memory, and never a hole for output.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt, stream};
use trainyard_core::model::{AttemptId, StreamId};

use super::{Attempt, Ingest, Stream, cut::Taken};
use crate::runtimes::{OutputRef, OutputState, Runtime};

const DROPPED: &str = "it was written faster than it could be stored, and the limit for unstored output was passed";
/// Reads of this size may race with output being given up.
const RACE_FROM: usize = 64 << 10;

/// A stream's turn in this flush.
pub(super) struct Turn {
    pub attempt: AttemptId,
    pub stream: StreamId,
    pub output: OutputRef,
    pub taken: Vec<Taken>,
    /// The source ended, and all of it was taken.
    pub last: bool,
    /// Up to which offset of the source was taken.
    pub reached: u64,
}

impl Ingest {
    pub(super) async fn outputs(&self, due: &[AttemptId]) -> HashMap<AttemptId, Vec<OutputState>> {
        stream::iter(due.iter().copied())
            .map(|attempt| outputs_of(self.runtime.clone(), attempt))
            .buffer_unordered(16)
            .filter_map(|found| async { found })
            .collect()
            .await
    }

    /// Reads what is new, at most the budget over all streams; whoever got less than there was comes first next time.
    pub(super) async fn read(&mut self, outputs: &HashMap<AttemptId, Vec<OutputState>>) -> (Vec<Turn>, bool) {
        let mut wanting: Vec<(&Attempt, &Stream, &OutputState)> = Vec::new();
        for (id, states) in outputs {
            let Some(attempt) = self.attempts.get(id) else { continue };
            for state in states {
                let Some(stream) = attempt.streams.get(&super::id_of(&state.output)) else {
                    continue;
                };
                if !stream.state.ended && (state.length > stream.state.source_offset || state.ended) {
                    wanting.push((attempt, stream, state));
                }
            }
        }
        let new = |stream: &Stream, state: &OutputState| state.length.saturating_sub(stream.state.source_offset);
        let waiting: u64 = wanting.iter().map(|(_, stream, state)| new(stream, state)).sum();
        let quota = match wanting.len() as u64 {
            0 => 0,
            count if waiting > self.settings.budget => (self.settings.budget / count).clamp(4096, self.settings.budget),
            _ => self.settings.budget,
        };
        let mut left = self.settings.budget;
        let mut plans = Vec::new();
        // Rotated, so that with more streams than the budget has room for, each gets its turn.
        let first = self.rotation % wanting.len().max(1);
        self.rotation = self.rotation.wrapping_add(wanting.len() / 2 + 1);
        for (attempt, stream, state) in wanting[first..].iter().chain(&wanting[..first]) {
            let quota = quota.min(left);
            left -= quota.min(new(stream, state));
            if quota > 0 {
                let turn = Turn {
                    attempt: attempt.open.id,
                    stream: stream.state.id,
                    output: state.output.clone(),
                    taken: Vec::new(),
                    last: false,
                    reached: stream.state.source_offset,
                };
                plans.push(take(self.runtime.clone(), turn, (*state).clone(), quota));
            }
        }
        let read: Vec<Turn> = stream::iter(plans)
            .buffer_unordered(8)
            .filter(|turn| std::future::ready(turn.last || !turn.taken.is_empty()))
            .collect()
            .await;
        let read = self.without_raced(read).await;
        (read, waiting > self.settings.budget)
    }

    /// Leaves out streams of which a part was given up while it was being read: what was read there are holes, not
    /// output. The record of what is given up is written before the bytes go, so asking once more tells.
    async fn without_raced(&self, turns: Vec<Turn>) -> Vec<Turn> {
        let large: BTreeSet<AttemptId> = turns
            .iter()
            .filter(|turn| turn.taken.iter().map(Taken::len).sum::<usize>() >= RACE_FROM)
            .map(|turn| turn.attempt)
            .collect();
        let now = self.outputs(&large.iter().copied().collect::<Vec<_>>()).await;
        let raced = |turn: &Turn| {
            if !large.contains(&turn.attempt) {
                return false;
            }
            let states = now.get(&turn.attempt).map(Vec::as_slice).unwrap_or_default();
            let Some(state) = states.iter().find(|state| state.output == turn.output) else {
                return true;
            };
            let mut at = turn.reached;
            turn.taken.iter().rev().any(|taken| {
                let end = at;
                at -= taken.source_len();
                matches!(taken, Taken::Bytes(_))
                    && state.dropped.iter().any(|range| range.start < end && at < range.end)
            })
        };
        turns.into_iter().filter(|turn| !raced(turn)).collect()
    }
}

async fn outputs_of(runtime: Arc<dyn Runtime>, attempt: AttemptId) -> Option<(AttemptId, Vec<OutputState>)> {
    match runtime.outputs(attempt).await {
        Ok(outputs) => Some((attempt, outputs)),
        Err(error) => {
            tracing::warn!(%attempt, %error, "the runtime can't tell an attempt's output; trying again");
            None
        }
    }
}

/// Takes a stream's new bytes, and the gaps between them.
async fn take(runtime: Arc<dyn Runtime>, mut turn: Turn, state: OutputState, quota: u64) -> Turn {
    let mut left = quota;
    for range in &state.dropped {
        if range.end <= turn.reached {
            continue;
        }
        turn.take_bytes(&*runtime, range.start.min(state.length), &mut left)
            .await;
        if turn.reached < range.start {
            return turn;
        }
        turn.taken.push(Taken::Gap {
            reason: DROPPED,
            bytes: Some(range.end - turn.reached),
        });
        turn.reached = range.end;
    }
    turn.take_bytes(&*runtime, state.length, &mut left).await;
    turn.last = state.ended && turn.reached >= state.length;
    turn
}

impl Turn {
    async fn take_bytes(&mut self, runtime: &dyn Runtime, until: u64, left: &mut u64) {
        while self.reached < until && *left > 0 {
            let limit = (until - self.reached).min(*left).min(4 << 20) as usize;
            match runtime.read(&self.output, self.reached, limit).await {
                Ok(bytes) if bytes.is_empty() => return,
                Ok(bytes) => {
                    self.reached += bytes.len() as u64;
                    *left -= bytes.len() as u64;
                    self.taken.push(Taken::Bytes(bytes));
                }
                Err(error) => {
                    let output = &self.output;
                    tracing::warn!(attempt = %self.attempt, replica = %output.key, stream = %output.stream, %error,
                        "output can't be read; trying again");
                    return;
                }
            }
        }
    }
}

impl Taken {
    fn len(&self) -> usize {
        match self {
            Taken::Bytes(bytes) => Bytes::len(bytes),
            Taken::Gap { .. } => 0,
        }
    }

    fn source_len(&self) -> u64 {
        match self {
            Taken::Bytes(bytes) => bytes.len() as u64,
            Taken::Gap { bytes, .. } => bytes.unwrap_or(0),
        }
    }
}
