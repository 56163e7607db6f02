//! `GET /api/v1/clusters/{cluster}/grants`: which teams may use a cluster.

use axum::{Json, extract::State};
use serde::Serialize;
use trainyard_core::model::ClusterId;
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::clusters_read::{self, Grant};

#[derive(Debug, Serialize, ToSchema)]
pub struct GrantList {
    pub items: Vec<Grant>,
}

/// Which teams may use a cluster: all for admins, the caller's own teams for others.
#[utoipa::path(
    get,
    path = "/api/v1/clusters/{cluster}/grants",
    tag = "clusters",
    params(("cluster" = ClusterId, Path, description = "The cluster's id")),
    responses((status = 200, body = GrantList))
)]
pub async fn list_grants(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(cluster): PathOf<ClusterId>,
) -> Result<Json<GrantList>, Error> {
    super::seen(&state, &asker, cluster).await?;
    let items = clusters_read::grants(&state.db, &asker.scope(), cluster).await?;
    Ok(Json(GrantList { items }))
}
