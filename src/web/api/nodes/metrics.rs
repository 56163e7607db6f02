//! `GET /api/v1/nodes/{node}/metrics`: a node's series, as JSON or CSV.

use axum::{extract::State, http::HeaderMap, response::Response};
use trainyard_core::model::NodeId;

use super::super::{
    super::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
    },
    jobs::metrics::{MetricList, MetricParams, answer},
};
use crate::db::metrics::Owner;

/// A node's series: processor, memory, disk, load, temperature, GPUs. As JSON columns, or as CSV with
/// `Accept: text/csv`.
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{node}/metrics",
    tag = "nodes",
    params(("node" = NodeId, Path, description = "The node's id"), MetricParams),
    responses((status = 200, content((MetricList = "application/json"), (String = "text/csv"))))
)]
pub async fn get_node_metrics(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(node): PathOf<NodeId>,
    Params(params): Params<MetricParams>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    super::seen(&state, &asker, node).await?;
    answer(&state, Owner::Node(node), &params, &headers).await
}
