//! One team: who is in it, what it may use, and its secrets by name. Each form stands here for whoever the API lets do
//! the same; [`deeds`] takes what is sent, [`asks`] asks before something is taken away.

pub mod asks;
pub mod deeds;

use askama::Template;
use axum::{extract::State, response::Html};
use serde::Deserialize;
use trainyard_core::{
    model::{ClusterId, TeamId, TeamRole, UserId},
    plan::words,
};
use uuid::Uuid;

use super::{
    clusters, found,
    refused::Refused,
    shown, teams as list, told,
    view::{Crumb, Pages, Section, SelectOption, Shell, When},
    viewer,
};
use crate::{
    db::{DbError, clusters_read, secrets, teams, users},
    web::{
        Error, WebState,
        extract::{Asker, Params, PathOf},
        page,
    },
};

#[derive(Debug, Template)]
#[template(path = "team.html")]
pub struct TeamPage {
    pub shell: Shell,
    pub id: String,
    pub name: String,
    pub summary: String,
    pub members: Vec<MemberRow>,
    pub grants: Vec<GrantRow>,
    pub secrets: Vec<SecretRow>,
    /// Of the secrets.
    pub pages: Pages,
    /// Members and their roles.
    pub may_own: bool,
    /// Secrets.
    pub may_put: bool,
    /// Clusters.
    pub may_grant: bool,
    pub may_audit: bool,
    pub refused: Option<Refused>,
    pub typed: Typed,
    pub people: Vec<SelectOption>,
    pub roles: Vec<SelectOption>,
    pub clusters: Vec<SelectOption>,
    pub levels: Vec<SelectOption>,
}

/// What stands in the forms.
#[derive(Debug, Clone, Default)]
pub struct Typed {
    pub user: String,
    pub role: String,
    pub cluster: String,
    pub level: String,
    pub secret: String,
    /// Keys and values. They come from the person who typed them, never from a record.
    pub pairs: Vec<(String, String)>,
}

#[derive(Debug, Clone)]
pub struct MemberRow {
    pub id: String,
    pub name: String,
    pub role: String,
    pub since: When,
}

#[derive(Debug, Clone)]
pub struct GrantRow {
    pub cluster: String,
    pub name: String,
    pub level: String,
    pub namespace: String,
    pub queue: String,
    pub since: When,
}

#[derive(Debug, Clone)]
pub struct SecretRow {
    pub name: String,
    pub keys: Vec<String>,
    pub version: String,
    pub by: String,
    pub put: When,
}

/// What the address asks for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct TeamQuery {
    cursor: Option<String>,
    done: Option<String>,
    /// Whose role is to be changed: the form says who.
    user: Option<String>,
    /// Of which secret a new version is to be put: the form has its name and keys.
    secret: Option<String>,
}

/// Key fields that stand in the form at least.
const PAIRS: usize = 3;
/// People and clusters that are offered; of more, the id is typed.
const OFFERED: i64 = 500;

/// `GET /teams/{team}`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(id): PathOf<TeamId>,
    Params(query): Params<TeamQuery>,
) -> Result<Html<String>, Error> {
    let mut page = load(&state, &asker, id, &query, Typed::default()).await?;
    page.shell.notice = query.done.as_deref().and_then(notice).map(str::to_owned);
    shown(&page)
}

/// What was just done, in a sentence.
fn notice(done: &str) -> Option<&'static str> {
    Some(match done {
        "made" => "The team was made. It has no members, and may use no cluster yet.",
        "member" => "The person is in the team with that role.",
        "removed" => "The person is no longer in the team.",
        "granted" => "The team may use the cluster.",
        "withdrawn" => "The team may use the cluster no longer.",
        "put" => "The secret was put. Nobody can read it back.",
        "put-short" => {
            "The secret was put. One of its values is too short to be masked where a job prints it; use a longer one."
        }
        "forgotten" => "The secret was forgotten.",
        _ => return None,
    })
}

/// The page with what was typed; where nothing was, with what the address begins.
async fn load(
    state: &WebState,
    asker: &Asker,
    id: TeamId,
    query: &TeamQuery,
    mut typed: Typed,
) -> Result<TeamPage, Error> {
    let (db, actor, now) = (&state.db, &asker.caller.actor, state.actions.now());
    let scope = asker.scope();
    let team = found("team", id, teams::get(db, &scope, id).await)?;
    let (may_own, may_put) = (actor.may(id, TeamRole::Owner), actor.may(id, TeamRole::Member));
    let members = teams::members(db, &scope, id).await?;
    let granted = clusters_read::granted(db, id).await?;
    let limit = i64::from(page::DEFAULT_LIMIT);
    let after: Option<String> = page::decode(&id, query.cursor.as_deref())?;
    let rows = secrets::list(db, id, after.as_deref(), limit + 1).await?;
    let (rows, next) = page::cut(rows, limit, &id, |secret| secret.name.clone());
    let putters: Vec<Uuid> = rows.iter().map(|secret| secret.created_by.0).collect();
    let names = db.names.of(db, &putters).await?;

    if let Some(member) =
        (query.user.as_deref()).and_then(|user| members.iter().find(|row| row.user.to_string() == user))
    {
        typed.user = member.user.to_string();
        typed.role = member.role.to_string();
    }
    if let Some(name) = query.secret.as_deref() {
        match secrets::get(db, id, name).await {
            Ok(secret) => typed.pairs = secret.keys.into_iter().map(|key| (key, String::new())).collect(),
            Err(DbError::NotFound) => {}
            Err(error) => return Err(error.into()),
        }
        typed.secret = name.to_owned();
    }
    typed.pairs.resize(typed.pairs.len().max(PAIRS), Default::default());
    let address = format!("/teams/{id}");
    let counted = |count: usize, what| words::counted(count as u64, what);
    Ok(TeamPage {
        shell: Shell {
            title: format!("Team {}", team.name),
            section: Section::Teams,
            crumbs: vec![Crumb {
                label: "Teams".into(),
                href: "/teams".into(),
            }],
            viewer: viewer(asker),
            here: address.clone(),
            ..Shell::default()
        },
        summary: format!(
            "{}, {}. {}",
            counted(members.len(), "member"),
            counted(granted.len(), "cluster"),
            match (actor.teams.get(&id), actor.admin) {
                (Some(role), false) => format!("You are {role} in it."),
                (Some(role), true) => format!("You are {role} in it, and admin."),
                (None, _) => "You are not in it, and act on it as admin.".to_owned(),
            }
        ),
        people: match (may_own, actor.admin) {
            (false, _) => Vec::new(),
            (true, true) => {
                let all = users::list(db, None, OFFERED).await?;
                let able = all.into_iter().filter(|user| user.disabled_at.is_none());
                able.map(|user| person(user.id, user.name)).collect()
            }
            // Who is there besides, only admins may list.
            (true, false) => members.iter().map(|row| person(row.user, row.name.clone())).collect(),
        },
        roles: chosen(TeamRole::ALL.iter().map(|role| role.as_str()), &typed.role, "member"),
        clusters: match actor.admin {
            true => {
                let all = clusters_read::list(db, &scope, None, OFFERED).await?;
                let option = |id: ClusterId, name: &str, provider| SelectOption {
                    selected: id.to_string() == typed.cluster,
                    value: id.to_string(),
                    label: format!("{name}, {provider}"),
                };
                all.iter()
                    .map(|row| option(row.id, &row.name, clusters::provider(row.provider)))
                    .collect()
            }
            false => Vec::new(),
        },
        levels: chosen(["use", "privileged"], &typed.level, "use"),
        members: members
            .into_iter()
            .map(|row| MemberRow {
                id: row.user.to_string(),
                name: row.name,
                role: row.role.to_string(),
                since: told::when(row.created_at, now),
            })
            .collect(),
        grants: granted
            .into_iter()
            .map(|row| GrantRow {
                cluster: row.cluster.to_string(),
                name: row.name,
                level: row.level,
                namespace: row.namespace.unwrap_or_else(|| "none".into()),
                queue: row.queue.unwrap_or_else(|| "none".into()),
                since: told::when(row.created_at, now),
            })
            .collect(),
        secrets: rows
            .into_iter()
            .map(|row| SecretRow {
                by: names
                    .get(&row.created_by.0)
                    .map_or_else(String::new, ToString::to_string),
                name: row.name,
                keys: row.keys,
                version: words::count(row.version),
                put: told::when(row.created_at, now),
            })
            .collect(),
        pages: Pages {
            first: after.map(|_| address.clone()),
            next: next.map(|next| told::address(&address, &[("cursor", Some(&next))])),
        },
        may_grant: actor.admin,
        may_audit: may_own && list::may_audit(&asker.caller),
        may_own,
        may_put,
        refused: None,
        id: id.to_string(),
        name: team.name,
        typed,
    })
}

fn person(id: UserId, name: String) -> SelectOption {
    SelectOption {
        value: id.to_string(),
        label: name,
        selected: false,
    }
}

/// Words to choose from: the one that was chosen, or else the usual one.
fn chosen<'a>(words: impl IntoIterator<Item = &'a str>, typed: &str, usual: &str) -> Vec<SelectOption> {
    let now = if typed.is_empty() { usual } else { typed };
    let option = |word: &str| SelectOption {
        value: word.to_owned(),
        label: word.to_owned(),
        selected: word == now,
    };
    words.into_iter().map(option).collect()
}
