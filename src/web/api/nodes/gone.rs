//! `POST /api/v1/nodes/{node}/gone`: a machine will not come back.

use axum::{Json, extract::State};
use trainyard_core::model::NodeId;

use super::super::super::{
    Error, WebState,
    error::Problem,
    extract::{Asker, PathOf},
};
use crate::db::nodes_read::Node;

/// Says that a machine will not come back. What lived there ends as lost, with what its restart policy says, and what
/// waited for it may go elsewhere. Refused while its worker still looks after it. Should it come back after all, it
/// does so as a new node, and what still runs on it is ended.
#[utoipa::path(
    post,
    path = "/api/v1/nodes/{node}/gone",
    tag = "nodes",
    params(("node" = NodeId, Path, description = "The node's id")),
    responses(
        (status = 200, description = "It is gone", body = Node),
        (status = 409, description = "Its worker was there a moment ago", body = Problem,
            content_type = "application/problem+json")
    )
)]
pub async fn declare_gone(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(node): PathOf<NodeId>,
) -> Result<Json<Node>, Error> {
    Ok(Json(state.actions.declare_gone(asker.ask(), node).await?))
}
