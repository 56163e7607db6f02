//! `POST /api/v1/installation/confirm-restore`: let workers act on restored records.

use axum::{Json, extract::State};

use super::{
    super::{Error, WebState, extract::Asker},
    installation::{InstallationView, view},
};

/// Lets workers act on restored records. After a restore they only observe: nothing is started, stopped or removed, so
/// that a person can compare the records with what really runs. From here on, what runs and is not in the records is
/// ended. Without a restore that waits for this, nothing happens.
#[utoipa::path(
    post,
    path = "/api/v1/installation/confirm-restore",
    tag = "installation",
    responses((status = 200, description = "Workers may act", body = InstallationView))
)]
pub async fn confirm_restore(State(state): State<WebState>, asker: Asker) -> Result<Json<InstallationView>, Error> {
    state.actions.confirm_restore(asker.ask()).await?;
    Ok(Json(view(&state).await?))
}
