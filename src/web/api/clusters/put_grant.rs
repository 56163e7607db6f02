//! `PUT /api/v1/clusters/{cluster}/grants/{team}`: let a team use a cluster.

use axum::{Json, extract::State};
use serde::Deserialize;
use trainyard_core::model::{ClusterId, TeamId};
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, JsonBody, PathOf},
};
use crate::db::{clusters_read::Grant, grants::GrantTerms};

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewGrant {
    pub level: GrantLevel,
    /// Where its jobs go, on clusters that have namespaces.
    pub namespace: Option<String>,
    /// The queue that its jobs wait in, where the cluster has several.
    pub queue: Option<String>,
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantLevel {
    Use,
    /// Also what reaches beyond the team's own namespace.
    Privileged,
}

/// Lets a team use a cluster, or changes on what terms.
#[utoipa::path(
    put,
    path = "/api/v1/clusters/{cluster}/grants/{team}",
    tag = "clusters",
    params(
        ("cluster" = ClusterId, Path, description = "The cluster's id"),
        ("team" = TeamId, Path, description = "The team's id")
    ),
    request_body(content = NewGrant, example = json!({ "level": "use" })),
    responses((status = 200, body = Grant))
)]
pub async fn put_grant(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((cluster, team)): PathOf<(ClusterId, TeamId)>,
    JsonBody(new): JsonBody<NewGrant>,
) -> Result<Json<Grant>, Error> {
    let terms = GrantTerms {
        namespace: new.namespace.as_deref(),
        queue: new.queue.as_deref(),
        level: match new.level {
            GrantLevel::Use => "use",
            GrantLevel::Privileged => "privileged",
        },
    };
    Ok(Json(state.actions.put_grant(asker.ask(), cluster, team, terms).await?))
}
