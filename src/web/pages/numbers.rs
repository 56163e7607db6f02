//! The numbers behind a plot, as a table.

use askama::Template;

use super::view::Shell;

#[derive(Debug, Template)]
#[template(path = "numbers.html")]
pub struct NumbersPage {
    pub shell: Shell,
    pub heading: String,
    pub about: String,
    pub csv: String,
    pub json: String,
    pub columns: Vec<String>,
    pub rows: Vec<Vec<String>>,
}
