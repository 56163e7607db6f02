//! `GET /api/v1/jobs/{job}/post-mortem`: how an attempt ended badly.

use axum::{Json, extract::State};
use serde::Deserialize;
use trainyard_core::{model::JobId, plan::postmortem::PostMortem};
use utoipa::IntoParams;

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params, PathOf},
};
use crate::db::{DbError, attempts_read};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PostMortemParams {
    /// The attempt's number. Left out: the newest that has one.
    #[param(minimum = 1)]
    #[serde(default, deserialize_with = "crate::web::params::at_least::<1, _>")]
    pub attempt: Option<i32>,
}

/// How an attempt ended badly: every replica's exit, who failed first and who were victims, nodes then. Frozen.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/post-mortem",
    tag = "attempts",
    params(("job" = JobId, Path, description = "The job's id"), PostMortemParams),
    responses((status = 200, body = PostMortem))
)]
pub async fn get_post_mortem(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<PostMortemParams>,
) -> Result<Json<PostMortem>, Error> {
    let home = super::home(&state, &asker, job).await?;
    match attempts_read::post_mortem(&state.db, &home, params.attempt).await {
        Err(DbError::NotFound) => {
            let id = params
                .attempt
                .map_or_else(|| job.to_string(), |attempt| format!("of attempt {attempt}"));
            Err(Error::not_found("post-mortem", &id).hint("only attempts that ended badly have one"))
        }
        other => Ok(Json(other?)),
    }
}
