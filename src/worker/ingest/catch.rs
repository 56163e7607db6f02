//! Metrics and checkpoints in output, line by line, across flushes.

use std::{collections::BTreeMap, sync::Arc};

use super::state::{LONGEST_CAUGHT, StreamState};
use crate::db::metrics::Point;

pub use trainyard_core::catch::{Caught, CaughtCheckpoint, CaughtMetric};

/// How the lines of one job are read: what a line holds is handed on, by rank where several stand in one.
pub type Catch = Arc<dyn Fn(&[u8], &mut dyn FnMut(Caught)) + Send + Sync>;

/// Everything that one stream's lines held in one flush.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Haul {
    pub series: BTreeMap<String, Vec<Point>>,
    /// The furthest step.
    pub step: Option<i64>,
    pub total: Option<i64>,
    pub checkpoints: Vec<CaughtCheckpoint>,
    /// The ranks of an MPI job whose tags were seen, and what their lines held.
    pub ranks: BTreeMap<u32, OfRank>,
}

/// What one rank's lines held.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct OfRank {
    pub series: BTreeMap<String, Vec<Point>>,
    pub step: Option<i64>,
}

impl Haul {
    pub fn is_empty(&self) -> bool {
        self.series.is_empty() && self.step.is_none() && self.total.is_none() && self.checkpoints.is_empty()
    }

    /// Reads masked output that was just cut. What a carriage return ends counts as a line too: progress bars tell
    /// steps that no line end ever follows.
    pub fn read(&mut self, state: &mut StreamState, data: &[u8], catch: &Catch, at: i64) {
        let mut rest = data;
        while let Some(end) = memchr::memchr2(b'\n', b'\r', rest) {
            let (line, after) = (&rest[..end], &rest[end + 1..]);
            if state.open.is_empty() && !state.too_long {
                self.line(line, catch, at);
            } else {
                keep(state, line);
                self.finish(state, catch, at);
            }
            rest = after;
        }
        keep(state, rest);
    }

    /// The stream ended, or output is missing: what is unfinished stays as it is.
    pub fn finish(&mut self, state: &mut StreamState, catch: &Catch, at: i64) {
        let open = std::mem::take(&mut state.open);
        if !std::mem::take(&mut state.too_long) {
            self.line(&open, catch, at);
        }
    }

    fn line(&mut self, line: &[u8], catch: &Catch, at: i64) {
        if line.is_empty() || line.len() > LONGEST_CAUGHT {
            return;
        }
        catch(line, &mut |caught| self.take(caught, at));
    }

    fn take(&mut self, caught: Caught, at: i64) {
        let mut of_rank = caught.rank.map(|rank| self.ranks.entry(rank).or_default());
        if let Some(metric) = caught.metric {
            self.step = self.step.max(metric.step);
            self.total = metric.total.or(self.total);
            if let Some(of_rank) = &mut of_rank {
                of_rank.step = of_rank.step.max(metric.step);
            }
            let series = of_rank.map_or(&mut self.series, |of_rank| &mut of_rank.series);
            for (name, value) in metric.values {
                series.entry(name).or_default().push(Point {
                    step: metric.step,
                    at,
                    value,
                });
            }
        }
        if let Some(checkpoint) = caught.checkpoint {
            self.step = self.step.max(Some(checkpoint.step));
            self.checkpoints.push(checkpoint);
        }
    }
}

fn keep(state: &mut StreamState, part: &[u8]) {
    if state.too_long || state.open.len() + part.len() > LONGEST_CAUGHT {
        state.too_long = state.too_long || !part.is_empty();
        state.open.clear();
    } else {
        state.open.extend_from_slice(part);
    }
}
