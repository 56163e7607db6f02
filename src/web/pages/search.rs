//! Finding jobs, nodes and clusters by name.

use askama::Template;

use super::view::{Shell, Tone};

#[derive(Debug, Template)]
#[template(path = "search.html")]
pub struct SearchPage {
    pub shell: Shell,
    pub text: String,
    pub groups: Vec<HitGroup>,
}

#[derive(Debug, Clone)]
pub struct HitGroup {
    pub heading: &'static str,
    pub none: &'static str,
    pub hits: Vec<Hit>,
}

#[derive(Debug, Clone)]
pub struct Hit {
    pub tone: Tone,
    pub name: String,
    pub href: String,
    pub about: String,
}
