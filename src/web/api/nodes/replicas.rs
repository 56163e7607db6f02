//! `GET /api/v1/nodes/{node}/replicas`: what runs on a node.

use axum::{Json, extract::State};
use serde::Serialize;
use trainyard_core::model::NodeId;
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::nodes_read::{self, NodeReplica};

/// More replicas than this on one node are not listed.
const MOST: i64 = 1000;

#[derive(Debug, Serialize, ToSchema)]
pub struct NodeReplicaList {
    pub items: Vec<NodeReplica>,
}

/// What holds room on a node now, as far as the caller may see the jobs.
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{node}/replicas",
    tag = "nodes",
    params(("node" = NodeId, Path, description = "The node's id")),
    responses((status = 200, body = NodeReplicaList))
)]
pub async fn list_node_replicas(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(node): PathOf<NodeId>,
) -> Result<Json<NodeReplicaList>, Error> {
    let node = super::seen(&state, &asker, node).await?;
    let items = nodes_read::replicas(&state.db, &asker.scope(), &node, MOST).await?;
    Ok(Json(NodeReplicaList { items }))
}
