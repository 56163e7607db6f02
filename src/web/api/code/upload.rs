//! `POST /api/v1/code`: upload code as a tar archive.

use axum::{
    Json,
    extract::{Request, State},
    http::StatusCode,
};
use tokio::sync::Semaphore;
use trainyard_core::model::TeamRole;

use super::super::{
    super::{
        Code, Error, WebState,
        extract::{Asker, Params},
    },
    lookup,
    secrets::OfTeam,
};
use crate::{actions::code::MAX_BYTES, db::code_uploads::CodeArchive};

/// Where archives go, which are larger than any other body and take their time.
pub const PATH: &str = "/api/v1/code";

/// Archives are held in memory while they are read, so only so many at once.
static UPLOADS: Semaphore = Semaphore::const_new(4);

/// Uploads code as a tar archive, at most 32 MiB. Documents name it by its digest: `code: { upload: "sha256:..." }`.
/// The same bytes again are stored once.
#[utoipa::path(
    post,
    path = "/api/v1/code",
    tag = "jobs",
    params(OfTeam),
    request_body(content(("application/x-tar"), ("application/octet-stream")), description = "A tar archive"),
    responses(
        (status = 201, description = "Stored", body = CodeArchive),
        (status = 200, description = "The team has it already", body = CodeArchive)
    )
)]
pub async fn upload_code(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<OfTeam>,
    request: Request,
) -> Result<(StatusCode, Json<CodeArchive>), Error> {
    let team = lookup::team_or_only(&state, &asker, params.team.as_deref(), TeamRole::Member).await?;
    // Whether the caller may is asked before 32 MiB are read.
    state.actions.may_in(asker.ask(), team, TeamRole::Member).await?;
    let _place = UPLOADS.try_acquire().map_err(|_| {
        Error::new(Code::Overloaded, "Several uploads are under way already")
            .hint("try again after the time in Retry-After")
            .retry_after(5)
    })?;
    let body = axum::body::to_bytes(request.into_body(), MAX_BYTES)
        .await
        .map_err(|_| {
            Error::new(
                Code::TooLarge,
                format!("An archive has at most {MAX_BYTES} bytes, and has to arrive whole"),
            )
            .hint("leave data and checkpoints out; name a git commit for large repositories")
        })?;
    let (archive, new) = state.actions.upload_code(asker.ask(), team, &body).await?;
    Ok((if new { StatusCode::CREATED } else { StatusCode::OK }, Json(archive)))
}
