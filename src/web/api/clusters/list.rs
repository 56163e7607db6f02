//! `GET /api/v1/clusters`: the clusters that the caller may use.

use axum::{Json, extract::State};

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params},
    page::{self, ClusterList, PageParams},
};
use crate::db::clusters_read;

/// The clusters that the caller may use, by name.
#[utoipa::path(
    get,
    path = "/api/v1/clusters",
    tag = "clusters",
    params(PageParams),
    responses((status = 200, body = ClusterList))
)]
pub async fn list_clusters(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<PageParams>,
) -> Result<Json<ClusterList>, Error> {
    let limit = page::limit(params.limit)?;
    let after: Option<String> = page::decode(&"clusters", params.cursor.as_deref())?;
    let rows = clusters_read::list(&state.db, &asker.scope(), after.as_deref(), limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &"clusters", |cluster| cluster.name.clone());
    Ok(Json(ClusterList { items, next }))
}
