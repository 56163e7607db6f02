//! The teams that the reader is in; all of them for admins, who make new ones here.

use askama::Template;
use axum::{
    extract::State,
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use trainyard_core::{model::TeamRole, plan::words};

use super::{
    form, refused,
    refused::Refused,
    shown, told,
    view::{Pages, Section, Shell, When},
    viewer,
};
use crate::{
    db::{access::Caller, teams},
    web::{
        Error, WebState,
        extract::{Asker, Params, RawBody},
        page,
    },
};

#[derive(Debug, Template)]
#[template(path = "teams.html")]
pub struct TeamsPage {
    pub shell: Shell,
    pub summary: String,
    pub rows: Vec<TeamRow>,
    pub pages: Pages,
    pub may_make: bool,
    /// Who may read what was done.
    pub may_audit: bool,
    pub refused: Option<Refused>,
    /// As it was typed.
    pub name: String,
}

#[derive(Debug, Clone)]
pub struct TeamRow {
    pub id: String,
    pub name: String,
    /// The reader's role in it.
    pub role: String,
    pub members: String,
    pub made: When,
}

/// What the address asks for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct TeamsQuery {
    cursor: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct NewTeam {
    #[serde(default)]
    name: String,
}

/// `GET /teams`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    Params(query): Params<TeamsQuery>,
) -> Result<Html<String>, Error> {
    shown(&load(&state, &asker, &query).await?)
}

/// `POST /teams`.
pub async fn create(State(state): State<WebState>, asker: Asker, RawBody(body): RawBody) -> Result<Response, Error> {
    let new: NewTeam = form(&body)?;
    match state.actions.create_team(asker.ask(), new.name.trim()).await {
        Ok(team) => Ok(Redirect::to(&format!("/teams/{}?done=made", team.id)).into_response()),
        Err(refusal) => {
            let refused = Some(Refused::of("team", refusal)?);
            let mut page = load(&state, &asker, &TeamsQuery::default()).await?;
            page.refused = refused;
            page.name = new.name;
            refused::answer(&page, page.refused.as_ref())
        }
    }
}

/// Whether there is anything in the audit log for this reader.
pub(super) fn may_audit(caller: &Caller) -> bool {
    caller.actor.admin || caller.actor.teams.values().any(|role| *role >= TeamRole::Owner)
}

async fn load(state: &WebState, asker: &Asker, query: &TeamsQuery) -> Result<TeamsPage, Error> {
    let (actor, now) = (&asker.caller.actor, state.actions.now());
    let limit = i64::from(page::DEFAULT_LIMIT);
    let after: Option<String> = page::decode(&"teams", query.cursor.as_deref())?;
    let rows = teams::list(&state.db, &asker.scope(), after.as_deref(), limit + 1).await?;
    let (rows, next) = page::cut(rows, limit, &"teams", |team| team.name.clone());
    Ok(TeamsPage {
        shell: Shell {
            title: "Teams".into(),
            section: Section::Teams,
            viewer: viewer(asker),
            here: "/teams".into(),
            ..Shell::default()
        },
        summary: match actor.teams.len() {
            0 => "You are in no team.".to_owned(),
            some => format!("You are in {}.", words::counted(some as u64, "team")),
        },
        pages: Pages {
            first: after.map(|_| "/teams".to_owned()),
            next: next.map(|next| told::address("/teams", &[("cursor", Some(&next))])),
        },
        rows: rows
            .into_iter()
            .map(|team| TeamRow {
                id: team.id.to_string(),
                role: match actor.teams.get(&team.id) {
                    Some(role) => role.to_string(),
                    None => "none".to_owned(),
                },
                name: team.name,
                members: words::count(team.members),
                made: told::when(team.created_at, now),
            })
            .collect(),
        may_make: actor.admin,
        may_audit: may_audit(&asker.caller),
        refused: None,
        name: String::new(),
    })
}
