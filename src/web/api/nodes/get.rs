//! `GET /api/v1/nodes/{node}`: one node.

use axum::{Json, extract::State};
use trainyard_core::model::NodeId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::nodes_read::Node;

/// One node with its last sample.
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{node}",
    tag = "nodes",
    params(("node" = NodeId, Path, description = "The node's id")),
    responses((status = 200, body = Node))
)]
pub async fn get_node(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(node): PathOf<NodeId>,
) -> Result<Json<Node>, Error> {
    Ok(Json(super::seen(&state, &asker, node).await?))
}
