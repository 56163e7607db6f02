//! What a program's last lines say about its end. One table of patterns; the first that matches from the end wins
//! within its weight.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::attempt::Evidence;

/// A line that was recognised, with what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Recognised {
    /// A stable code, such as `python_traceback`.
    pub code: String,
    pub evidence: Evidence,
    /// The line as it was printed, cut to 500 characters.
    pub line: String,
    /// What it means, in words.
    pub meaning: String,
    /// What a person can do.
    pub next: String,
}

/// The most telling line among a replica's last lines (oldest first), if any is known.
pub fn recognise(lines: &[&str]) -> Option<Recognised> {
    let _ = lines;
    todo!()
}

/// Only the weight of [`recognise`]; `Silent` when nothing is known.
pub fn weigh(lines: &[&str]) -> Evidence {
    recognise(lines).map_or(Evidence::Silent, |found| found.evidence)
}
