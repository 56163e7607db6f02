//! Signing in with a one-time link, and out. The link's page only shows a button, so that a mail scanner or a preview
//! that fetches it does not use it up; where JavaScript runs the button presses itself.

use askama::Template;

use axum::{extract::State, response::Html};

use super::{shown, view::Shell};
use crate::{
    db::sessions::LinkState,
    web::{Error, WebState, extract::PathOf},
};

#[derive(Debug, Template)]
#[template(path = "sign_in.html")]
pub struct SignInPage {
    pub shell: Shell,
    pub heading: &'static str,
    pub words: &'static str,
    /// The link's secret part, to be sent back by the button.
    pub secret: Option<String>,
}

impl SignInPage {
    fn titled(heading: &'static str, words: &'static str, secret: Option<String>) -> Self {
        let shell = Shell {
            title: heading.to_owned(),
            here: "/sign-in".to_owned(),
            ..Shell::default()
        };
        Self {
            shell,
            heading,
            words,
            secret,
        }
    }

    pub fn offered(secret: String) -> Self {
        Self::titled(
            "Sign in to Trainyard",
            "This link signs you in on this browser. It works once.",
            Some(secret),
        )
    }

    pub fn asked() -> Self {
        Self::titled(
            "Sign in to Trainyard",
            "You sign in with a one-time link that Trainyard prints.",
            None,
        )
    }

    pub fn expired() -> Self {
        Self::titled(
            "This link has expired",
            "Nothing is wrong with your account: links hold for a short time only.",
            None,
        )
    }

    pub fn used() -> Self {
        Self::titled(
            "This link was used already",
            "A link works once. If it was not you who used it, sign in with a new one and look at Settings.",
            None,
        )
    }

    pub fn unknown() -> Self {
        Self::titled(
            "This link is not known here",
            "It may be cut off, or belong to another installation.",
            None,
        )
    }
}

/// `GET /sign-in`.
pub async fn asked() -> Result<Html<String>, Error> {
    shown(&SignInPage::asked())
}

/// `GET /sign-in/{secret}`. Looking does not use the link up.
pub async fn offered(State(state): State<WebState>, PathOf(secret): PathOf<String>) -> Result<Html<String>, Error> {
    shown(&match state.actions.link_state(&secret).await? {
        LinkState::Open => SignInPage::offered(secret),
        LinkState::Expired => SignInPage::expired(),
        LinkState::Used => SignInPage::used(),
        LinkState::Unknown => SignInPage::unknown(),
    })
}
