//! `GET /api/v1/jobs/{job}/events`: what happened to a job, as a page or live.

use axum::{
    Json,
    extract::State,
    http::HeaderMap,
    response::{IntoResponse, Response},
};
use serde::Deserialize;
use trainyard_core::model::JobId;
use utoipa::IntoParams;

use super::super::super::{
    Error, WebState,
    extract::{Asker, Params, PathOf},
    page::{self, EventList},
    sse,
};
use crate::{
    db::{
        DbError,
        events::Subject,
        feed::{self, SubjectKey},
    },
    hub::events::EventView,
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventParams {
    /// Live: begin behind this event. `Last-Event-ID` wins over it.
    #[param(minimum = 0)]
    pub after: Option<i64>,
    /// At most this many. Left out: 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

/// What happened to a job, the newest first. With `Accept: text/event-stream` it is live and in order: each event's
/// `id` is its number, `Last-Event-ID` goes on, `reset` says that a part was removed meanwhile, and `again` asks to come
/// back.
#[utoipa::path(
    get,
    path = "/api/v1/jobs/{job}/events",
    tag = "jobs",
    params(("job" = JobId, Path, description = "The job's id"), EventParams),
    responses((status = 200, content((EventList = "application/json"), (String = "text/event-stream"))))
)]
pub async fn list_job_events(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(job): PathOf<JobId>,
    Params(params): Params<EventParams>,
    headers: HeaderMap,
) -> Result<Response, Error> {
    answer(
        &state,
        &asker,
        ("job", &job.to_string()),
        Subject::Job(job),
        params,
        &headers,
    )
    .await
}

/// The events of one subject that the caller may see.
pub(in crate::web::api) async fn answer(
    state: &WebState,
    asker: &Asker,
    (what, id): (&str, &str),
    subject: Subject,
    params: EventParams,
    headers: &HeaderMap,
) -> Result<Response, Error> {
    let limit = page::limit(params.limit)?;
    let after = sse::after(headers, params.after)?;
    let key: SubjectKey = match feed::readable(&state.db, &asker.scope(), subject).await {
        Err(DbError::NotFound) => return Err(Error::not_found(what, id)),
        other => other?,
    };
    if sse::wanted(headers) {
        return sse::response(state, asker, headers, state.hub.follow_events(key, after));
    }
    let before: Option<i64> = page::decode(&id, params.cursor.as_deref())?;
    let rows = feed::of_subject_before(&state.db, key, before, limit + 1).await?;
    let views = rows.iter().map(EventView::from).collect();
    let (items, next) = page::cut(views, limit, &id, |event: &EventView| event.seq);
    Ok(Json(EventList { items, next }).into_response())
}
