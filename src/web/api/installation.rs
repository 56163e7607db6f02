//! `GET /api/v1/installation`: which installation this is.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::{Code, Error, WebState, extract::Asker};
use crate::db::{DbError, installation};

#[derive(Debug, Serialize, ToSchema)]
pub struct InstallationView {
    /// On every label, tag and token that Trainyard writes anywhere.
    pub id: String,
    pub version: &'static str,
    pub created_at: DateTime<Utc>,
    /// Set by a restore: workers only observe until a person confirms.
    pub restored_at: Option<DateTime<Utc>>,
}

/// Which installation this is.
#[utoipa::path(
    get,
    path = "/api/v1/installation",
    tag = "installation",
    responses((status = 200, body = InstallationView))
)]
pub async fn get_installation(State(state): State<WebState>, _: Asker) -> Result<Json<InstallationView>, Error> {
    Ok(Json(view(&state).await?))
}

pub(super) async fn view(state: &WebState) -> Result<InstallationView, Error> {
    let row = match installation::read(&state.db).await {
        Err(DbError::NotFound) => {
            return Err(Error::new(Code::NotStarted, "No first start happened yet").retry_after(5));
        }
        other => other?,
    };
    Ok(InstallationView {
        id: row.id.to_string(),
        version: env!("CARGO_PKG_VERSION"),
        created_at: row.created_at,
        restored_at: row.restored_at,
    })
}
