//! `GET /healthz`: this process answers. `GET /readyz`: and so does the database, with a schema that fits.

use axum::{Json, extract::State};
use serde::Serialize;
use utoipa::ToSchema;

use super::super::{Code, Error, WebState};
use crate::db::installation::{self, Schema};

#[derive(Debug, Serialize, ToSchema)]
pub struct Health {
    /// `ok`.
    pub status: &'static str,
    pub version: &'static str,
}

/// This process is alive. Needs no database.
#[utoipa::path(get, path = "/healthz", tag = "installation", responses((status = 200, body = Health)))]
pub async fn healthz() -> Json<Health> {
    Json(Health {
        status: "ok",
        version: env!("CARGO_PKG_VERSION"),
    })
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Readiness {
    /// `ready`.
    pub status: &'static str,
    /// The schema that was found in the database.
    pub schema: i64,
}

/// The database answers and its schema fits: requests can be served.
#[utoipa::path(
    get,
    path = "/readyz",
    tag = "installation",
    responses(
        (status = 200, body = Readiness),
        (status = 503, description = "Not ready; see the code", body = super::super::error::Problem,
            content_type = "application/problem+json")
    )
)]
pub async fn readyz(State(state): State<WebState>) -> Result<Json<Readiness>, Error> {
    let not_ready = |words: String| {
        Error::new(Code::NotStarted, words)
            .hint("run `trainyard migrate`, or start `trainyard up`")
            .retry_after(2)
    };
    match installation::schema(&state.db).await? {
        Schema::Current(schema) | Schema::Newer { found: schema, .. } => Ok(Json(Readiness {
            status: "ready",
            schema,
        })),
        Schema::Absent => Err(not_ready("The database has no schema of ours yet".into())),
        Schema::Older { found, needed } => Err(not_ready(format!(
            "The database has schema {found}; this program needs {needed}"
        ))),
        Schema::Broken { version } => Err(not_ready(format!("Migration {version} broke off half-way"))),
    }
}
