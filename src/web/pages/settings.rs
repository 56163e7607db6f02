//! What belongs to the person who looks: who they are here, and their tokens.

use askama::Template;
use axum::{
    extract::State,
    response::{Html, Redirect, Response},
};
use chrono::{DateTime, Duration, Utc};
use secrecy::ExposeSecret;
use serde::Deserialize;
use trainyard_core::{
    model::{TeamRole, TokenId, UserId},
    plan::words,
};

use super::{
    confirm::ConfirmPage,
    form, found, refused,
    refused::Refused,
    shown, teams, told,
    view::{Crumb, Fact, Pages, Section, SelectOption, Shell, When},
    viewer,
};
use crate::{
    actions::{FieldFault, Refusal, tokens::TokenWish},
    db::tokens::{self, Token},
    web::{
        Error, WebState,
        extract::{Asker, Params, PathOf, RawBody},
        page as pager,
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
    pub pages: Pages,
    /// Who may read what was done.
    pub may_audit: bool,
    pub refused: Option<Refused>,
    pub name: String,
    pub days: String,
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
    #[serde(default)]
    days: String,
}

/// What the address asks for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct SettingsQuery {
    cursor: Option<String>,
    done: Option<String>,
}

const DAYS: &str = "90";

/// `GET /settings`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    Params(query): Params<SettingsQuery>,
) -> Result<Html<String>, Error> {
    let mut page = load(&state, &asker, &TokenForm::default(), query.cursor.as_deref()).await?;
    if query.done.as_deref() == Some("revoked") {
        page.shell.notice = Some("The token was revoked. Programs that use it are refused.".into());
    }
    shown(&page)
}

/// `POST /settings/tokens`. The answer is the only place where the token is ever shown, so it is no redirect.
pub async fn make(State(state): State<WebState>, asker: Asker, RawBody(body): RawBody) -> Result<Response, Error> {
    let wanted: TokenForm = form(&body)?;
    let name = wanted.name.trim().to_owned();
    match create(&state, &asker, &wanted, &name).await {
        Ok(secret) => {
            let mut page = load(&state, &asker, &TokenForm::default(), None).await?;
            page.fresh = Some(FreshToken { name, secret });
            refused::answer(&page, None)
        }
        Err(refusal) => {
            let refused = Refused::of("token", refusal)?;
            let mut page = load(&state, &asker, &wanted, None).await?;
            page.refused = Some(refused);
            refused::answer(&page, page.refused.as_ref())
        }
    }
}

async fn create(state: &WebState, asker: &Asker, wanted: &TokenForm, name: &str) -> Result<String, Refusal> {
    let mut teams = asker.caller.team_names.iter();
    let team = teams.find(|(_, known)| **known == wanted.team).map(|(id, _)| *id);
    if team.is_none() && !wanted.team.is_empty() {
        let fault = FieldFault::new("team", "not_found", "there is no team of that name that you are in");
        return Err(Refusal::fault(fault.value(&wanted.team)));
    }
    let days = Some(wanted.days.trim()).filter(|days| !days.is_empty()).unwrap_or(DAYS);
    let days = days.parse().ok().filter(|days| (1..=3_650).contains(days));
    let days = days.ok_or_else(|| {
        let fault = FieldFault::new("days", "out_of_range", "a token made here holds for 1 to 3,650 days");
        Refusal::fault(fault.value(&wanted.days))
    })?;
    let wish = TokenWish {
        name: name.to_owned(),
        team,
        role: wanted.role.clone(),
        expires_at: Some(state.actions.now() + Duration::days(days)),
    };
    let made = state.actions.create_token(asker.ask(), &wish).await?;
    Ok(made.shown.expose_secret().to_owned())
}

/// `GET /settings/tokens/{token}/revoke`.
pub async fn ask(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<TokenId>,
) -> Result<Html<String>, Error> {
    let actor = &asker.caller.actor;
    // An admin may end anybody's, by its address.
    let owner: Option<UserId> = (!actor.admin).then_some(actor.user);
    let name = found("token", id, tokens::name(&state.db, id, owner).await)?;
    let action = format!("/settings/tokens/{id}/revoke");
    let ask = ConfirmPage {
        shell: Shell {
            section: Section::Settings,
            crumbs: vec![Crumb {
                label: "Settings".into(),
                href: "/settings".into(),
            }],
            viewer: viewer(&asker),
            here: action.clone(),
            ..Shell::default()
        },
        question: format!("Revoke {name}?"),
        consequence: "Programs that use it, and tokens that it made, are refused at once. It cannot be brought back; a new one can be made."
            .into(),
        action,
        verb: "Revoke",
        danger: true,
        keep: "Keep it",
        back: "/settings".into(),
        asked_at: words::exact(state.actions.now()),
        ..ConfirmPage::default()
    };
    shown(&ask.titled())
}

/// `POST /settings/tokens/{token}/revoke`.
pub async fn revoke(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<TokenId>,
) -> Result<Redirect, Error> {
    state.actions.revoke_token(asker.ask(), id).await?;
    Ok(Redirect::to("/settings?done=revoked"))
}

async fn load(state: &WebState, asker: &Asker, typed: &TokenForm, cursor: Option<&str>) -> Result<SettingsPage, Error> {
    let now = state.actions.now();
    let caller = &asker.caller;
    let user = Some(caller.actor.user);
    let limit = i64::from(pager::DEFAULT_LIMIT);
    let before: Option<TokenId> = pager::decode(&user, cursor)?;
    let rows = tokens::list(&state.db, user, before, limit + 1).await?;
    let (rows, next) = pager::cut(rows, limit, &user, |token| token.id);
    let mine: Vec<String> = caller
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
                if mine.is_empty() {
                    "none yet".to_owned()
                } else {
                    mine.join(", ")
                },
            ),
            Fact::new("Id", caller.actor.user.to_string()),
        ],
        tokens: rows.into_iter().map(|row| token_row(row, asker, now)).collect(),
        fresh: None,
        pages: Pages {
            first: before.map(|_| "/settings".to_owned()),
            next: next.map(|next| told::address("/settings", &[("cursor", Some(&next))])),
        },
        may_audit: teams::may_audit(caller),
        refused: None,
        name: typed.name.clone(),
        days: match typed.days.is_empty() {
            true => DAYS.to_owned(),
            false => typed.days.clone(),
        },
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
