//! What belongs to the person who looks: tokens.

use askama::Template;

use super::view::{Fact, SelectOption, Shell, When};

#[derive(Debug, Template)]
#[template(path = "settings.html")]
pub struct SettingsPage {
    pub shell: Shell,
    pub facts: Vec<Fact>,
    pub tokens: Vec<TokenRow>,
    /// Just made: shown once, on the answer to the form and nowhere else.
    pub fresh: Option<FreshToken>,
    pub fault: Option<String>,
    pub name: String,
    pub teams: Vec<SelectOption>,
    pub roles: Vec<SelectOption>,
}

#[derive(Debug, Clone)]
pub struct TokenRow {
    pub id: String,
    pub name: String,
    pub reach: String,
    pub made: When,
    pub expires: Option<When>,
    pub used: Option<When>,
    /// `revoked` or `expired`.
    pub dead: Option<&'static str>,
}

#[derive(Debug, Clone)]
pub struct FreshToken {
    pub name: String,
    pub secret: String,
}
