//! Being woken when replicas start or end, without looking at every file. What they print is no news: ingest reads it by
//! its own clock, and nothing is decided from it that would not bear to wait for the job's timer.
//!
//! One inotify watch per replica folder, read by one thread. Where the kernel grants no more watches, the folders left
//! over are looked at every [`LOOK_EVERY`]; only those.

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsStr,
    fs, io,
    os::{fd::AsFd, unix::net::UnixStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor},
};
use tokio::sync::Notify;
use trainyard_core::model::AttemptId;

const LOOK_EVERY: Duration = Duration::from_millis(100);

/// What a flood of starts and ends tells within this time is told at once.
const TOGETHER: Duration = Duration::from_millis(5);

/// Records whose arrival is news.
const RECORDS: [&str; 3] = ["started.json", "failed.json", "exit.json"];

pub struct Watcher {
    shared: Arc<Shared>,
    /// Its closing ends the thread.
    _alive: Option<UnixStream>,
}

struct Shared {
    /// `None` where the kernel grants none.
    inotify: Option<Inotify>,
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    watched: HashMap<WatchDescriptor, AttemptId>,
    looked_at: HashMap<PathBuf, (AttemptId, Look)>,
    changed: BTreeSet<AttemptId>,
    /// News were lost, so everything may have changed.
    overflown: bool,
}

/// What a folder showed when it was last looked at: which records are there, and how long.
#[derive(Default, PartialEq, Eq)]
struct Look([Option<u64>; RECORDS.len()]);

impl Watcher {
    pub fn new() -> Self {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok();
        Self::over(inotify)
    }

    fn over(inotify: Option<Inotify>) -> Self {
        let shared = Arc::new(Shared {
            inotify,
            state: Mutex::default(),
            news: Notify::new(),
        });
        let alive = shared.inotify.as_ref().and_then(|_| {
            let (ours, theirs) = UnixStream::pair().ok()?;
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name("replica-news".into());
            thread.spawn(move || shared.listen(&theirs)).ok()?;
            Some(ours)
        });
        Self { shared, _alive: alive }
    }

    /// Watches a replica's folder until its end is recorded.
    pub fn add(&self, attempt: AttemptId, folder: &Path) {
        let flags = AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_CLOSE_WRITE;
        let mut state = self.shared.state();
        let inotify = self.shared.inotify.as_ref().filter(|_| self._alive.is_some());
        match inotify.and_then(|inotify| inotify.add_watch(folder, flags).ok()) {
            Some(watch) => {
                state.watched.insert(watch, attempt);
            }
            None => {
                state.looked_at.insert(folder.to_owned(), (attempt, Look::default()));
                self.shared.news.notify_one();
            }
        }
    }

    /// Makes news of an attempt.
    pub fn tell(&self, attempt: AttemptId) {
        self.shared.state().changed.insert(attempt);
        self.shared.news.notify_one();
    }

    /// Waits for news. Dropping the future loses none.
    pub async fn changed(&self) -> Vec<AttemptId> {
        loop {
            let must_look = {
                let mut state = self.shared.state();
                if std::mem::take(&mut state.overflown) {
                    state.changed.clear();
                    return Vec::new();
                }
                if !state.changed.is_empty() {
                    return std::mem::take(&mut state.changed).into_iter().collect();
                }
                !state.looked_at.is_empty()
            };
            tokio::select! {
                () = self.shared.news.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY), if must_look => self.shared.look(),
            }
        }
    }
}

impl Shared {
    /// Notes inotify events until the watcher is dropped.
    fn listen(&self, alive: &UnixStream) {
        let Some(inotify) = &self.inotify else { return };
        loop {
            let mut fds = [
                PollFd::new(inotify.as_fd(), PollFlags::POLLIN),
                PollFd::new(alive.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return,
            }
            if fds[1].any().unwrap_or(false) {
                return;
            }
            let mut has_news = false;
            while let Ok(events) = inotify.read_events() {
                let mut state = self.state();
                for event in events {
                    has_news |= state.note(inotify, event.wd, event.mask, event.name.as_deref());
                }
            }
            if has_news {
                self.news.notify_one();
                std::thread::sleep(TOGETHER);
            }
        }
    }

    /// Looks at the folders that have no watch.
    fn look(&self) {
        let mut state = self.state();
        let State { looked_at, changed, .. } = &mut *state;
        looked_at.retain(|folder, (attempt, before)| {
            let now = Look::at(folder);
            if now != *before {
                changed.insert(*attempt);
            }
            let [_, failed, ended] = now.0;
            *before = now;
            folder.exists() && failed.is_none() && ended.is_none()
        });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is a single insert or remove, so a panic elsewhere leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Says whether somebody wants to hear of it.
    fn note(&mut self, inotify: &Inotify, watch: WatchDescriptor, mask: AddWatchFlags, name: Option<&OsStr>) -> bool {
        if mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            self.overflown = true;
            return true;
        }
        if mask.contains(AddWatchFlags::IN_IGNORED) {
            self.watched.remove(&watch);
            return false;
        }
        let (Some(&attempt), Some(name)) = (self.watched.get(&watch), name.and_then(OsStr::to_str)) else {
            return false;
        };
        let is_news = match name {
            // Its holder, the shim, has gone.
            "lock" => mask.contains(AddWatchFlags::IN_CLOSE_WRITE),
            record => RECORDS.contains(&record),
        };
        if is_news {
            self.changed.insert(attempt);
        }
        if matches!(name, "exit.json" | "failed.json") {
            self.watched.remove(&watch);
            let _ = inotify.rm_watch(watch);
        }
        is_news
    }
}

impl Look {
    fn at(folder: &Path) -> Self {
        Self(RECORDS.map(|name| fs::metadata(folder.join(name)).ok().map(|meta| meta.len())))
    }
}

/// Whether a replica's folder still has news to give.
pub fn is_live(folder: &crate::shim::folder::Folder) -> io::Result<bool> {
    Ok(folder.exited()?.is_none() && folder.failed()?.is_none())
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn folders_without_a_watch_are_looked_at() {
        let place = tempfile::tempdir().expect("a folder");
        let watcher = Watcher::over(None);
        let attempt = AttemptId(Uuid::from_u128(1));
        watcher.add(attempt, place.path());
        let news = async {
            let news = tokio::time::timeout(Duration::from_secs(60), watcher.changed()).await;
            news.expect("woken")
        };
        let writer = async { fs::write(place.path().join("started.json"), "{}").expect("written") };
        let (news, ()) = tokio::join!(news, writer);
        assert_eq!(news, [attempt]);
        fs::write(place.path().join("exit.json"), "{}").expect("written");
        assert_eq!(watcher.changed().await, [attempt]);
        assert!(
            watcher.shared.state().looked_at.is_empty(),
            "an ended replica is not looked at any more"
        );
    }

    #[tokio::test]
    async fn what_a_replica_prints_is_no_news() {
        for watcher in [Watcher::new(), Watcher::over(None)] {
            let [prints, ends] = [1, 2].map(|number| AttemptId(Uuid::from_u128(number)));
            let [printing, ending] = [prints, ends].map(|attempt| {
                let place = tempfile::tempdir().expect("a folder");
                fs::write(place.path().join("stdout"), "").expect("written");
                watcher.add(attempt, place.path());
                place
            });
            fs::write(printing.path().join("stdout"), "on and on").expect("written");
            fs::write(ending.path().join("exit.json"), "{}").expect("written");
            let news = tokio::time::timeout(Duration::from_secs(60), watcher.changed()).await;
            assert_eq!(news.expect("woken"), [ends]);
        }
    }
}
