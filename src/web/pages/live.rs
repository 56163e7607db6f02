//! Live changes of pages, as Server-Sent Events: `patch` (`{"id", "html"}`: an element to put in place), `rows` (all rows
//! of a list), `title`, `again` (come back: who may look is asked anew), `end` (nothing will change any more).
//!
//! What a page shows is read again when its subject changed, which costs one small query a second to know, and now and
//! then for the times in words. Only what differs from what was sent last is sent.

use std::{
    collections::HashMap,
    future::Future,
    hash::BuildHasher,
    time::{Duration, Instant},
};

use askama::Template;
use axum::{body::Bytes, extract::State, response::Response};
use serde_json::json;
use tokio::sync::mpsc;
use trainyard_core::model::{ClusterId, JobId, NodeId};

use super::{cluster, found, job, jobs as job_list, node};
use crate::{
    db::page_reads,
    hub::frame,
    web::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
        sse,
    },
};

/// Between looks whether anything changed.
const LOOK: Duration = Duration::from_secs(1);
/// Looks after which a page is read again even if nothing seems to have changed: times in words grow old.
const STALE: u32 = 10;
/// Who may look is asked anew after so many looks.
const AGAIN: u32 = 300;
/// An idle connection hears from us after so many looks.
const HEARTBEAT: u32 = 15;

/// What a look found.
enum Look {
    /// Pieces of the page: id and markup.
    Pieces {
        title: String,
        pieces: Vec<(&'static str, String)>,
        last: bool,
    },
    Rows {
        title: String,
        summary: String,
        rows: Vec<(String, String)>,
    },
    Gone,
}

/// `GET /jobs/{job}/live`.
pub async fn job(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<JobId>,
    Params(query): Params<job::load::JobQuery>,
) -> Result<Response, Error> {
    let scope = asker.scope();
    found("job", id, page_reads::pulse(&state.db, &scope, id).await)?;
    let pulse = {
        let (state, scope) = (state.clone(), scope.clone());
        let mut looks = 0u32;
        move || {
            let (state, scope) = (state.clone(), scope.clone());
            looks += 1;
            // Events are shown at once; a job that takes steps all the time is told every third look.
            let turn = looks / 3;
            async move {
                let (events, wish, step) = page_reads::pulse(&state.db, &scope, id).await?;
                Ok(format!("{events} {wish} {:?}", step.map(|_| turn)))
            }
        }
    };
    let source = state.clone();
    let look = move || {
        let (state, asker, query) = (source.clone(), asker.clone(), query.clone());
        async move {
            let page = job::load::load(&state, &asker, id, &query).await?;
            let last = page.shell.live.is_none();
            let pieces = pieces([
                ("state", page.as_state().render()),
                ("conditions", page.as_conditions().render()),
                ("reasons", page.as_reasons().render()),
                ("post-mortem", page.as_post_mortem().render()),
                ("facts", page.as_facts().render()),
                ("timeline", page.as_timeline().render()),
                ("replicas", page.as_replicas().render()),
                ("plots", page.as_plots().render()),
                ("checkpoints", page.as_checkpoints().render()),
                ("events", page.as_events().render()),
                ("actions", page.as_actions().render()),
            ]);
            Ok(Look::Pieces {
                title: page.shell.title,
                pieces,
                last,
            })
        }
    };
    Ok(follow(&state, pulse, look))
}

/// `GET /jobs/live`.
pub async fn jobs(
    State(state): State<WebState>,
    asker: Asker,
    Params(query): Params<job_list::JobsQuery>,
) -> Result<Response, Error> {
    let scope = asker.scope();
    let source = state.clone();
    let look = move || {
        let (state, scope, query) = (source.clone(), scope.clone(), query.clone());
        async move {
            let page = job_list::load(&state.db, &scope, &query, state.actions.now()).await?;
            let rows = page.rows.into_iter().filter_map(|row| {
                let id = row.id.clone();
                Some((id, job_list::JobRowFragment { row }.render().ok()?))
            });
            Ok(Look::Rows {
                title: page.shell.title,
                rows: rows.collect(),
                summary: page.summary,
            })
        }
    };
    // A list has no one record that changes with it; it is read again every other look.
    let mut looks = 0u32;
    let pulse = move || {
        looks += 1;
        let turn = looks / 2;
        async move { Ok(turn.to_string()) }
    };
    Ok(follow(&state, pulse, look))
}

/// `GET /nodes/{node}/live`.
pub async fn node(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<NodeId>,
    Params(query): Params<node::NodeQuery>,
) -> Result<Response, Error> {
    let scope = asker.scope();
    found("node", id, crate::db::nodes_read::get(&state.db, &scope, id).await)?;
    let source = state.clone();
    let look = move || {
        let (state, scope, query) = (source.clone(), scope.clone(), query.clone());
        async move {
            let page = node::load::load(&state.db, &scope, id, &query, state.actions.now()).await?;
            let last = page.shell.live.is_none();
            let pieces = pieces([
                ("state", page.as_state().render()),
                ("conditions", page.as_conditions().render()),
                ("usage", page.as_usage().render()),
                ("running", page.as_running().render()),
                ("plots", page.as_plots().render()),
                ("events", page.as_events().render()),
            ]);
            Ok(Look::Pieces {
                title: page.shell.title,
                pieces,
                last,
            })
        }
    };
    Ok(follow(&state, every(5), look))
}

/// `GET /clusters/{cluster}/live`.
pub async fn cluster(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<ClusterId>,
) -> Result<Response, Error> {
    let scope = asker.scope();
    found(
        "cluster",
        id,
        crate::db::clusters_read::get(&state.db, &scope, id).await,
    )?;
    let source = state.clone();
    let look = move || {
        let (state, scope) = (source.clone(), scope.clone());
        async move {
            let page = cluster::load(&state.db, &scope, id, state.actions.now()).await?;
            let pieces = pieces([
                ("state", page.as_state().render()),
                ("conditions", page.as_conditions().render()),
                ("queue", page.as_queue().render()),
                ("events", page.as_events().render()),
            ]);
            Ok(Look::Pieces {
                title: page.shell.title,
                pieces,
                last: false,
            })
        }
    };
    Ok(follow(&state, every(3), look))
}

/// A pulse that changes every so many looks.
fn every(looks: u32) -> impl FnMut() -> std::future::Ready<Result<String, Error>> {
    let mut count = 0;
    move || {
        count += 1;
        std::future::ready(Ok((count / looks).to_string()))
    }
}

fn pieces<const N: usize>(rendered: [(&'static str, askama::Result<String>); N]) -> Vec<(&'static str, String)> {
    rendered
        .into_iter()
        .filter_map(|(id, html)| Some((id, html.ok()?)))
        .collect()
}

/// Looks as long as the reader stays.
fn follow<P, PF, L, LF>(state: &WebState, pulse: P, look: L) -> Response
where
    P: FnMut() -> PF + Send + 'static,
    PF: Future<Output = Result<String, Error>> + Send,
    L: FnMut() -> LF + Send + 'static,
    LF: Future<Output = Result<Look, Error>> + Send,
{
    let (sender, receiver) = mpsc::channel::<Bytes>(4);
    let stop = state.stop.clone();
    tokio::spawn(async move {
        let sending = watch(&sender, pulse, look);
        tokio::select! {
            () = stop.cancelled() => {}
            () = sender.closed() => {}
            () = sending => {}
        }
    });
    sse::response(tokio_stream::wrappers::ReceiverStream::new(receiver))
}

async fn watch<P, PF, L, LF>(sender: &mpsc::Sender<Bytes>, mut pulse: P, mut look: L)
where
    P: FnMut() -> PF,
    PF: Future<Output = Result<String, Error>>,
    L: FnMut() -> LF,
    LF: Future<Output = Result<Look, Error>>,
{
    let mut sent = Sent::default();
    let mut beat = String::new();
    let mut tick = tokio::time::interval(LOOK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let (mut looks, mut idle) = (0u32, 0u32);
    loop {
        tick.tick().await;
        looks += 1;
        idle += 1;
        if looks > AGAIN {
            let _ = sender.send(frame::of_json(None, "again", "{}")).await;
            return;
        }
        let messages = match pulse().await {
            Ok(now) if now == beat && looks % STALE != 0 => Vec::new(),
            Ok(now) => {
                beat = now;
                match look().await {
                    Ok(found) => sent.messages(found),
                    Err(error) => match sent.excuse(&error) {
                        Some(messages) => messages,
                        None => continue,
                    },
                }
            }
            Err(error) => match sent.excuse(&error) {
                Some(messages) => messages,
                None => continue,
            },
        };
        let over = sent.over;
        for message in messages {
            idle = 0;
            if sender.send(message).await.is_err() {
                return;
            }
        }
        if over {
            return;
        }
        if idle >= HEARTBEAT {
            idle = 0;
            if sender.send(frame::heartbeat()).await.is_err() {
                return;
            }
        }
    }
}

/// What the reader has already.
#[derive(Default)]
struct Sent {
    hashes: HashMap<String, u64>,
    hasher: std::hash::RandomState,
    /// When a large piece was last sent.
    large: HashMap<&'static str, Instant>,
    over: bool,
}

/// Pieces of this size (plots) are sent every [`LARGE_EVERY`] at most.
const LARGE: usize = 16 * 1024;
const LARGE_EVERY: Duration = Duration::from_secs(6);

impl Sent {
    fn is_new(&mut self, key: &str, value: &str) -> bool {
        let hash = self.hasher.hash_one(value);
        self.hashes.insert(key.to_owned(), hash) != Some(hash)
    }

    fn messages(&mut self, found: Look) -> Vec<Bytes> {
        let mut messages = Vec::new();
        match found {
            Look::Pieces { title, pieces, last } => {
                self.title(&title, &mut messages);
                let now = Instant::now();
                for (id, html) in pieces {
                    let soon = self
                        .large
                        .get(id)
                        .is_some_and(|sent| now.duration_since(*sent) < LARGE_EVERY);
                    if soon && !last && html.len() > LARGE {
                        continue;
                    }
                    if self.is_new(id, &html) {
                        self.large.insert(id, now);
                        let patch = json!({ "id": id, "html": html }).to_string();
                        messages.push(frame::of_json(None, "patch", &patch));
                    }
                }
                if last {
                    self.over = true;
                    messages.push(frame::of_json(None, "end", "{}"));
                }
            }
            Look::Rows { title, summary, rows } => {
                self.title(&title, &mut messages);
                let rows: Vec<_> = rows
                    .into_iter()
                    .map(|(id, html)| json!({ "id": id, "html": html }))
                    .collect();
                let rows = json!({ "summary": summary, "rows": rows }).to_string();
                if self.is_new("rows", &rows) {
                    messages.push(frame::of_json(None, "rows", &rows));
                }
            }
            Look::Gone => {
                self.over = true;
                messages.push(frame::of_json(None, "reset", "{}"));
            }
        }
        messages
    }

    fn title(&mut self, title: &str, messages: &mut Vec<Bytes>) {
        if self.is_new("title", title) {
            let text = json!(format!("{title} · Trainyard")).to_string();
            messages.push(frame::of_json(None, "title", &text));
        }
    }

    /// What to tell when a look failed. `None`: nothing, since it passes by itself.
    fn excuse(&mut self, error: &Error) -> Option<Vec<Bytes>> {
        (error.0.status == 404).then(|| self.messages(Look::Gone))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(state: &str, last: bool) -> Look {
        Look::Pieces {
            title: "t".into(),
            pieces: vec![("state", state.into()), ("facts", "same".into())],
            last,
        }
    }

    #[test]
    fn only_what_differs_is_sent() {
        let mut sent = Sent::default();
        assert_eq!(sent.messages(look("<p>a</p>", false)).len(), 3);
        assert_eq!(sent.messages(look("<p>a</p>", false)).len(), 0);
        let messages = sent.messages(look("<p>\nb</p>", false));
        assert_eq!(messages.len(), 1);
        assert_eq!(
            &messages[0][..],
            b"event: patch\ndata: {\"id\":\"state\",\"html\":\"<p>\\nb</p>\"}\n\n"
        );
    }

    #[test]
    fn a_page_that_will_not_change_any_more_ends_its_stream() {
        let mut sent = Sent::default();
        sent.messages(look("a", true));
        assert!(sent.over);
    }

    #[test]
    fn a_job_that_is_gone_reloads_the_page_and_a_database_that_is_away_does_not() {
        let mut sent = Sent::default();
        assert!(sent.excuse(&Error::not_found("job", "x")).is_some() && sent.over);
        let away = crate::db::DbError::Inconsistent {
            table: "jobs",
            key: String::new(),
            what: String::new(),
        };
        assert!(Sent::default().excuse(&away.into()).is_none());
    }
}
