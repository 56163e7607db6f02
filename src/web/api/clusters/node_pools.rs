//! `GET /api/v1/clusters/{cluster}/node-pools`: a cluster's node pools.

use axum::{Json, extract::State};
use serde::Serialize;
use trainyard_core::model::ClusterId;
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::clusters_read::{self, NodePool};

#[derive(Debug, Serialize, ToSchema)]
pub struct NodePoolList {
    pub items: Vec<NodePool>,
}

/// A cluster's node pools, by name.
#[utoipa::path(
    get,
    path = "/api/v1/clusters/{cluster}/node-pools",
    tag = "clusters",
    params(("cluster" = ClusterId, Path, description = "The cluster's id")),
    responses((status = 200, body = NodePoolList))
)]
pub async fn list_node_pools(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(cluster): PathOf<ClusterId>,
) -> Result<Json<NodePoolList>, Error> {
    let cluster = super::seen(&state, &asker, cluster).await?;
    let items = clusters_read::node_pools(&state.db, &cluster).await?;
    Ok(Json(NodePoolList { items }))
}
