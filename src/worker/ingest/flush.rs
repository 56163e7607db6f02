//! One flush: read what is new in all due streams, cut it, store it in one transaction.
//!
//! Nothing in memory moves before the commit. Whatever happens in between, the next flush starts from memory that
//! agrees with the records, or from the records.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
};

use chrono::{DateTime, Utc};
use trainyard_core::model::{AttemptId, JobId, StreamId};

use super::{
    Ingest, IngestError, Stream,
    cut::{Done, Taken, Task, cut},
    news::News,
    take::Turn,
};
use crate::{
    db::{
        DbError, attempts,
        holdings::{self, Holding},
        logs::{
            JobKey,
            write::{self, Advance},
        },
        notify,
        tasks::{self, TaskKind},
    },
    runtimes::OutputState,
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
        let mut news = vec![self.news(&done, at)];
        let mut flushed = match self.store(holding, &done, &finished, &news, at, now).await {
            // Numbers that the database takes for impossible must not hold up what was printed, nor other jobs' numbers.
            Err(IngestError::Db(error)) if error.is_of_the_data() => {
                news = news.into_iter().flat_map(News::by_job).collect();
                self.store(holding, &done, &finished, &news, at, now).await?
            }
            other => other?,
        };
        self.newest = at;
        self.unsure = false;
        flushed.backlog = backlog;
        self.apply(done, &flushed).await;
        Ok(flushed)
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
        news: &[News],
        at: i64,
        now: DateTime<Utc>,
    ) -> Result<Flushed, IngestError> {
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
                    catch: Arc::new(|_, _| {}),
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
        let jobs: BTreeSet<JobId> = news.iter().flat_map(News::subjects).collect();
        if !jobs.is_empty() {
            write::lock_jobs(&mut tx, &jobs.into_iter().collect::<Vec<_>>()).await?;
        }
        if !advances.is_empty() {
            write::store(&mut tx, chunks, &advances).await?;
        }
        let told = match news {
            [all] => all.note(&mut tx, at, now).await?,
            parts => News::note_what_can_be(parts, &mut tx, at, now).await?,
        };
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

/// Giving back less is not worth the calls.
const GIVE_BACK_FROM: u64 = 64 << 10;

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
