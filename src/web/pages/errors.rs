//! A refusal or a fault as a page, made from the same table that the API answers from.

use askama::Template;

use super::view::Shell;

#[derive(Debug, Template)]
#[template(path = "error.html")]
pub struct ErrorPage {
    pub shell: Shell,
    pub status: u16,
    pub code: String,
    pub title: String,
    pub detail: String,
    pub hint: Option<String>,
    /// Trying the same again may help.
    pub retry: bool,
    pub request: Option<String>,
}
