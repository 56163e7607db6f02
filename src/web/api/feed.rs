//! `GET /api/v1/feed`: what happens to all subjects that the caller may see, as a page or live.

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::super::{
    Error, WebState,
    extract::{Asker, Params},
    page, sse,
};
use crate::{
    db::feed::{self, Events},
    hub::events::EventView,
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct FeedParams {
    /// A place in the feed; what follows it is answered. Left out: from the beginning.
    #[param(minimum = 0)]
    pub after: Option<i64>,
    /// At most this many. Left out: 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
}

/// A stretch of the feed.
#[derive(Debug, Serialize, ToSchema)]
pub struct FeedPage {
    pub items: Vec<EventView>,
    /// The place to go on from. There is nothing more just now when it is the place that was asked behind; a page may hold
    /// nothing and still move on, since one request looks at so many places only.
    pub next: i64,
    /// What came next was removed by retention: begin anew from `next`.
    pub reset: bool,
}

/// What happens to everything that the caller may see. With `Accept: text/event-stream` it is live: each event's `id`
/// is its place, `Last-Event-ID` goes on, `reset` says that a part was removed meanwhile, and `again` asks to come back.
#[utoipa::path(
    get,
    path = "/api/v1/feed",
    tag = "installation",
    params(FeedParams),
    responses((status = 200, content((FeedPage = "application/json"), (String = "text/event-stream"))))
)]
pub async fn get_feed(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<FeedParams>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let after = sse::after(&headers, params.after)?;
    if sse::wanted(&headers) {
        let messages = state.hub.follow_feed(asker.scope(), after);
        return sse::response(&state, &asker, &headers, messages);
    }
    let limit = page::limit(params.limit)?;
    let (events, next) = feed::of_all(&state.db, &asker.scope(), after, limit).await?;
    let (rows, reset) = match events {
        Events::Next(rows) => (rows, false),
        Events::Reset => (Vec::new(), true),
    };
    Ok(Json(FeedPage {
        items: rows.iter().map(EventView::from).collect(),
        next,
        reset,
    })
    .into_response())
}
