//! Asking before a verb is done: what will be lost, and the name where it cannot be undone.

use askama::Template;

use super::view::Shell;

#[derive(Debug, Template)]
#[template(path = "confirm.html")]
pub struct ConfirmPage {
    pub shell: Shell,
    /// `Cancel llama-pretrain?`.
    pub question: String,
    pub consequence: String,
    pub lost: Vec<String>,
    pub action: String,
    pub verb: &'static str,
    pub danger: bool,
    pub keep: &'static str,
    pub back: String,
    /// The name to type, where it cannot be undone.
    pub type_name: Option<String>,
    pub priority: Option<i32>,
    /// The generation that the reader saw, so that a change in between is noticed.
    pub etag: Option<String>,
    /// Why the last try was not done.
    pub fault: Option<String>,
}
