//! What belongs to the person who looks: tokens.

use askama::Template;
use axum::{
    extract::State,
    response::{Html, Redirect},
};
use chrono::{DateTime, Duration, Utc};
use secrecy::ExposeSecret;
use serde::Deserialize;
use trainyard_core::model::{TeamRole, TokenId};

use super::{
    form, shown, told,
    view::{Fact, Section, SelectOption, Shell, When},
    viewer,
};
use crate::{
    actions::{Refusal, tokens::TokenWish},
    db::tokens::{self, Token},
    web::{
        Error, WebState,
        extract::{Asker, PathOf, RawBody},
    },
};

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

/// The form that makes a token.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct TokenForm {
    #[serde(default)]
    name: String,
    /// A team's name; empty: all of the person's teams.
    #[serde(default)]
    team: String,
    #[serde(default)]
    role: String,
    days: Option<i64>,
}

const TOKENS: i64 = 100;

/// `GET /settings`.
pub async fn page(State(state): State<WebState>, asker: Asker) -> Result<Html<String>, Error> {
    shown(&load(&state, &asker, &TokenForm::default(), None, None).await?)
}

/// `POST /settings/tokens`. The answer is the only place where the token is ever shown, so it is no redirect.
pub async fn make(State(state): State<WebState>, asker: Asker, RawBody(body): RawBody) -> Result<Html<String>, Error> {
    let wanted: TokenForm = form(&body)?;
    let team = match wanted.team.as_str() {
        "" => None,
        name => asker
            .caller
            .team_names
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(id, _)| *id),
    };
    if team.is_none() && !wanted.team.is_empty() {
        let fault = format!("There is no team {} that you are in.", wanted.team);
        return shown(&load(&state, &asker, &wanted, None, Some(fault)).await?);
    }
    let now = state.actions.now();
    let days = wanted.days.unwrap_or(90).clamp(1, 3_650);
    let wish = TokenWish {
        name: wanted.name.trim().to_owned(),
        team,
        role: wanted.role.clone(),
        expires_at: Some(now + Duration::days(days)),
    };
    match state.actions.create_token(asker.ask(), &wish).await {
        Ok(made) => {
            let fresh = FreshToken {
                name: wish.name,
                secret: made.shown.expose_secret().to_owned(),
            };
            shown(&load(&state, &asker, &TokenForm::default(), Some(fresh), None).await?)
        }
        Err(Refusal::Faults(faults)) => {
            let words: Vec<String> = faults
                .into_iter()
                .map(|fault| format!("{}: {}.", fault.path, fault.message))
                .collect();
            shown(&load(&state, &asker, &wanted, None, Some(words.join(" "))).await?)
        }
        Err(refusal) => Err(refusal.into()),
    }
}

/// `POST /settings/tokens/{token}/revoke`.
pub async fn revoke(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<TokenId>,
) -> Result<Redirect, Error> {
    state.actions.revoke_token(asker.ask(), id).await?;
    Ok(Redirect::to("/settings"))
}

async fn load(
    state: &WebState,
    asker: &Asker,
    typed: &TokenForm,
    fresh: Option<FreshToken>,
    fault: Option<String>,
) -> Result<SettingsPage, Error> {
    let now = state.actions.now();
    let caller = &asker.caller;
    let rows = tokens::list(&state.db, Some(caller.actor.user), None, TOKENS).await?;
    let teams: Vec<String> = caller
        .team_names
        .iter()
        .map(|(id, name)| match caller.actor.teams.get(id) {
            Some(role) => format!("{name} ({role})"),
            None => name.clone(),
        })
        .collect();
    let mut roles: Vec<&str> = TeamRole::ALL.iter().map(|role| role.as_str()).collect();
    if caller.actor.admin {
        roles.push("admin");
    }
    let chosen = if typed.role.is_empty() { "member" } else { &typed.role };
    Ok(SettingsPage {
        shell: Shell {
            title: "Settings".into(),
            section: Section::Settings,
            viewer: viewer(asker),
            here: "/settings".into(),
            ..Shell::default()
        },
        facts: vec![
            Fact::new("Name", caller.actor.name.clone()),
            Fact::new(
                "Installation",
                if caller.actor.admin {
                    "admin: may act on everything"
                } else {
                    "no role of its own"
                },
            ),
            Fact::new(
                "Teams",
                if teams.is_empty() {
                    "none yet".to_owned()
                } else {
                    teams.join(", ")
                },
            ),
        ],
        tokens: rows.into_iter().map(|row| token_row(row, asker, now)).collect(),
        fresh,
        fault,
        name: typed.name.clone(),
        teams: super::jobs::options(
            "all my teams",
            caller.team_names.values().cloned(),
            Some(typed.team.as_str()).filter(|team| !team.is_empty()),
        ),
        roles: roles
            .into_iter()
            .map(|role| SelectOption {
                value: role.into(),
                label: role.into(),
                selected: role == chosen,
            })
            .collect(),
    })
}

fn token_row(row: Token, asker: &Asker, now: DateTime<Utc>) -> TokenRow {
    let dead = if row.revoked_at.is_some() {
        Some("revoked")
    } else if row.expires_at.is_some_and(|at| at <= now) {
        Some("expired")
    } else {
        None
    };
    let team = match row.team {
        Some(team) => match asker.caller.team_names.get(&team) {
            Some(name) => format!("team {name}"),
            None => team.to_string(),
        },
        None => "all teams".to_owned(),
    };
    TokenRow {
        id: row.id.to_string(),
        name: row.name,
        reach: format!("{team}, as {}", row.role),
        made: told::when(row.created_at, now),
        expires: row.expires_at.map(|at| told::when(at, now)),
        used: row.last_used_at.map(|at| told::when(at, now)),
        dead,
    }
}
