//! `GET /api/v1/clusters/{cluster}/events`: what happened to a cluster, as a page or live.

use axum::{extract::State, http::HeaderMap, response::Response};
use trainyard_core::model::ClusterId;

use super::super::{
    super::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
        page::EventList,
    },
    jobs::events::{EventParams, answer},
};
use crate::db::events::Subject;

/// What happened to a cluster, the newest first; live with `Accept: text/event-stream`.
#[utoipa::path(
    get,
    path = "/api/v1/clusters/{cluster}/events",
    tag = "clusters",
    params(("cluster" = ClusterId, Path, description = "The cluster's id"), EventParams),
    responses((status = 200, content((EventList = "application/json"), (String = "text/event-stream"))))
)]
pub async fn list_cluster_events(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(cluster): PathOf<ClusterId>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    let id = cluster.to_string();
    answer(
        &state,
        &asker,
        ("cluster", &id),
        Subject::Cluster(cluster),
        params,
        &headers,
    )
    .await
}
