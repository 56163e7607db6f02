//! `GET /api/v1/clusters/{cluster}`: one cluster.

use axum::{Json, extract::State};
use trainyard_core::model::ClusterId;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::clusters_read::Cluster;

/// One cluster.
#[utoipa::path(
    get,
    path = "/api/v1/clusters/{cluster}",
    tag = "clusters",
    params(("cluster" = ClusterId, Path, description = "The cluster's id")),
    responses((status = 200, body = Cluster))
)]
pub async fn get_cluster(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(cluster): PathOf<ClusterId>,
) -> Result<Json<Cluster>, Error> {
    Ok(Json(super::seen(&state, &asker, cluster).await?))
}
