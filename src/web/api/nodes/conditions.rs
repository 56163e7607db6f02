//! `GET /api/v1/nodes/{node}/conditions`: what holds of a node now.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use trainyard_core::model::{ConditionStatus, NodeId, Severity};
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, PathOf},
};
use crate::db::{
    conditions::{self, Condition},
    events::Subject,
};

#[derive(Debug, Serialize, ToSchema)]
pub struct ConditionList {
    pub items: Vec<ConditionView>,
}

/// Something that holds, does not hold, or is not known, with its evidence.
#[derive(Debug, Serialize, ToSchema)]
pub struct ConditionView {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: ConditionStatus,
    pub severity: Severity,
    pub reason: String,
    pub message: String,
    #[schema(value_type = Object)]
    pub evidence: Value,
    /// When the status became what it is.
    pub since: DateTime<Utc>,
}

/// Conditions as the API shows them, what matters most first.
pub(in crate::web::api) fn view(mut conditions: Vec<Condition>) -> ConditionList {
    conditions.sort_by(|a, b| {
        let weight = |condition: &Condition| (condition.status == ConditionStatus::True, condition.severity);
        weight(b).cmp(&weight(a)).then_with(|| a.kind.cmp(&b.kind))
    });
    let items = conditions.into_iter().map(|condition| ConditionView {
        kind: condition.kind,
        status: condition.status,
        severity: condition.severity,
        reason: condition.reason,
        message: condition.message,
        evidence: condition.evidence,
        since: condition.since,
    });
    ConditionList { items: items.collect() }
}

/// What holds of a node now, what matters most first. The history is among its events.
#[utoipa::path(
    get,
    path = "/api/v1/nodes/{node}/conditions",
    tag = "nodes",
    params(("node" = NodeId, Path, description = "The node's id")),
    responses((status = 200, body = ConditionList))
)]
pub async fn list_node_conditions(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(node): PathOf<NodeId>,
) -> Result<Json<ConditionList>, Error> {
    super::seen(&state, &asker, node).await?;
    Ok(Json(view(conditions::of(&state.db, Subject::Node(node)).await?)))
}
