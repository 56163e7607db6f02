//! HTTP, both faces: `api` (JSON and SSE) and `pages`. A request comes in through [`manners`] (id, headers, gzip), then
//! the [`guard`] (who, may they, is there room), then its handler, which speaks to `db` for reads and to `actions` for
//! deeds. What goes wrong leaves through [`error`].
//!
//! Deliberately absent: runtimes and clouds. A request never calls out.

use std::{ops::Deref, sync::Arc, time::Duration};

use axum::Router;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use utoipa::openapi::OpenApi;

use crate::{
    actions::Actions,
    clock::Clock,
    config::Config,
    db::{Db, listen::Listener, notify},
    hub::Hub,
    keys::KeyFile,
};

pub mod accept;
pub mod admission;
pub mod api;
pub mod auth;
pub mod error;
pub mod extract;
pub mod face;
pub mod guard;
pub mod manners;
pub mod page;
pub mod pages;
pub mod params;
pub mod plot;
pub mod rate;
pub mod routes;
pub mod serve;
pub mod sse;
pub mod why;

pub use error::{Code, Error};
pub use routes::{Access, Load, Route, Routes, Table};

/// Largest body, except for uploads of code.
pub const BODY_LIMIT: usize = 1 << 20;

/// What an installation may want otherwise.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where browsers find us; `https` makes cookies secure.
    pub public_url: String,
    /// Requests of one caller per second, and how many at once after a pause.
    pub rate: rate::Limit,
    /// Sign-in attempts of one address.
    pub sign_in_rate: rate::Limit,
    /// Requests that may be with the database at once, and how many may wait for that.
    pub admission: admission::Bound,
    /// Largest body, except for uploads of code.
    pub body_limit: usize,
    /// So long a whole body may take, except for uploads of code.
    pub body_time: Duration,
    /// Answers that `Prefer: wait` may hold open at once.
    pub waits: usize,
    pub live: sse::Bound,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            public_url: "http://127.0.0.1:7420".into(),
            rate: rate::Limit {
                per_second: 2_000.0,
                burst: 4_000.0,
            },
            sign_in_rate: rate::Limit {
                per_second: 0.2,
                burst: 10.0,
            },
            admission: admission::Bound {
                at_once: 192,
                waiting: 512,
                patience: Duration::from_secs(2),
            },
            body_limit: BODY_LIMIT,
            body_time: Duration::from_secs(60),
            waits: 32,
            live: sse::Bound {
                per_user: 64,
                lasting: Duration::from_secs(300),
            },
        }
    }
}

impl From<&Config> for Settings {
    fn from(config: &Config) -> Self {
        let per_second = f64::from(config.request_rate);
        Self {
            public_url: config.public_url.clone(),
            rate: rate::Limit {
                per_second,
                burst: 2.0 * per_second,
            },
            ..Self::default()
        }
    }
}

/// What every handler may use. Cheap to clone: every layer of every request does.
#[derive(Clone)]
pub struct WebState {
    parts: Arc<Parts>,
}

pub struct Parts {
    pub db: Db,
    pub actions: Actions,
    pub hub: Hub,
    pub settings: Arc<Settings>,
    pub(crate) access: auth::cache::AccessCache,
    pub(crate) admission: admission::Admission,
    pub(crate) rates: rate::Rates,
    pub(crate) sign_in_rates: rate::Rates,
    pub(crate) waits: Semaphore,
    pub(crate) watching: sse::Watching,
    pub(crate) stop: CancellationToken,
    listener: Listener,
}

impl WebState {
    /// Inside a tokio runtime: the hub and the batching of creates begin at once.
    pub fn new(
        db: Db,
        clock: Arc<dyn Clock>,
        keys: Arc<KeyFile>,
        settings: impl Into<Settings>,
        stop: CancellationToken,
    ) -> Self {
        let settings = Arc::new(settings.into());
        let listener = Listener::start(&db, &[notify::LOGS, notify::EVENTS, notify::ACCESS], stop.clone());
        let hub_clock = clock.clone();
        let hub = Hub::start(&db, &listener, Arc::new(move || hub_clock.now()), stop.clone());
        let actions = Actions::new(db.clone(), clock, keys);
        let parts = Parts {
            access: auth::cache::AccessCache::new(actions.wake.access_changes()),
            actions,
            hub,
            admission: admission::Admission::new(settings.admission),
            rates: rate::Rates::new(settings.rate),
            sign_in_rates: rate::Rates::new(settings.sign_in_rate),
            waits: Semaphore::new(settings.waits),
            watching: sse::Watching::new(settings.live.per_user),
            settings,
            stop,
            listener,
            db,
        };
        Self { parts: Arc::new(parts) }
    }

    /// What goes on beside requests: changes of access elsewhere are heard of, and last uses are written down.
    pub async fn run(self, stop: CancellationToken) {
        auth::cache::keep(&self.access, &self.actions.wake, &self.db, &self.listener, stop).await;
    }
}

impl Deref for WebState {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.parts
    }
}

/// The whole program's HTTP side.
pub fn router(state: WebState) -> Router {
    let (router, _, table) = routes().finish();
    manners::wrap(router, table, state)
}

/// Every route, with who may use it.
fn routes() -> Routes {
    let routes = api::register(Routes::new(api::document::begin()));
    let routes = auth::register(routes);
    pages::register(routes)
}

/// The API's document, as it is committed and served.
pub fn openapi() -> OpenApi {
    let (_, document, table) = routes().finish();
    api::document::polish(document, &table)
}

/// Every route with its access, for the access test.
pub fn access_table() -> Arc<Table> {
    routes().finish().2
}
