//! `GET /api/v1/jobs/{job}/incarnations`: the processes or pods that an attempt's replicas had.

use axum::{Json, extract::State};
use trainyard_core::model::{IncarnationId, JobId};

use super::{
    super::super::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
        page::{self, IncarnationList},
    },
    replicas::OfAttempt,
};
use crate::db::attempts_read;

/// The processes or pods that an attempt's replicas had, the oldest first.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/incarnations",
    tag = "attempts",
    params(("job" = JobId, Path, description = "The job's id"), OfAttempt),
    responses((status = 200, body = IncarnationList))
)]
pub async fn list_incarnations(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<OfAttempt>,
) -> Result<Json<IncarnationList>, Error> {
    let limit = page::limit(params.limit)?;
    let home = super::home(&state, &asker, job).await?;
    let filter = (job, super::attempt_or_newest(&home, params.attempt)?);
    let after: Option<IncarnationId> = page::decode(&filter, params.cursor.as_deref())?;
    let rows = attempts_read::incarnations(&state.db, &home, filter.1, after, limit + 1).await?;
    let (items, next) = page::cut(rows, limit, &filter, |incarnation| incarnation.id);
    Ok(Json(IncarnationList { items, next }))
}
