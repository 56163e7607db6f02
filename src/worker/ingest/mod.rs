//! Output becomes rows: the loop that reads what replicas print, and stores it once, whoever is killed.
//!
//! - [`mask`]: secret values become `***`.
//! - [`catch`]: metrics and checkpoints in lines.
//! - [`state`]: what is carried from one flush to the next.
//! - [`cut`]: one stream's part of a flush. Pure.
//! - [`take`]: reading from the runtime.
//! - [`flush`]: all due streams, one transaction.
//! - [`news`]: what the lines mean for other records.
//!
//! A followed job is flushed every 50 ms, others every second or two, a backlog at once. Where a stream stands is read
//! from its record, moves only with the transaction that stores its bytes, and that transaction proves the holding; so
//! a byte is stored once, and what is lost with a process is only the work of one flush.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::{broadcast, mpsc};
use tokio_util::sync::CancellationToken;
use trainyard_core::model::{AttemptId, ClusterId, JobId, ReplicaKey, SecretValue, StreamId};
use uuid::Uuid;

use self::{catch::Catch, flush::Flushed, mask::Masker, state::StreamState};
use super::seal::{SealRequest, StreamToSeal};
use crate::{
    db::{
        Db, DbError,
        holdings::Holding,
        listen::Wake,
        logs::{
            follow,
            write::{self, NewStream, OpenAttempt, WrittenStream},
        },
        notify,
    },
    runtimes::{OutputRef, OutputState, Runtime},
};

pub mod catch;
pub mod cut;
pub mod flush;
pub mod mask;
mod news;
pub mod state;
mod take;

/// What the time is, for the loop; a flush is told.
pub type Now = Arc<dyn Fn() -> DateTime<Utc> + Send + Sync>;

/// What must be known of an attempt before its output may be stored.
pub struct About {
    /// The values of every secret that it was given.
    pub secrets: Vec<SecretValue>,
    pub catch: Catch,
    /// Where the ranks are shown that mpirun's tags name.
    pub ranks: Ranks,
}

pub type Ranks = Arc<dyn Fn(u32) -> Option<ReplicaKey> + Send + Sync>;

/// Tells about attempts. While it can't, their output waits where it is: better late than with a secret in it.
#[async_trait]
pub trait AboutAttempts: Send + Sync + 'static {
    async fn about(&self, attempt: &OpenAttempt) -> Result<About, String>;
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Between flushes of a job that somebody follows.
    pub followed: Duration,
    /// Between flushes of all others.
    pub quiet: Duration,
    /// Between looks at which attempts there are and who follows what.
    pub refresh: Duration,
    /// Bytes that one flush reads, over all streams.
    pub budget: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            followed: Duration::from_millis(50),
            quiet: Duration::from_millis(1500),
            refresh: Duration::from_secs(1),
            budget: 32 << 20,
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("the program is stopping")]
    Stopped,
}

/// Stores the output of one cluster's attempts.
pub struct Ingest {
    db: Db,
    runtime: Arc<dyn Runtime>,
    cluster: ClusterId,
    about: Arc<dyn AboutAttempts>,
    settings: Settings,
    seals: mpsc::Sender<SealRequest>,
    attempts: HashMap<AttemptId, Attempt>,
    followed: HashSet<JobId>,
    refresh_at: DateTime<Utc>,
    /// The time of the newest flush that was stored.
    newest: i64,
    /// A flush was begun and its end was not seen: memory may disagree with the records.
    unsure: bool,
    rotation: usize,
}

struct Attempt {
    open: OpenAttempt,
    about: Option<Known>,
    /// Its streams were read from the records.
    opened: bool,
    streams: HashMap<StreamId, Stream>,
    due: DateTime<Utc>,
}

struct Known {
    masker: Arc<Masker>,
    catch: Catch,
    ranks: Ranks,
}

struct Stream {
    state: StreamState,
    replica: ReplicaKey,
    output: Option<OutputRef>,
    given_back: u64,
    unsealed_rows: u64,
    unsealed_bytes: u64,
    /// The seal that its end deserves was asked for.
    end_told: bool,
}

impl Ingest {
    pub fn new(
        db: Db,
        runtime: Arc<dyn Runtime>,
        cluster: ClusterId,
        about: Arc<dyn AboutAttempts>,
        settings: Settings,
        seals: mpsc::Sender<SealRequest>,
    ) -> Self {
        Self {
            db,
            runtime,
            cluster,
            about,
            settings,
            seals,
            attempts: HashMap::new(),
            followed: HashSet::new(),
            refresh_at: DateTime::<Utc>::MIN_UTC,
            newest: 0,
            unsure: false,
            rotation: 0,
        }
    }

    /// Flushes until the holding is lost or the program stops. `Fenced`: another worker has it now.
    pub async fn run(
        mut self,
        holding: Holding,
        now: Now,
        mut wakes: broadcast::Receiver<Wake>,
        stop: CancellationToken,
    ) -> Result<(), IngestError> {
        loop {
            let pause = match self.flush(&holding, now(), false).await {
                Ok(flushed) if flushed.backlog => Duration::ZERO,
                Ok(_) => self.until_due(now()),
                Err(IngestError::Db(DbError::Fenced)) => return Err(DbError::Fenced.into()),
                Err(IngestError::Stopped) => return Ok(()),
                Err(error) => {
                    tracing::warn!(%error, "a flush of output failed; trying again");
                    Duration::from_secs(1)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(pause) => {}
                wake = next_follow(&mut wakes) => self.follow(wake, now()),
            }
        }
    }

    /// Stores what is new in the attempts that are due; with `all`, in every attempt.
    pub async fn flush(&mut self, holding: &Holding, now: DateTime<Utc>, all: bool) -> Result<Flushed, IngestError> {
        if std::mem::take(&mut self.unsure) {
            self.attempts.clear();
            self.refresh_at = now;
        }
        if all || now >= self.refresh_at {
            self.refresh(now).await?;
        }
        let due: Vec<AttemptId> = self
            .attempts
            .values()
            .filter(|attempt| (all || attempt.due <= now) && attempt.about.is_some())
            .map(|attempt| attempt.open.id)
            .collect();
        let result = self.flush_attempts(holding, &due, now).await;
        if result.is_err() {
            // Where the streams stand is read anew: the commit may have gone through unseen.
            self.unsure = true;
        }
        let backlog = result.as_ref().is_ok_and(|flushed| flushed.backlog);
        for id in due {
            if let Some(attempt) = self.attempts.get_mut(&id) {
                let followed = self.followed.contains(&attempt.open.key.job());
                let pause = match (backlog, followed) {
                    (true, _) => Duration::ZERO,
                    (_, true) => self.settings.followed,
                    (_, false) => self.settings.quiet,
                };
                attempt.due = now + pause;
            }
        }
        result
    }

    /// Reads which attempts there are, and who follows what. New ones are told about.
    async fn refresh(&mut self, now: DateTime<Utc>) -> Result<(), IngestError> {
        let open = write::open_attempts(&self.db, self.cluster).await?;
        let followed = follow::followed(&self.db, self.cluster, now).await?;
        for attempt in self.attempts.values_mut() {
            let job = attempt.open.key.job();
            if followed.contains(&job) && !self.followed.contains(&job) {
                attempt.due = now;
            }
        }
        self.followed = followed;
        let there: HashSet<AttemptId> = open.iter().map(|attempt| attempt.id).collect();
        self.attempts.retain(|id, _| there.contains(id));
        for open in open {
            let attempt = self.attempts.entry(open.id).or_insert_with(|| Attempt {
                open: open.clone(),
                about: None,
                opened: false,
                streams: HashMap::new(),
                due: now,
            });
            if open.ended && !attempt.open.ended {
                attempt.due = now;
            }
            attempt.open = open;
            if attempt.about.is_none() {
                match self.about.about(&attempt.open).await {
                    Ok(about) => {
                        attempt.about = Some(Known {
                            masker: Arc::new(Masker::new(about.secrets.iter().map(|secret| secret.0.as_str()))),
                            catch: about.catch,
                            ranks: about.ranks,
                        });
                    }
                    Err(error) => {
                        tracing::warn!(attempt = %attempt.open.id, %error, "output waits: its secrets can't be read");
                    }
                }
            }
        }
        self.refresh_at = now + self.settings.refresh;
        Ok(())
    }

    fn until_due(&self, now: DateTime<Utc>) -> Duration {
        let due = self
            .attempts
            .values()
            .filter(|attempt| attempt.about.is_some())
            .map(|attempt| attempt.due);
        let next = due.min().unwrap_or(DateTime::<Utc>::MAX_UTC).min(self.refresh_at);
        let pause = (next - now).max(TimeDelta::milliseconds(1));
        pause
            .to_std()
            .unwrap_or(self.settings.followed)
            .min(self.settings.refresh)
    }

    /// Somebody began to read: the job's output is due now. Without names, everything is looked at.
    fn follow(&mut self, jobs: Option<Vec<JobId>>, now: DateTime<Utc>) {
        let Some(jobs) = jobs else {
            self.refresh_at = now;
            return;
        };
        for job in jobs {
            if self.followed.insert(job) {
                for attempt in self
                    .attempts
                    .values_mut()
                    .filter(|attempt| attempt.open.key.job() == job)
                {
                    attempt.due = now;
                }
            }
        }
    }

    /// Names the streams whose small rows have become many, or that ended with any.
    fn ask_for_seals(&mut self) {
        for attempt in self.attempts.values_mut() {
            for stream in attempt.streams.values_mut() {
                let ended = stream.state.ended && !stream.end_told && stream.unsealed_rows > 0;
                if !ended && !super::seal::is_worth_it(stream.unsealed_rows, stream.unsealed_bytes) {
                    continue;
                }
                let request = SealRequest::Stream(StreamToSeal {
                    key: attempt.open.key,
                    stream: stream.state.id,
                    ended: stream.state.ended,
                });
                // A full queue means that the sealer is behind; it is asked again after the next flush.
                if self.seals.try_send(request).is_ok() {
                    stream.unsealed_rows = 0;
                    stream.unsealed_bytes = 0;
                    stream.end_told = stream.state.ended;
                }
            }
        }
    }
}

impl Attempt {
    /// The streams that the runtime has and the records may not have yet.
    fn unknown(&self, states: &[OutputState]) -> Vec<NewStream> {
        states
            .iter()
            .map(|state| NewStream {
                id: id_of(&state.output),
                replica: state.output.key.clone(),
                incarnation: state.output.incarnation,
                stream: state.output.stream,
            })
            .filter(|stream| !self.streams.contains_key(&stream.id))
            .collect()
    }
}

impl Stream {
    fn of(written: &WrittenStream) -> Self {
        Self {
            state: StreamState::of(written),
            replica: ReplicaKey {
                role: written.row.role.clone(),
                index: written.row.index as u32,
            },
            output: None,
            given_back: 0,
            unsealed_rows: written.unsealed_rows as u64,
            unsealed_bytes: written.unsealed_bytes as u64,
            end_told: false,
        }
    }
}

/// The local runtime runs one container per replica, which never restarts within an incarnation.
fn id_of(output: &OutputRef) -> StreamId {
    state::stream_id(output.incarnation, "main", 0, output.stream)
}

/// The next wake-up that is about a follow. `None`: some may have been missed.
async fn next_follow(wakes: &mut broadcast::Receiver<Wake>) -> Option<Vec<JobId>> {
    loop {
        match wakes.recv().await {
            Ok(Wake::Notified { channel, payload }) if channel == notify::FOLLOWS => {
                let ids = payload.split(',').filter_map(|id| Uuid::try_parse(id).ok());
                return Some(ids.map(JobId).collect());
            }
            Ok(Wake::Notified { .. }) => {}
            Ok(Wake::Reconnected) | Err(broadcast::error::RecvError::Lagged(_)) => return None,
            // Nobody listens any more: the loop goes on by its own clock.
            Err(broadcast::error::RecvError::Closed) => std::future::pending().await,
        }
    }
}
