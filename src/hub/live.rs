//! The one live reader of a followed job: polls the store when it is woken, encodes once, sends to all.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Range,
    sync::Arc,
    time::Instant,
};

use bytes::Bytes;
use tokio::sync::{broadcast, watch};
use trainyard_core::model::{JobId, StreamId};

use super::{Inner, LOOK, frame, leave};
use crate::{
    db::logs::{
        JobKey, StreamRow, follow,
        read::{self, Wanted},
    },
    logs::{
        LogsError,
        chunk::{self, Piece},
        line::{Encoder, Form},
        position::{Place, Position},
        run::{Cutter, Run},
    },
};

/// Text of one message.
const MESSAGE: usize = 256 << 10;
/// Unfinished lines up to this size are shown as they grow.
const PARTIAL: usize = 4 << 10;

/// What the live reader sends.
#[derive(Debug)]
pub(super) enum Item {
    Lines(Lines),
    /// So much came at once that it was not sent.
    TooMuch,
    /// Nothing more will come.
    End,
}

#[derive(Debug)]
pub(super) struct Lines {
    /// The whole message, for whoever wants everything and has read all before it.
    pub message: Bytes,
    /// Everything up to here is read behind it. `None`: lines without an end, which are sent again.
    pub position: Option<Position>,
    /// Data lines of all parts.
    pub data: Bytes,
    pub parts: Vec<Part>,
}

/// The lines of one run.
#[derive(Debug)]
pub(super) struct Part {
    pub row: Arc<StreamRow>,
    pub place: Place,
    /// Within the data.
    pub range: Range<usize>,
}

struct LiveStream {
    row: Arc<StreamRow>,
    cutter: Cutter,
    encoder: Encoder,
    /// How far the unfinished line was when it was last shown.
    shown: u64,
}

struct Live {
    inner: Arc<Inner>,
    key: JobKey,
    sender: broadcast::Sender<Arc<Item>>,
    streams: HashMap<StreamId, LiveStream>,
    /// The newest flush seen of each attempt.
    seen: BTreeMap<i32, i64>,
    position: Position,
    begun: bool,
}

/// Reads until nobody listens, or nothing more will come.
pub(super) async fn run(
    inner: Arc<Inner>,
    key: JobKey,
    sender: broadcast::Sender<Arc<Item>>,
    wake: Arc<tokio::sync::Notify>,
    ready: watch::Sender<bool>,
) {
    let job: JobId = key.job();
    inner.write_follows(&[job]).await;
    let mut live = Live {
        inner: inner.clone(),
        key,
        sender,
        streams: HashMap::new(),
        seen: BTreeMap::new(),
        position: Position::start(),
        begun: false,
    };
    let mut listened = Instant::now();
    loop {
        if live.sender.receiver_count() > 0 {
            listened = Instant::now();
        } else if listened.elapsed() > LOOK && leave(&inner.logs, &job) {
            return;
        }
        let news = match live.look().await {
            Ok(news) => {
                ready.send_replace(true);
                news
            }
            Err(error) => {
                tracing::warn!(%job, %error, "a followed job's output can't be read; trying again");
                false
            }
        };
        if !news && *ready.borrow() && follow::is_complete(&inner.db, job).await.unwrap_or(false) {
            // One more look: the last flush may have come between the two.
            if live.look().await.is_ok_and(|news| !news) {
                live.send(Item::End);
                super::lock(&inner.logs).remove(&job);
                return;
            }
        }
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = wake.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

impl Live {
    /// Sends what came since the last look. The first look only takes its place. `true`: there was something.
    async fn look(&mut self) -> Result<bool, LogsError> {
        let seen: Vec<(i32, i64)> = self.seen.iter().map(|(attempt, at)| (*attempt, *at)).collect();
        let moved = read::moved(&self.inner.db, self.key, &seen).await?;
        let began = std::mem::replace(&mut self.begun, true);
        let moved: Vec<StreamRow> = moved.into_iter().filter(|row| row.last_at.is_some()).collect();
        if moved.is_empty() {
            return Ok(false);
        }
        let waiting: u64 = moved.iter().map(|row| row.bytes.saturating_sub(self.from(row))).sum();
        if !began || waiting > self.inner.limits.text {
            self.jump(&moved);
            if began {
                self.send(Item::TooMuch);
            }
            return Ok(began);
        }
        let wanted: Vec<Wanted> = moved
            .iter()
            .map(|row| Wanted {
                stream: row.id,
                from: self.from(row),
                to: row.bytes,
                after: self.seen.get(&row.attempt).copied().unwrap_or(0),
            })
            .collect();
        let chunks = read::ranges(&self.inner.db, self.key, &wanted).await?;
        let ends: HashMap<StreamId, &StreamRow> = moved.iter().map(|row| (row.id, row)).collect();
        let mut pieces = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            let Some(row) = ends.get(&chunk.stream) else { continue };
            let id = chunk.stream;
            match chunk::open(chunk)? {
                // Of a later flush than the one this look is about.
                Piece::Gap(gap) if row.last_at.is_some_and(|last| gap.at > last.timestamp_millis()) => {}
                Piece::Gap(gap) => pieces.push((id, Piece::Gap(gap))),
                Piece::Output(output) => pieces.push((id, Piece::Output(output.until(row.bytes)))),
            }
        }
        // Nothing above changed anything, so a failure there loses nothing; nothing below fails.
        self.take(moved, pieces);
        Ok(true)
    }

    fn from(&self, row: &StreamRow) -> u64 {
        self.streams.get(&row.id).map_or(0, |stream| stream.cutter.next())
    }

    /// Goes to the end of what is stored without sending it.
    fn jump(&mut self, moved: &[StreamRow]) {
        for row in moved {
            let cutter = Cutter::at_end(row.line_start, row.lines, row.bytes);
            let stream = LiveStream::new(row, cutter);
            self.streams.insert(row.id, stream);
            self.see(row);
        }
        self.reach_seen();
        let rows: Vec<StreamRow> = self
            .streams
            .values()
            .map(|stream| StreamRow::clone(&stream.row))
            .collect();
        self.position.finish_ended(&rows);
    }

    fn see(&mut self, row: &StreamRow) {
        let at = row.last_at.map_or(0, |at| at.timestamp_millis());
        let seen = self.seen.entry(row.attempt).or_insert(at);
        *seen = at.max(*seen);
    }

    fn reach_seen(&mut self) {
        for (attempt, at) in &self.seen {
            self.position.reach(*attempt, Place::after(*at));
        }
    }

    fn take(&mut self, moved: Vec<StreamRow>, pieces: Vec<(StreamId, Piece)>) {
        for row in &moved {
            let stream = self
                .streams
                .entry(row.id)
                .or_insert_with(|| LiveStream::new(row, Cutter::new(0, 0)));
            stream.row = Arc::new(row.clone());
            self.see(row);
        }
        for (id, piece) in pieces {
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.cutter.feed(piece);
            }
        }
        let mut runs: Vec<(Arc<StreamRow>, Run)> = Vec::new();
        for row in &moved {
            if let Some(stream) = self.streams.get_mut(&row.id) {
                while let Some(run) = stream.cutter.pop() {
                    runs.push((stream.row.clone(), run));
                }
            }
        }
        runs.sort_by_key(|(row, run)| (row.attempt, run.place(row)));
        self.send_runs(runs);
        self.send_unfinished(&moved);
    }

    fn send_runs(&mut self, runs: Vec<(Arc<StreamRow>, Run)>) {
        let mut runs = runs.into_iter().peekable();
        while runs.peek().is_some() {
            let mut data = Vec::new();
            let mut parts = Vec::new();
            while data.len() < MESSAGE
                && let Some((row, run)) = runs.next()
            {
                let (run, rest) = run.split(usize::MAX, MESSAGE);
                let start = data.len();
                self.streams[&row.id].encoder.write(&mut data, &run);
                let place = run.place(&row);
                self.position.reach(row.attempt, place);
                parts.push(Part {
                    row: row.clone(),
                    place,
                    range: start..data.len(),
                });
                if let Some(rest) = rest {
                    // Put back in front: it is the next in order.
                    let others: Vec<_> = std::iter::once((row, rest)).chain(runs).collect();
                    runs = others.into_iter().peekable();
                }
            }
            if runs.peek().is_none() {
                self.reach_seen();
            }
            self.send_lines(data, parts, Some(self.position.clone()));
        }
        self.reach_seen();
    }

    fn send_unfinished(&mut self, moved: &[StreamRow]) {
        let mut data = Vec::new();
        let mut parts = Vec::new();
        for row in moved {
            let Some(stream) = self.streams.get_mut(&row.id) else {
                continue;
            };
            let Some(run) = stream
                .cutter
                .unfinished()
                .map(Run::newest_state)
                .filter(|run| run.end > stream.shown && run.size() <= PARTIAL)
            else {
                continue;
            };
            stream.shown = run.end;
            let start = data.len();
            stream.encoder.write(&mut data, &run);
            parts.push(Part {
                row: stream.row.clone(),
                place: run.place(row),
                range: start..data.len(),
            });
        }
        if !parts.is_empty() {
            self.send_lines(data, parts, None);
        }
    }

    fn send_lines(&self, data: Vec<u8>, parts: Vec<Part>, position: Option<Position>) {
        let id = position.as_ref().map(Position::to_string);
        self.send(Item::Lines(Lines {
            message: frame::of_lines(id.as_deref(), "lines", &[&data]),
            position,
            data: Bytes::from(data),
            parts,
        }));
    }

    fn send(&self, item: Item) {
        // Nobody listening now: whoever comes later catches up.
        self.sender.send(Arc::new(item)).ok();
    }
}

impl LiveStream {
    fn new(row: &StreamRow, cutter: Cutter) -> Self {
        Self {
            row: Arc::new(row.clone()),
            cutter,
            encoder: Encoder::new(row, Form::Sse, false),
            shown: 0,
        }
    }
}
