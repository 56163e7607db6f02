//! Secrets: put, listed by name, forgotten. No endpoint answers a value.

use serde::Deserialize;
use utoipa::IntoParams;

pub mod delete;
pub mod list;
pub mod put;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct OfTeam {
    /// The team, by id or name. Left out: the only one that this can be about.
    pub team: Option<String>,
}
