//! `GET /api/v1/nodes/{node}/events`: what happened to a node, as a page or live.

use axum::{extract::State, http::HeaderMap, response::Response};
use trainyard_core::model::NodeId;

use super::super::{
    super::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
        page::EventList,
    },
    jobs::events::{EventParams, answer},
};
use crate::db::events::Subject;

/// What happened to a node, the newest first; live with `Accept: text/event-stream`.
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{node}/events",
    tag = "nodes",
    params(("node" = NodeId, Path, description = "The node's id"), EventParams),
    responses((status = 200, content((EventList = "application/json"), (String = "text/event-stream"))))
)]
pub async fn list_node_events(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(node): PathOf<NodeId>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let id = node.to_string();
    answer(&state, &asker, ("node", &id), Subject::Node(node), params, &headers).await
}
