//! `GET /api/v1/nodes`: nodes, by name.

use axum::{Json, extract::State};
use serde::Deserialize;
use trainyard_core::model::NodeId;
use utoipa::{IntoParams, ToSchema};

use super::super::{
    super::{
        Error, WebState,
        extract::{Asker, Params},
        page::{self, NodeList},
    },
    lookup,
};
use crate::db::nodes_read::{self, NodeFilter};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct NodeParams {
    /// Only nodes of this cluster, by id or name.
    pub cluster: Option<String>,
    /// Only nodes in this phase.
    #[param(inline)]
    pub phase: Option<NodePhase>,
    /// Nodes that went away, too.
    #[serde(default)]
    pub gone: bool,
    /// At most this many. Left out: 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NodePhase {
    Ready,
    NotReady,
    Gone,
}

/// Nodes of the clusters that the caller may use, by name.
#[utoipa::path(
    get,
    path = "/api/v1/nodes",
    tag = "nodes",
    params(NodeParams),
    responses((status = 200, body = NodeList))
)]
pub async fn list_nodes(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<NodeParams>,
) -> Result<Json<NodeList>, Error> {
    let limit = page::limit(params.limit)?;
    let cluster = match &params.cluster {
        Some(text) => Some(lookup::cluster(&state, &asker, text).await?),
        None => None,
    };
    let phase = params.phase.map(|phase| match phase {
        NodePhase::Ready => "ready",
        NodePhase::NotReady => "not_ready",
        NodePhase::Gone => "gone",
    });
    let filter = NodeFilter {
        cluster,
        phase: phase.map(str::to_owned),
        gone: params.gone || phase == Some("gone"),
    };
    let after: Option<(String, NodeId)> = page::decode(&filter, params.cursor.as_deref())?;
    let after = after.as_ref().map(|(name, id)| (name.as_str(), *id));
    let rows = nodes_read::list(&state.db, &asker.scope(), &filter, after, limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &filter, |node| (node.name.clone(), node.id));
    Ok(Json(NodeList { items, next }))
}
