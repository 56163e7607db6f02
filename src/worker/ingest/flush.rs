//! One flush: read what is new in all due streams, cut it, store it in one transaction.
//!
//! Nothing in memory moves before the commit. Whatever happens in between, the next flush starts from memory that
//! agrees with the records, or from the records.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use serde_json::json;
use trainyard_core::model::{AttemptId, JobId, ReplicaKey, StreamId};

use super::{
    Attempt, Ingest, IngestError, Stream,
    cut::{Done, Taken, Task, cut},
};
use crate::{
    db::{
        DbError, attempts,
        events::{self, NewEvent, Subject},
        holdings::{self, Holding},
        logs::{
            JobKey,
            write::{self, Advance, JobNews, ReplicaNews},
        },
        metrics::{self, Owner, Point, SeriesKey},
        notify,
        tasks::{self, TaskKind},
    },
    runtimes::{OutputRef, OutputState},
    worker::seal::SealRequest,
};

/// What one flush did.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Flushed {
    /// Bytes of output that were stored, after masking.
    pub bytes: u64,
    pub lines: u64,
    pub streams: usize,
    /// More waits than one flush takes: flush again at once.
    pub backlog: bool,
    /// Attempts of which every byte is stored now.
    pub stored: Vec<(AttemptId, JobId)>,
}

/// A stream's turn in this flush.
struct Turn {
    attempt: AttemptId,
    stream: StreamId,
    output: OutputRef,
    taken: Vec<Taken>,
    last: bool,
    /// How much of the source was taken, up to which offset.
    reached: u64,
}

const DROPPED: &str = "it was written faster than it could be stored, and the limit for unstored output was passed";
const VANISHED: &str = "the machine no longer has the rest of this stream";

impl Ingest {
    pub(super) async fn flush_attempts(
        &mut self,
        holding: &Holding,
        due: &[AttemptId],
        now: DateTime<Utc>,
    ) -> Result<Flushed, IngestError> {
        let outputs = self.outputs(due).await;
        self.open_new_streams(holding, &outputs, now).await?;
        let (turns, backlog) = self.read(&outputs).await;
        let finished = self.finished(&outputs, &turns);
        if turns.is_empty() && finished.is_empty() {
            return Ok(Flushed {
                backlog,
                ..Flushed::default()
            });
        }
        // Later than every flush before it, whatever the clock says: readers resume by it.
        let at = now.timestamp_millis().max(self.newest + 1);
        let done = self.cut(turns, at).await?;
        self.unsure = true;
        let mut flushed = self.store(holding, &done, &finished, at, now).await?;
        self.newest = at;
        self.unsure = false;
        flushed.backlog = backlog;
        self.apply(done, &flushed).await;
        Ok(flushed)
    }

    async fn outputs(&self, due: &[AttemptId]) -> HashMap<AttemptId, Vec<OutputState>> {
        stream::iter(due.iter().copied())
            .map(|attempt| async move {
                match self.runtime.outputs(attempt).await {
                    Ok(outputs) => Some((attempt, outputs)),
                    Err(error) => {
                        tracing::warn!(%attempt, %error, "the runtime can't tell an attempt's output; trying again");
                        None
                    }
                }
            })
            .buffer_unordered(16)
            .filter_map(|found| async { found })
            .collect()
            .await
    }

    async fn open_new_streams(
        &mut self,
        holding: &Holding,
        outputs: &HashMap<AttemptId, Vec<OutputState>>,
        now: DateTime<Utc>,
    ) -> Result<(), IngestError> {
        let mut tx = None;
        for (id, states) in outputs {
            let Some(attempt) = self.attempts.get_mut(id) else {
                continue;
            };
            let new = attempt.unknown(states);
            if new.is_empty() && attempt.opened {
                continue;
            }
            let tx = match &mut tx {
                Some(tx) => tx,
                None => {
                    let mut begun = self.db.begin().await?;
                    holdings::check(&mut begun, holding, now).await?;
                    tx.insert(begun)
                }
            };
            let written = write::open_streams(tx, attempt.open.key, *id, &new).await?;
            if !attempt.opened {
                self.newest = self.newest.max(write::newest_flush(tx, attempt.open.key).await?);
                attempt.opened = true;
            }
            for written in written {
                attempt
                    .streams
                    .entry(written.row.id)
                    .or_insert_with(|| Stream::of(&written));
            }
            for state in states {
                if let Some(stream) = attempt.streams.get_mut(&super::id_of(&state.output)) {
                    stream.output.get_or_insert_with(|| state.output.clone());
                }
            }
        }
        if let Some(tx) = tx {
            tx.commit().await.map_err(crate::db::DbError::from)?;
        }
        Ok(())
    }

    /// Reads what is new, at most the budget over all streams; whoever got less than there was comes first next time.
    async fn read(&mut self, outputs: &HashMap<AttemptId, Vec<OutputState>>) -> (Vec<Turn>, bool) {
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
        let waiting: u64 = wanting
            .iter()
            .map(|(_, stream, state)| state.length - stream.state.source_offset.min(state.length))
            .sum();
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
            let take = quota.min(left);
            left = left.saturating_sub(take.min(state.length - stream.state.source_offset.min(state.length)));
            if take > 0 {
                plans.push((attempt.open.id, *stream, *state, take));
            }
        }
        // Boxed: a closure over borrowed arguments is not `Send` for every lifetime, and this runs in a spawned task.
        let takes: Vec<BoxFuture<'_, Option<Turn>>> = plans
            .into_iter()
            .map(|(attempt, stream, state, take)| self.take(attempt, stream, state, take).boxed())
            .collect();
        let read: Vec<Option<Turn>> = stream::iter(takes).buffer_unordered(8).collect().await;
        let read = read.into_iter().flatten().collect();
        let read = self.without_raced(read).await;
        (read, waiting > self.settings.budget)
    }

    /// Takes a stream's new bytes and the gaps between them.
    async fn take(&self, attempt: AttemptId, stream: &Stream, state: &OutputState, quota: u64) -> Option<Turn> {
        let mut turn = Turn {
            attempt,
            stream: stream.state.id,
            output: state.output.clone(),
            taken: Vec::new(),
            last: false,
            reached: stream.state.source_offset,
        };
        let mut left = quota;
        for range in state
            .dropped
            .iter()
            .filter(|range| range.end > stream.state.source_offset)
        {
            self.take_bytes(&mut turn, range.start.min(state.length), &mut left)
                .await;
            if turn.reached < range.start {
                break;
            }
            turn.taken.push(Taken::Gap {
                reason: DROPPED,
                bytes: Some(range.end - turn.reached),
            });
            turn.reached = range.end;
        }
        if state.dropped.iter().all(|range| range.end <= turn.reached) {
            self.take_bytes(&mut turn, state.length, &mut left).await;
        }
        turn.last = state.ended && turn.reached >= state.length;
        (turn.last || !turn.taken.is_empty()).then_some(turn)
    }

    async fn take_bytes(&self, turn: &mut Turn, until: u64, left: &mut u64) {
        while turn.reached < until && *left > 0 {
            let limit = (until - turn.reached).min(*left).min(4 << 20) as usize;
            match self.runtime.read(&turn.output, turn.reached, limit).await {
                Ok(bytes) if bytes.is_empty() => return,
                Ok(bytes) => {
                    turn.reached += bytes.len() as u64;
                    *left -= bytes.len() as u64;
                    turn.taken.push(Taken::Bytes(bytes));
                }
                Err(error) => {
                    let output = &turn.output;
                    tracing::warn!(attempt = %turn.attempt, replica = %output.key, stream = %output.stream, %error,
                        "output can't be read; trying again");
                    return;
                }
            }
        }
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

    /// Ended attempts of which everything will be stored by this flush, with streams that the runtime has lost.
    fn finished(
        &self,
        outputs: &HashMap<AttemptId, Vec<OutputState>>,
        turns: &[Turn],
    ) -> Vec<(AttemptId, Vec<StreamId>)> {
        let ends: BTreeSet<StreamId> = turns.iter().filter(|turn| turn.last).map(|turn| turn.stream).collect();
        outputs
            .iter()
            .filter_map(|(id, states)| {
                let attempt = self.attempts.get(id).filter(|attempt| attempt.open.ended)?;
                let there: BTreeSet<StreamId> = states.iter().map(|state| super::id_of(&state.output)).collect();
                let whole = there.iter().all(|stream| {
                    ends.contains(stream) || attempt.streams.get(stream).is_some_and(|stream| stream.state.ended)
                });
                let lost = attempt
                    .streams
                    .values()
                    .filter(|stream| !stream.state.ended && !there.contains(&stream.state.id))
                    .map(|stream| stream.state.id);
                whole.then(|| (*id, lost.collect()))
            })
            .collect()
    }

    /// Cuts all turns aside, on a thread that may compute.
    async fn cut(&self, turns: Vec<Turn>, at: i64) -> Result<Vec<(AttemptId, u64, Done)>, IngestError> {
        let tasks: Vec<(AttemptId, Task)> = turns
            .into_iter()
            .filter_map(|turn| {
                let attempt = self.attempts.get(&turn.attempt)?;
                let stream = attempt.streams.get(&turn.stream)?;
                let about = attempt.about.as_ref()?;
                let task = Task {
                    state: stream.state.clone(),
                    taken: turn.taken,
                    last: turn.last,
                    masker: about.masker.clone(),
                    catch: about.catch.clone(),
                    at,
                };
                Some((turn.attempt, task))
            })
            .collect();
        let work = move || {
            tasks
                .into_iter()
                .map(|(attempt, task)| {
                    let from = task.state.source_offset;
                    (attempt, from, cut(task))
                })
                // A stream that only holds back what may begin a secret has nothing to store yet.
                .filter(|(_, from, done)| {
                    done.state.source_offset != *from || done.state.ended || !done.chunks.is_empty()
                })
                .collect()
        };
        tokio::task::spawn_blocking(work)
            .await
            .map_err(|_| IngestError::Stopped)
    }

    async fn store(
        &self,
        holding: &Holding,
        done: &[(AttemptId, u64, Done)],
        finished: &[(AttemptId, Vec<StreamId>)],
        at: i64,
        now: DateTime<Utc>,
    ) -> Result<Flushed, IngestError> {
        let news = self.news(done, at);
        let mut flushed = Flushed {
            streams: done.len(),
            ..Flushed::default()
        };
        let mut chunks = Vec::new();
        let mut advances = Vec::new();
        for (attempt, from, done) in done {
            let key = self.attempts[attempt].open.key;
            flushed.bytes += done.chunks.iter().map(|chunk| chunk.bytes).sum::<u64>();
            flushed.lines += done.chunks.iter().map(|chunk| chunk.lines).sum::<u64>();
            chunks.extend(done.chunks.iter().map(|chunk| (key, chunk.clone())));
            advances.push(advance(key, *from, done, at));
        }
        for (attempt, lost) in finished {
            let attempt = &self.attempts[attempt];
            for stream in lost {
                let task = Task {
                    state: attempt.streams[stream].state.clone(),
                    taken: vec![Taken::Gap {
                        reason: VANISHED,
                        bytes: None,
                    }],
                    last: true,
                    masker: Default::default(),
                    catch: std::sync::Arc::new(|_| Default::default()),
                    at,
                };
                let from = task.state.source_offset;
                let done = cut(task);
                chunks.extend(done.chunks.iter().map(|chunk| (attempt.open.key, chunk.clone())));
                advances.push(advance(attempt.open.key, from, &done, at));
            }
            flushed.stored.push((attempt.open.id, attempt.open.key.job()));
        }

        let mut tx = self.db.begin().await?;
        holdings::check(&mut tx, holding, now).await?;
        if !news.jobs.is_empty() || !news.series.is_empty() || !news.checkpoints.is_empty() {
            let jobs: BTreeSet<JobId> = news
                .jobs
                .iter()
                .map(|news| news.job)
                .chain(news.series.keys().map(|key| key.job()))
                .chain(news.checkpoints.iter().map(|checkpoint| checkpoint.key.job()))
                .collect();
            write::lock_jobs(&mut tx, &jobs.into_iter().collect::<Vec<_>>()).await?;
        }
        if !advances.is_empty() {
            write::store(&mut tx, chunks, &advances).await?;
        }
        write::note_replicas(&mut tx, &news.replicas).await?;
        write::note_jobs(&mut tx, &news.jobs).await?;
        for (key, series) in &news.series {
            metrics::append(&mut tx, Owner::Job(*key), series).await?;
        }
        let mut told = BTreeSet::new();
        for checkpoint in &news.checkpoints {
            if checkpoint.record(&mut tx, at, now).await? {
                told.insert(checkpoint.key.job().0);
            }
        }
        let whole: Vec<AttemptId> = finished.iter().map(|(attempt, _)| *attempt).collect();
        let mut goes_on = false;
        if !whole.is_empty() {
            write::output_stored(&mut tx, &whole, at).await?;
            goes_on = attempts::settle(&mut tx, &whole).await?;
        }
        let jobs: BTreeSet<uuid::Uuid> = advances.iter().map(|advance| advance.key.job().0).collect();
        for (channel, ids) in [(notify::LOGS, jobs), (notify::EVENTS, told)] {
            for payload in notify::payloads(&ids.into_iter().collect::<Vec<_>>()) {
                notify::send(&mut *tx, channel, &payload).await?;
            }
        }
        tx.commit().await.map_err(crate::db::DbError::from)?;
        // The next attempt of a job waits for the output of the one before it, since its checkpoint may be in there. In
        // a transaction of its own: the queue's look takes these rows the other way round. Lost, it costs seconds.
        if goes_on && let Err(error) = self.poke_queue(now).await {
            tracing::debug!(%error, "nobody was told that an attempt's output is whole");
        }
        Ok(flushed)
    }

    async fn poke_queue(&self, now: DateTime<Utc>) -> Result<(), DbError> {
        let mut tx = self.db.begin().await?;
        tasks::poke(&mut tx, TaskKind::Queue, self.cluster.0, None, now).await?;
        tx.commit().await?;
        notify::send(self.db.pool(), notify::TASKS, "").await
    }

    fn news(&self, done: &[(AttemptId, u64, Done)], at: i64) -> News {
        let mut news = News::default();
        let mut replicas: BTreeMap<(AttemptId, ReplicaKey), Option<i64>> = BTreeMap::new();
        let mut jobs: BTreeMap<JobId, JobNews> = BTreeMap::new();
        for (id, _, done) in done {
            let attempt = &self.attempts[id];
            let replica = attempt.streams[&done.state.id].replica.clone();
            if done.chunks.iter().any(|chunk| chunk.bytes > 0) || done.haul.step.is_some() {
                let step = replicas.entry((*id, replica.clone())).or_default();
                *step = done.haul.step.max(*step);
            }
            if done.haul.is_empty() {
                continue;
            }
            if done.haul.step.is_some() || done.haul.total.is_some() {
                let job = jobs.entry(attempt.open.key.job()).or_insert(JobNews {
                    job: attempt.open.key.job(),
                    attempt: attempt.open.number,
                    step: None,
                    total: None,
                    at,
                });
                job.step = job.step.max(done.haul.step);
                job.total = done.haul.total.or(job.total);
            }
            let series = news.series.entry(attempt.open.key).or_default();
            for (name, points) in &done.haul.series {
                let key = SeriesKey {
                    attempt: attempt.open.number,
                    replica: Some(replica.clone()),
                    name: name.clone(),
                };
                series.entry(key).or_default().extend(points.iter().copied());
            }
            news.checkpoints
                .extend(done.haul.checkpoints.iter().map(|caught| Checkpoint {
                    key: attempt.open.key,
                    attempt: attempt.open.number,
                    replica: replica.clone(),
                    step: caught.step,
                    path: caught.path.clone(),
                }));
        }
        news.replicas = replicas
            .into_iter()
            .map(|((attempt, replica), step)| ReplicaNews {
                attempt,
                replica,
                at,
                step,
            })
            .collect();
        news.jobs = jobs.into_values().collect();
        news
    }

    /// The flush is stored: memory follows, space goes back, and what deserves merging is named.
    async fn apply(&mut self, done: Vec<(AttemptId, u64, Done)>, flushed: &Flushed) {
        let mut backs = Vec::new();
        for (id, _, done) in done {
            let Some(stream) = self
                .attempts
                .get_mut(&id)
                .and_then(|attempt| attempt.streams.get_mut(&done.state.id))
            else {
                continue;
            };
            for chunk in done.chunks.iter().filter(|chunk| !chunk.sealed) {
                stream.unsealed_rows += 1;
                stream.unsealed_bytes += chunk.bytes;
            }
            stream.state = done.state;
            if stream.state.source_offset >= stream.given_back + GIVE_BACK_FROM || stream.state.ended {
                stream.given_back = stream.state.source_offset;
                backs.push((stream.output.clone(), stream.given_back));
            }
        }
        for (output, offset) in backs {
            let Some(output) = output else { continue };
            // Not given back is only space; the next time comes with the next flush or with the release.
            if let Err(error) = self.runtime.give_back(&output, offset).await {
                tracing::warn!(attempt = %output.attempt, replica = %output.key, %error, "space of stored output can't be given back");
            }
        }
        self.ask_for_seals();
        for (attempt, _) in &flushed.stored {
            if let Some(attempt) = self.attempts.remove(attempt) {
                // A full queue leaves some small rows; nothing depends on them.
                self.seals.try_send(SealRequest::Metrics(attempt.open.key)).ok();
            }
        }
    }
}

/// Reads of this size may race with output being given up.
const RACE_FROM: usize = 64 << 10;
/// Giving back less is not worth the calls.
const GIVE_BACK_FROM: u64 = 64 << 10;

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

fn advance(key: JobKey, from: u64, done: &Done, at: i64) -> Advance {
    Advance {
        key,
        stream: done.state.id,
        from_source: from,
        source_offset: done.state.source_offset,
        bytes: done.state.bytes,
        lines: done.state.lines,
        line_start: done.state.line_start,
        dropped_bytes: done.state.dropped_bytes,
        stored_bytes: done.stored_bytes(),
        state: done.state.encode(),
        at,
        ended: done.state.ended,
    }
}

/// What follows from a flush's lines.
#[derive(Debug, Default)]
struct News {
    replicas: Vec<ReplicaNews>,
    jobs: Vec<JobNews>,
    series: BTreeMap<JobKey, BTreeMap<SeriesKey, Vec<Point>>>,
    checkpoints: Vec<Checkpoint>,
}

#[derive(Debug)]
struct Checkpoint {
    key: JobKey,
    attempt: i32,
    replica: ReplicaKey,
    step: i64,
    path: String,
}

impl Checkpoint {
    /// `false`: another rank reported it before.
    async fn record(&self, tx: &mut crate::db::Tx<'_>, at: i64, now: DateTime<Utc>) -> Result<bool, IngestError> {
        if !write::add_checkpoint(tx, self.key.job(), self.attempt, self.step, &self.path, at).await? {
            return Ok(false);
        }
        let event = NewEvent {
            kind: "job.checkpoint",
            actor: None,
            message: &format!("Checkpoint at step {} in {}", self.step, self.path),
            data: json!({
                "attempt": self.attempt, "step": self.step, "path": self.path, "replica": self.replica.to_string(),
            }),
        };
        events::append(tx, Subject::Job(self.key.job()), event, now).await?;
        Ok(true)
    }
}
