//! `GET /api/v1/jobs/{job}/usage`: what a job held, from when to when.

use axum::{Json, extract::State};
use serde::Serialize;
use trainyard_core::model::JobId;
use utoipa::ToSchema;

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params, PathOf},
    page::{self, PageParams},
};
use crate::db::usage_read::{self, UsageInterval, UsageTotals};

#[derive(Debug, Serialize, ToSchema)]
pub struct Usage {
    /// Over all intervals, open ones counted to now.
    pub totals: UsageTotals,
    pub items: Vec<UsageInterval>,
    /// The next page's cursor. `null`: this was the last one.
    pub next: Option<String>,
}

/// What a job held from when to when: intervals that cover its life from submission to end without gap or overlap.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/usage",
    tag = "metrics",
    params(("job" = JobId, Path, description = "The job's id"), PageParams),
    responses((status = 200, body = Usage))
)]
pub async fn get_usage(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<PageParams>,
) -> Result<Json<Usage>, Error> {
    let limit = page::limit(params.limit)?;
    let after: Option<i32> = page::decode(&job, params.cursor.as_deref())?;
    let home = super::home(&state, &asker, job).await?;
    let totals = usage_read::totals(&state.db, &home, state.actions.now()).await?;
    let rows = usage_read::intervals(&state.db, &home, after.unwrap_or(0), limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &job, |interval| interval.seq);
    Ok(Json(Usage { totals, items, next }))
}
