//! Live changes of pages, as Server-Sent Events: `patch` (`{"id", "html"}`: an element to put in place), `rows` (all rows
//! of a list, and its summary), `title`, `again` (come back: who may look is asked anew), `away` and `back` (of the
//! records), `end` (nothing will change any more).
//!
//! What a page shows is read again when its subject changed, which costs one small query a second to know, and now and
//! then for the times in words. Only what differs from what was sent last is sent.

mod sent;

use std::{future::Future, time::Duration};

use askama::Template;
use axum::{body::Bytes, extract::State, http::HeaderMap, response::Response};
use tokio::sync::mpsc;
use trainyard_core::model::{ClusterId, JobId, NodeId};

use sent::{Look, Sent};

use super::{cluster, clusters as cluster_list, found, job, jobs as job_list, node, nodes as node_list};
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
/// A look that takes longer is given up, and the reader is told.
const PATIENCE: Duration = Duration::from_secs(10);
/// An idle connection hears from us after so many looks.
const HEARTBEAT: u32 = 15;

/// `GET /jobs/{job}/live`.
pub async fn job(
    State(state): State<WebState>,
    asker: Asker,
    headers: HeaderMap,
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
    let (source, viewer) = (state.clone(), asker.clone());
    let look = move || {
        let (state, asker, query) = (source.clone(), viewer.clone(), query.clone());
        async move {
            let page = job::load::load(&state, &asker, id, &query).await?;
            let last = page.shell.live.is_none();
            let pieces = rendered([
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
    follow((&state, &asker, &headers), pulse, look)
}

/// `GET /jobs/live`.
pub async fn jobs(
    State(state): State<WebState>,
    asker: Asker,
    headers: HeaderMap,
    Params(query): Params<job_list::JobsQuery>,
) -> Result<Response, Error> {
    let scope = asker.scope();
    let source = state.clone();
    let look = move || {
        let (state, scope, query) = (source.clone(), scope.clone(), query.clone());
        async move {
            let page = job_list::load(&state.db, &scope, &query, state.actions.now()).await?;
            let pieces = rendered([("choices", page.as_choices().render())]);
            let rows = page.rows.into_iter();
            let rows = rows.map(|row| (row.id.clone(), job_list::JobRowFragment { row }.render()));
            Ok(Look::Rows {
                title: page.shell.title,
                rows: rendered(rows),
                summary: page.summary,
                pieces,
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
    follow((&state, &asker, &headers), pulse, look)
}

/// `GET /nodes/live`.
pub async fn nodes(
    State(state): State<WebState>,
    asker: Asker,
    headers: HeaderMap,
    Params(query): Params<node_list::NodesQuery>,
) -> Result<Response, Error> {
    let scope = asker.scope();
    let source = state.clone();
    let look = move || {
        let (state, scope, query) = (source.clone(), scope.clone(), query.clone());
        async move {
            let page = node_list::load(&state.db, &scope, &query, state.actions.now()).await?;
            let mut pieces = rendered([("choices", page.as_choices().render())]);
            // Cells change their places with their states, so a grid is one piece.
            if page.grid.is_some() {
                pieces.extend(rendered([("nodes", page.as_nodes().render())]));
            }
            let rows = page.rows.into_iter();
            let rows = rows.map(|row| (row.id.clone(), node_list::NodeRowFragment { row }.render()));
            Ok(Look::Rows {
                title: page.shell.title,
                rows: rendered(rows),
                summary: page.summary,
                pieces,
            })
        }
    };
    follow((&state, &asker, &headers), every(5), look)
}

/// `GET /clusters/live`.
pub async fn clusters(State(state): State<WebState>, asker: Asker, headers: HeaderMap) -> Result<Response, Error> {
    let scope = asker.scope();
    let source = state.clone();
    let look = move || {
        let (state, scope) = (source.clone(), scope.clone());
        async move {
            let page = cluster_list::load(&state.db, &scope, &Default::default(), state.actions.now()).await?;
            let rows = page.rows.into_iter();
            let rows = rows.map(|row| (row.id.clone(), cluster_list::ClusterRowFragment { row }.render()));
            Ok(Look::Rows {
                title: page.shell.title,
                rows: rendered(rows),
                summary: page.summary,
                pieces: Vec::new(),
            })
        }
    };
    follow((&state, &asker, &headers), every(5), look)
}

/// `GET /nodes/{node}/live`.
pub async fn node(
    State(state): State<WebState>,
    asker: Asker,
    headers: HeaderMap,
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
            let pieces = rendered([
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
    follow((&state, &asker, &headers), every(5), look)
}

/// `GET /clusters/{cluster}/live`.
pub async fn cluster(
    State(state): State<WebState>,
    asker: Asker,
    headers: HeaderMap,
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
            let pieces = rendered([
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
    follow((&state, &asker, &headers), every(3), look)
}

/// A pulse that changes every so many looks.
fn every(looks: u32) -> impl FnMut() -> std::future::Ready<Result<String, Error>> {
    let mut count = 0;
    move || {
        count += 1;
        std::future::ready(Ok((count / looks).to_string()))
    }
}

fn rendered<I>(parts: impl IntoIterator<Item = (I, askama::Result<String>)>) -> Vec<(I, String)> {
    parts
        .into_iter()
        .filter_map(|(id, html)| Some((id, html.ok()?)))
        .collect()
}

/// Looks as long as the reader stays and may.
fn follow<P, PF, L, LF>(
    (state, asker, headers): (&WebState, &Asker, &HeaderMap),
    pulse: P,
    look: L,
) -> Result<Response, Error>
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
    let messages = tokio_stream::wrappers::ReceiverStream::new(receiver);
    sse::response(state, asker, headers, messages)
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
        let looking = async {
            let now = pulse().await?;
            if now == beat && looks % STALE != 0 {
                return Ok(None);
            }
            beat = now;
            look().await.map(Some)
        };
        let messages = match tokio::time::timeout(PATIENCE, looking).await {
            Ok(Ok(None)) => Vec::new(),
            Ok(Ok(Some(found))) => sent.messages(found),
            Ok(Err(error)) => sent.excuse(&error),
            Err(_) => sent.excuse(&Error::silent()),
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
