//! Following events: of one subject by number, or the feed of all by place. Events are few, so nobody misses any: a
//! slow reader reads from the log what it did not take in time.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use chrono::{DateTime, Utc};
use futures::Stream;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{Notify, broadcast, broadcast::error::RecvError, mpsc, watch};
use utoipa::ToSchema;

use super::{Channel, HEARTBEAT, Hub, Inner, LOOK, Subscription, frame, leave, lock};
use crate::db::{
    Db, DbError, Scope,
    events::Subject,
    feed::{self, EventRow, Events, SubjectKey},
};

/// Events read at once.
const PAGE: i64 = 500;

/// What is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Subject(SubjectKey),
    Feed,
}

/// An event on its way to readers.
#[derive(Debug)]
pub(super) struct Item {
    /// Its number, or its place in the feed.
    number: i64,
    row: EventRow,
    message: Bytes,
}

/// An event as the API shows it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub struct EventView {
    /// The id of the job, node or cluster that it is about.
    pub subject: String,
    /// Counts the subject's events from 1, without gaps.
    pub seq: i64,
    pub at: DateTime<Utc>,
    /// Dotted words: `job.phase`, `replica.ended`, `node.condition`.
    pub kind: String,
    /// The user who did it, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actor: Option<String>,
    pub message: String,
    pub data: Value,
}

impl From<&EventRow> for EventView {
    fn from(row: &EventRow) -> Self {
        let subject = match row.subject {
            Subject::Job(id) => id.to_string(),
            Subject::Node(id) => id.to_string(),
            Subject::Cluster(id) => id.to_string(),
        };
        Self {
            subject,
            seq: row.seq,
            at: row.at,
            kind: row.kind.clone(),
            actor: row.actor.map(|actor| actor.to_string()),
            message: row.message.clone(),
            data: row.data.clone(),
        }
    }
}

impl Hub {
    /// Server-Sent Events of one subject after a number: event `event`, `id` the number, data an [`EventView`].
    /// `reset`: what came next was removed; begin anew without an id.
    pub fn follow_events(&self, key: SubjectKey, after: i64) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
        self.follow_source(Source::Subject(key), Scope::Everything, after)
    }

    /// The feed of all events that the scope may see after a place; `id` is the place.
    pub fn follow_feed(&self, scope: Scope, after: i64) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
        self.follow_source(Source::Feed, scope, after)
    }

    fn follow_source(
        &self,
        source: Source,
        scope: Scope,
        after: i64,
    ) -> impl Stream<Item = Bytes> + Send + Unpin + 'static {
        let (sender, receiver) = mpsc::channel(16);
        let inner = self.inner.clone();
        let follower = Follower {
            inner: inner.clone(),
            source,
            scope,
            sender,
            reached: after,
        };
        tokio::spawn(async move {
            tokio::select! {
                () = inner.stop.cancelled() => {}
                () = follower.run() => {}
            }
        });
        tokio_stream::wrappers::ReceiverStream::new(receiver)
    }
}

/// The next events of a source, up to where was looked, and whether there may be more behind.
async fn next(db: &Db, source: Source, scope: &Scope, after: i64) -> Result<(Events, i64, bool), DbError> {
    let (events, last) = match source {
        Source::Feed => feed::of_all(db, scope, after, PAGE).await?,
        Source::Subject(key) => {
            let events = feed::of_subject(db, key, after, PAGE).await?;
            let last = match &events {
                Events::Next(rows) => rows.last().map_or(after, |row| row.seq),
                Events::Reset => after,
            };
            (events, last)
        }
    };
    let full = matches!(&events, Events::Next(rows) if rows.len() as i64 >= PAGE);
    Ok((events, last, full || last - after >= feed::WINDOW))
}

fn number(source: Source, row: &EventRow) -> i64 {
    match source {
        Source::Subject(_) => row.seq,
        Source::Feed => row.position.unwrap_or(0),
    }
}

fn message(source: Source, row: &EventRow) -> Bytes {
    let id = number(source, row).to_string();
    // A value of strings and numbers always becomes JSON.
    let json = serde_json::to_string(&EventView::from(row)).unwrap_or_else(|_| "{}".to_owned());
    frame::of_json(Some(&id), "event", &json)
}

fn subscribe(inner: &Arc<Inner>, source: Source) -> Subscription<Item> {
    let mut events = lock(&inner.events);
    if let Some(channel) = events.get(&source) {
        return channel.subscribe();
    }
    let (channel, ready) = Channel::new(inner.limits);
    let subscription = channel.subscribe();
    let reader = read(
        inner.clone(),
        source,
        channel.sender.clone(),
        channel.wake.clone(),
        ready,
    );
    events.insert(source, channel);
    drop(events);
    tokio::spawn(reader);
    subscription
}

/// The one live reader of a source.
async fn read(
    inner: Arc<Inner>,
    source: Source,
    sender: broadcast::Sender<Arc<Item>>,
    wake: Arc<Notify>,
    ready: watch::Sender<bool>,
) {
    let mut reached = None;
    let mut listened = Instant::now();
    loop {
        if sender.receiver_count() > 0 {
            listened = Instant::now();
        } else if listened.elapsed() > LOOK && leave(&inner.events, &source) {
            return;
        }
        match look(&inner.db, source, &mut reached, &sender).await {
            Ok(true) => continue,
            Ok(false) => {
                ready.send_replace(true);
            }
            Err(error) => tracing::warn!(%error, "followed events can't be read; trying again"),
        }
        tokio::select! {
            () = inner.stop.cancelled() => return,
            () = wake.notified() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

/// Sends what came; the first look only takes its place at the end. `true`: there may be more.
async fn look(
    db: &Db,
    source: Source,
    reached: &mut Option<i64>,
    sender: &broadcast::Sender<Arc<Item>>,
) -> Result<bool, DbError> {
    let Some(after) = *reached else {
        *reached = Some(match source {
            Source::Feed => feed::end(db).await?,
            Source::Subject(key) => feed::last_of_subject(db, key).await?,
        });
        return Ok(false);
    };
    match next(db, source, &Scope::Everything, after).await? {
        (Events::Next(rows), last, more) => {
            *reached = Some(last);
            for row in rows {
                let item = Item {
                    number: number(source, &row),
                    message: message(source, &row),
                    row,
                };
                // Nobody listening now: whoever comes later reads the log.
                sender.send(Arc::new(item)).ok();
            }
            Ok(more)
        }
        (Events::Reset, ..) => {
            *reached = None;
            Ok(true)
        }
    }
}

struct Follower {
    inner: Arc<Inner>,
    source: Source,
    scope: Scope,
    sender: mpsc::Sender<Bytes>,
    reached: i64,
}

impl Follower {
    async fn run(mut self) {
        let mut subscription = subscribe(&self.inner, self.source);
        let mut behind = true;
        loop {
            if behind {
                let ready = tokio::select! {
                    ready = subscription.is_ready() => ready,
                    () = self.sender.closed() => return,
                };
                if !ready {
                    subscription = subscribe(&self.inner, self.source);
                    continue;
                }
                match self.catch_up().await {
                    Ok(true) => behind = false,
                    Ok(false) => return,
                    Err(error) => {
                        tracing::warn!(%error, "a live view of events ends: they can't be read");
                        let words = json!({"message": "events can't be read now; reconnect to go on"});
                        self.sender
                            .send(frame::of_json(None, "failed", &words.to_string()))
                            .await
                            .ok();
                        return;
                    }
                }
            }
            let item = tokio::select! {
                item = subscription.receiver.recv() => item,
                () = tokio::time::sleep(HEARTBEAT) => {
                    if self.sender.send(frame::heartbeat()).await.is_err() {
                        return;
                    }
                    continue;
                }
                () = self.sender.closed() => return,
            };
            match item {
                Ok(item) if item.number > self.reached => {
                    self.reached = item.number;
                    if self.may_see(&item.row) && self.sender.send(item.message.clone()).await.is_err() {
                        return;
                    }
                }
                Ok(_) => {}
                Err(RecvError::Lagged(_)) => behind = true,
                Err(RecvError::Closed) => {
                    subscription = subscribe(&self.inner, self.source);
                    behind = true;
                }
            }
        }
    }

    fn may_see(&self, row: &EventRow) -> bool {
        match &self.scope {
            Scope::Everything => true,
            Scope::Teams(teams) => row.team.is_some_and(|team| teams.contains(&team)),
        }
    }

    /// Sends what is in the log now. `false`: the client has gone, or must begin anew.
    async fn catch_up(&mut self) -> Result<bool, DbError> {
        loop {
            match next(&self.inner.db, self.source, &self.scope, self.reached).await? {
                (Events::Reset, ..) => {
                    self.sender.send(frame::of_json(None, "reset", "{}")).await.ok();
                    return Ok(false);
                }
                (Events::Next(rows), last, more) => {
                    for row in &rows {
                        if self.sender.send(message(self.source, row)).await.is_err() {
                            return Ok(false);
                        }
                    }
                    self.reached = last.max(self.reached);
                    if !more {
                        return Ok(true);
                    }
                }
            }
        }
    }
}
