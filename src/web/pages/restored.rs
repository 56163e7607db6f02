//! The button on every page after a restore: what it does is told beside it, in the page's frame.

use axum::{extract::State, response::Redirect};

use super::super::{Error, WebState, extract::Asker};

/// `POST /restored/confirm`.
pub async fn confirm(State(state): State<WebState>, asker: Asker) -> Result<Redirect, Error> {
    state.actions.confirm_restore(asker.ask()).await?;
    Ok(Redirect::to("/jobs"))
}
