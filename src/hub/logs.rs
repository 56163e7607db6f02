//! Following a job's logs: catch up from the store, then live.

use std::{collections::HashMap, sync::Arc};

use bytes::Bytes;
use futures::Stream;
use serde_json::json;
use tokio::sync::{broadcast::error::RecvError, mpsc};
use trainyard_core::model::StreamId;

use super::{Channel, HEARTBEAT, Hub, Inner, Subscription, frame, live, lock};
use crate::{
    db::logs::{JobKey, StreamRow, read},
    logs::{
        LogsError,
        line::{Encoder, Form},
        merge::{Begin, Merged, Placed},
        page::{self, Filter, Query},
        position::{Place, Position},
        run::RunBody,
        stream::From,
    },
};

/// What becomes of a reader that is slower than the job prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slow {
    /// It reads everything, from the store where need be: a program that saves lines.
    ReadsAll,
    /// It is told how much it missed and goes on with what is new: a person who watches.
    Skips,
}

/// Text of one message while catching up.
const MESSAGE: usize = 256 << 10;
/// Messages that wait for the connection; while they do, nothing more is read.
const AHEAD: usize = 4;
/// Small messages that wait are sent as one write.
const TOGETHER: usize = 64 << 10;

impl Hub {
    /// Server-Sent Events of a job's lines, as bytes:
    ///
    /// - `lines`: one [`LogLine`](crate::logs::line::LogLine) of JSON per data line; `id` is a position from which
    ///   following goes on ([`Begin::Position`]). A line with `partial` has no end yet and is sent again under its
    ///   number; such a message has no `id`.
    /// - `skipped`: `{"bytes": n}` were not sent to this slow reader.
    /// - `end`: nothing more will come.
    /// - `failed`: the store can't be read now; come back with the last id.
    pub fn follow_logs(
        &self,
        key: JobKey,
        filter: Filter,
        begin: Begin,
        slow: Slow,
    ) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
        let (sender, receiver) = mpsc::channel(AHEAD);
        let follower = Follower {
            inner: self.inner.clone(),
            key,
            filter,
            slow,
            sender,
            position: Position::start(),
            ends: HashMap::new(),
        };
        let stop = self.inner.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = follower.run(begin) => {}
            }
        });
        tokio_stream::wrappers::ReceiverStream::new(receiver)
    }

    /// How many jobs are followed in this process.
    pub fn followed_jobs(&self) -> usize {
        lock(&self.inner.logs).len()
    }
}

fn subscribe(inner: &Arc<Inner>, key: JobKey) -> Subscription<live::Item> {
    let mut logs = lock(&inner.logs);
    if let Some(channel) = logs.get(&key.job()) {
        return channel.subscribe();
    }
    let (channel, ready) = Channel::new(inner.limits);
    let subscription = channel.subscribe();
    let reader = live::run(inner.clone(), key, channel.sender.clone(), channel.wake.clone(), ready);
    logs.insert(key.job(), channel);
    drop(logs);
    tokio::spawn(reader);
    subscription
}

/// The reader went away, or the store can't be read.
enum Gone {
    Client,
    Failed(LogsError),
}

impl<E: Into<LogsError>> std::convert::From<E> for Gone {
    fn from(error: E) -> Self {
        Gone::Failed(error.into())
    }
}

struct Follower {
    inner: Arc<Inner>,
    key: JobKey,
    filter: Filter,
    slow: Slow,
    sender: mpsc::Sender<Bytes>,
    position: Position,
    /// How far each stream was sent, for telling how much was skipped.
    ends: HashMap<StreamId, u64>,
}

impl Follower {
    async fn run(mut self, begin: Begin) {
        if let Err(Gone::Failed(error)) = self.follow(begin).await {
            tracing::warn!(job = %self.key.job(), %error, "a live view ends: the store can't be read");
            let words = json!({"message": "the logs can't be read now; reconnect to go on"});
            self.send(frame::of_json(None, "failed", &words.to_string())).await.ok();
        }
    }

    async fn follow(&mut self, begin: Begin) -> Result<(), Gone> {
        let mut subscription = subscribe(&self.inner, self.key);
        let mut begin = begin;
        if let Begin::From(From::Tail(_)) = begin {
            begin = self.tail(begin).await?;
        }
        let mut behind = true;
        loop {
            if behind {
                // Only from now on does the live reader miss nothing; what was stored before is read from the store.
                let ready = tokio::select! {
                    ready = subscription.is_ready() => ready,
                    () = self.sender.closed() => return Err(Gone::Client),
                };
                if !ready {
                    subscription = subscribe(&self.inner, self.key);
                    continue;
                }
                self.catch_up(begin).await?;
                begin = Begin::Position(self.position.clone());
                behind = false;
            }
            let item = tokio::select! {
                item = subscription.receiver.recv() => item,
                () = tokio::time::sleep(HEARTBEAT) => {
                    self.send(frame::heartbeat()).await?;
                    continue;
                }
                () = self.sender.closed() => return Err(Gone::Client),
            };
            let missed = match item {
                Ok(item) => match &*item {
                    live::Item::Lines(lines) if self.filter.mpi_rank.is_some() => {
                        self.read_live(lines).await?;
                        false
                    }
                    live::Item::Lines(lines) => {
                        self.send_live(lines, &mut subscription).await?;
                        false
                    }
                    live::Item::TooMuch => true,
                    live::Item::End => {
                        self.catch_up(Begin::Position(self.position.clone())).await?;
                        return self.send(frame::of_json(None, "end", "{}")).await;
                    }
                },
                Err(RecvError::Lagged(_)) => true,
                Err(RecvError::Closed) => {
                    subscription = subscribe(&self.inner, self.key);
                    true
                }
            };
            if missed {
                match self.slow {
                    Slow::ReadsAll => behind = true,
                    Slow::Skips => {
                        // What waits was sent before the place that is skipped to.
                        subscription = Subscription {
                            receiver: subscription.receiver.resubscribe(),
                            ready: subscription.ready,
                        };
                        self.skip().await?;
                    }
                }
                begin = Begin::Position(self.position.clone());
            }
        }
    }

    async fn send(&self, message: Bytes) -> Result<(), Gone> {
        self.sender.send(message).await.map_err(|_| Gone::Client)
    }

    /// The last lines first; following goes on behind them.
    async fn tail(&mut self, begin: Begin) -> Result<Begin, Gone> {
        let streams = page::streams(&self.inner.db, self.key, &self.filter).await?;
        let query = Query {
            begin,
            until: None,
            lines: page::LINES,
            bytes: page::BYTES,
            mpi_rank: self.filter.mpi_rank,
            look: page::LOOK,
        };
        let page = page::page(&self.inner.db, &streams, &query).await?;
        self.position = page.next.clone();
        for placed in &page.runs {
            self.ends.insert(streams[placed.stream].id, placed.run.end);
        }
        let data = page.encode(&streams, Form::Sse, false);
        if !data.is_empty() {
            let id = self.position.to_string();
            self.send(frame::of_lines(Some(&id), "lines", &[&data])).await?;
        }
        Ok(Begin::Position(page.next))
    }

    /// Sends what is stored now, from a beginning on.
    async fn catch_up(&mut self, begin: Begin) -> Result<(), Gone> {
        let all = read::streams(&self.inner.db, self.key).await?;
        let streams: Vec<StreamRow> = all.iter().filter(|row| self.filter.takes(row)).cloned().collect();
        if !matches!(begin, Begin::Position(_)) {
            self.position = page::before(&streams, &begin);
        }
        let encoders: Vec<Encoder> = streams.iter().map(|row| Encoder::new(row, Form::Sse, false)).collect();
        let mut merged = Merged::new(&self.inner.db, &streams, begin).said_by(self.filter.mpi_rank);
        let mut passed = 0;
        let mut data = Vec::new();
        let mut unfinished = Vec::new();
        while let Some(Placed { stream, run }) = merged.next().await? {
            let row = &streams[stream];
            if matches!(run.body, RunBody::Unfinished { .. }) {
                encoders[stream].write(&mut unfinished, &run);
                continue;
            }
            passed += run.passed_bytes();
            let mut rest = Some(run);
            while let Some(run) = rest {
                let (some, more) = run.split(usize::MAX, MESSAGE);
                encoders[stream].write(&mut data, &some);
                self.position.reach(row.attempt, some.place(row));
                self.ends.insert(row.id, some.end);
                rest = more;
                if data.len() >= MESSAGE || passed >= page::LOOK {
                    // Even where nothing was wanted: who comes back need not begin anew, and who left is noticed.
                    self.send_lines(&std::mem::take(&mut data)).await?;
                    passed = 0;
                }
            }
        }
        // The snapshot held every flush up to the newest one whole.
        for row in &all {
            if let Some(at) = row.last_at {
                self.position.reach(row.attempt, Place::after(at.timestamp_millis()));
            }
        }
        self.position.finish_ended(&all);
        if !data.is_empty() {
            self.send_lines(&data).await?;
        }
        if !unfinished.is_empty() {
            self.send(frame::of_lines(None, "lines", &[&unfinished])).await?;
        }
        Ok(())
    }

    async fn send_lines(&self, data: &[u8]) -> Result<(), Gone> {
        let id = self.position.to_string();
        self.send(frame::of_lines(Some(&id), "lines", &[data])).await
    }

    /// Sends what the live reader sent, without what this reader has had or does not want; together with what waits
    /// behind it.
    async fn send_live(
        &mut self,
        lines: &live::Lines,
        subscription: &mut Subscription<live::Item>,
    ) -> Result<(), Gone> {
        let Some(first) = self.message(lines) else {
            return Ok(());
        };
        if first.len() >= TOGETHER || subscription.receiver.is_empty() {
            return self.send(first).await;
        }
        let mut together = first.to_vec();
        while together.len() < TOGETHER {
            // Anything but lines is rare; it is met again by the loop, through the same way.
            let Ok(item) = subscription.receiver.try_recv() else {
                break;
            };
            match &*item {
                live::Item::Lines(lines) => together.extend_from_slice(&self.message(lines).unwrap_or_default()),
                live::Item::TooMuch | live::Item::End => {
                    self.send(Bytes::from(together)).await?;
                    *subscription = subscribe(&self.inner, self.key);
                    subscription.is_ready().await;
                    return match (&*item, self.slow) {
                        (live::Item::TooMuch, Slow::Skips) => self.skip().await,
                        _ => self.catch_up(Begin::Position(self.position.clone())).await,
                    };
                }
            }
        }
        self.send(Bytes::from(together)).await
    }

    /// What the live reader sent is text as it is shown, where tags may be overwritten: the lines of a rank of `mpirun` are
    /// read from the store. What waits behind this is read with it, and then was had.
    async fn read_live(&mut self, lines: &live::Lines) -> Result<(), Gone> {
        let new =
            |part: &live::Part| !self.position.covers(part.row.attempt, part.place) && self.filter.takes(&part.row);
        if lines.parts.iter().any(new) {
            self.catch_up(Begin::Position(self.position.clone())).await?;
        }
        Ok(())
    }

    /// The message for this reader. `None`: nothing in it is new to it, or wanted.
    fn message(&mut self, lines: &live::Lines) -> Option<Bytes> {
        let wanted: Vec<&live::Part> = lines
            .parts
            .iter()
            .filter(|part| {
                let had = lines.position.is_some() && self.position.covers(part.row.attempt, part.place);
                !had && self.filter.takes(&part.row)
            })
            .collect();
        let message = if wanted.len() == lines.parts.len() {
            Some(lines.message.clone())
        } else if wanted.is_empty() {
            None
        } else {
            let id = lines.position.as_ref().map(Position::to_string);
            let data: Vec<&[u8]> = wanted.iter().map(|part| &lines.data[part.range.clone()]).collect();
            Some(frame::of_lines(id.as_deref(), "lines", &data))
        };
        if let Some(position) = &lines.position {
            for part in &wanted {
                self.ends.insert(part.row.id, part.place.end);
            }
            self.position.join(position);
        }
        message
    }

    /// Goes to the end of what is stored, and tells how much was left out.
    async fn skip(&mut self) -> Result<(), Gone> {
        let all = read::streams(&self.inner.db, self.key).await?;
        let mut bytes = 0;
        for row in &all {
            if self.filter.takes(row) {
                let end = self.ends.insert(row.id, row.line_start).unwrap_or(0);
                bytes += row.line_start.saturating_sub(end);
            }
            if let Some(at) = row.last_at {
                self.position.reach(row.attempt, Place::after(at.timestamp_millis()));
            }
        }
        let id = self.position.to_string();
        self.send(frame::of_json(
            Some(&id),
            "skipped",
            &json!({"bytes": bytes}).to_string(),
        ))
        .await
    }
}
