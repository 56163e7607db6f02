//! `GET /api/v1/clusters/{cluster}/conditions`: what holds of a cluster now.

use axum::{Json, extract::State};
use trainyard_core::model::ClusterId;

use super::super::{
    super::{
        Error, WebState,
        extract::{Asker, PathOf},
    },
    nodes::conditions::{ConditionList, view},
};
use crate::db::{conditions, events::Subject};

/// What holds of a cluster now.
#[utoipa::path(
    get,
    path = "/api/v1/clusters/{cluster}/conditions",
    tag = "clusters",
    params(("cluster" = ClusterId, Path, description = "The cluster's id")),
    responses((status = 200, body = ConditionList))
)]
pub async fn list_cluster_conditions(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(cluster): PathOf<ClusterId>,
) -> Result<Json<ConditionList>, Error> {
    super::seen(&state, &asker, cluster).await?;
    Ok(Json(view(conditions::of(&state.db, Subject::Cluster(cluster)).await?)))
}
