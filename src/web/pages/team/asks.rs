//! Before something is taken from a team: what that means, and the name where it cannot be undone.

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use trainyard_core::{
    model::{ClusterId, TeamId, TeamRole, UserId},
    plan::words,
};

use crate::{
    db::{clusters_read, secrets, teams},
    web::{
        Error, WebState,
        extract::{Asker, PathOf, RawBody},
        pages::{
            confirm::ConfirmPage,
            form, found,
            refused::{self, Refused},
            shown,
            view::{Crumb, Section, Shell},
            viewer,
        },
    },
};

/// `GET /teams/{team}/members/{user}/remove`.
pub async fn member(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((team, user)): PathOf<(TeamId, UserId)>,
) -> Result<Response, Error> {
    let name = state.actions.may_in(asker.ask(), team, TeamRole::Owner).await?.name;
    let members = teams::members(&state.db, &asker.scope(), team).await?;
    let Some(member) = members.into_iter().find(|member| member.user == user) else {
        return Err(Error::not_found("member", &user.to_string()));
    };
    let ask = ConfirmPage {
        question: format!("Take {} out of {name}?", member.name),
        consequence: "They see nothing of the team any more, at once. Their jobs stay with the team and go on.".into(),
        verb: "Take out",
        danger: true,
        keep: "Keep in the team",
        ..about(&state, &asker, (team, &name), &format!("members/{user}/remove"))
    };
    Ok(shown(&ask.titled())?.into_response())
}

/// `POST /teams/{team}/members/{user}/remove`.
pub async fn remove_member(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((team, user)): PathOf<(TeamId, UserId)>,
) -> Result<Redirect, Error> {
    state.actions.remove_member(asker.ask(), team, user).await?;
    // Whoever took themselves out has no way back to the team's page.
    let gone = user == asker.caller.actor.user && !asker.caller.actor.admin;
    Ok(Redirect::to(&match gone {
        true => "/teams".to_owned(),
        false => format!("/teams/{team}?done=removed"),
    }))
}

/// `GET /teams/{team}/grants/{cluster}/remove`.
pub async fn grant(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((team, cluster)): PathOf<(TeamId, ClusterId)>,
) -> Result<Response, Error> {
    let name = found("team", team, teams::get(&state.db, &asker.scope(), team).await)?.name;
    let granted = clusters_read::granted(&state.db, team).await?;
    let Some(grant) = granted.into_iter().find(|grant| grant.cluster == cluster) else {
        return Err(Error::not_found("grant", &team.to_string()));
    };
    let ask = ConfirmPage {
        question: format!("Take {} away from {name}?", grant.name),
        consequence: "What runs there goes on; what waits does not start there any more.".into(),
        verb: "Take away",
        danger: true,
        keep: "Leave it",
        ..about(&state, &asker, (team, &name), &format!("grants/{cluster}/remove"))
    };
    Ok(shown(&ask.titled())?.into_response())
}

/// `POST /teams/{team}/grants/{cluster}/remove`.
pub async fn remove_grant(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((team, cluster)): PathOf<(TeamId, ClusterId)>,
) -> Result<Redirect, Error> {
    state.actions.remove_grant(asker.ask(), cluster, team).await?;
    Ok(Redirect::to(&format!("/teams/{team}?done=withdrawn")))
}

/// `GET /teams/{team}/secrets/{name}/delete`.
pub async fn secret(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((team, name)): PathOf<(TeamId, String)>,
) -> Result<Response, Error> {
    Ok(shown(&forgetting(&state, &asker, team, &name).await?)?.into_response())
}

#[derive(Debug, Clone, Default, Deserialize)]
struct Typed {
    #[serde(default)]
    name: String,
}

/// `POST /teams/{team}/secrets/{name}/delete`.
pub async fn delete_secret(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((team, name)): PathOf<(TeamId, String)>,
    RawBody(body): RawBody,
) -> Result<Response, Error> {
    let typed: Typed = form(&body)?;
    let mut page = forgetting(&state, &asker, team, &name).await?;
    if typed.name.trim() != name {
        let fault = format!(
            "The name that was typed, \"{}\", is not the secret's.",
            typed.name.trim()
        );
        page.fault = Some(fault.clone());
        let refused = Refused {
            status: 422,
            form: "secret",
            words: vec![fault],
        };
        return refused::answer(&page, Some(&refused));
    }
    state.actions.delete_secret(asker.ask(), team, &name).await?;
    Ok(Redirect::to(&format!("/teams/{team}?done=forgotten")).into_response())
}

async fn forgetting(state: &WebState, asker: &Asker, team: TeamId, name: &str) -> Result<ConfirmPage, Error> {
    let of = state.actions.may_in(asker.ask(), team, TeamRole::Member).await?.name;
    let secret = found("secret", name, secrets::get(&state.db, team, name).await)?;
    let ask = ConfirmPage {
        question: format!("Forget {name}?"),
        consequence: "Jobs that refer to it do not start any more. What was started with it keeps what it was given."
            .into(),
        lost: vec![format!(
            "{} of version {}: {}",
            words::counted(secret.keys.len() as u64, "value"),
            secret.version,
            secret.keys.join(", ")
        )],
        verb: "Forget the secret",
        danger: true,
        keep: "Keep it",
        type_name: Some(name.to_owned()),
        ..about(state, asker, (team, &of), &format!("secrets/{name}/delete"))
    };
    Ok(ask.titled())
}

/// What all of these questions have in common.
fn about(state: &WebState, asker: &Asker, (team, name): (TeamId, &str), rest: &str) -> ConfirmPage {
    let back = format!("/teams/{team}");
    let action = format!("{back}/{rest}");
    let crumb = |label: &str, href: &str| Crumb {
        label: label.into(),
        href: href.into(),
    };
    ConfirmPage {
        shell: Shell {
            section: Section::Teams,
            crumbs: vec![crumb("Teams", "/teams"), crumb(name, &back)],
            viewer: viewer(asker),
            here: action.clone(),
            ..Shell::default()
        },
        action,
        back,
        asked_at: words::exact(state.actions.now()),
        ..ConfirmPage::default()
    }
}
