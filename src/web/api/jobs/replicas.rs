//! `GET /api/v1/jobs/{job}/replicas`: the replicas of an attempt, in rank order.

use axum::{Json, extract::State};
use serde::Deserialize;
use trainyard_core::model::JobId;
use utoipa::IntoParams;

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params, PathOf},
    page::{self, ReplicaList},
};
use crate::db::attempts_read;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfAttempt {
    /// The attempt's number. Left out: the newest.
    #[param(minimum = 1)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<1, _>")]
    pub attempt: Option<i32>,
    /// At most this many. Left out: 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

/// The replicas of an attempt, in rank order.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/replicas",
    tag = "attempts",
    params(("job" = JobId, Path, description = "The job's id"), OfAttempt),
    responses((status = 200, body = ReplicaList))
)]
pub async fn list_replicas(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<OfAttempt>,
) -> Result<Json<ReplicaList>, Error> {
    let limit = page::limit(params.limit)?;
    let home = super::home(&state, &asker, job).await?;
    let filter = (job, super::attempt_or_newest(&home, params.attempt)?);
    let after: Option<i32> = page::decode(&filter, params.cursor.as_deref())?;
    let rows = attempts_read::replicas(&state.db, &home, filter.1, after, limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &filter, |replica| replica.rank);
    Ok(Json(ReplicaList { items, next }))
}
