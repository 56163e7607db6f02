//! Names in parameters: people write names, programs write ids, and both are taken.

use trainyard_core::model::{ClusterId, TeamId, TeamRole, UserId};

use super::super::{Error, WebState, extract::Asker};
use crate::{
    actions::FieldFault,
    db::{clusters_read, teams},
};

/// A team by id or name, among those that the caller may see.
pub async fn team(state: &WebState, asker: &Asker, text: &str) -> Result<TeamId, Error> {
    let caller = &asker.caller;
    if let Some((id, _)) = caller
        .team_names
        .iter()
        .find(|(id, name)| *name == text || id.to_string() == text)
    {
        return Ok(*id);
    }
    let scope = asker.scope();
    if let Ok(id) = text.parse::<TeamId>() {
        return match teams::get(&state.db, &scope, id).await {
            Ok(team) => Ok(team.id),
            Err(crate::db::DbError::NotFound) => Err(Error::not_found("team", text)),
            Err(error) => Err(error.into()),
        };
    }
    teams::by_name(&state.db, &scope, text)
        .await?
        .ok_or_else(|| Error::not_found("team", text))
}

/// The team that is meant: the one named, or the only one in which the caller has that role.
pub async fn team_or_only(
    state: &WebState,
    asker: &Asker,
    text: Option<&str>,
    role: TeamRole,
) -> Result<TeamId, Error> {
    if let Some(text) = text {
        return team(state, asker, text).await;
    }
    let actor = &asker.caller.actor;
    let mut open = actor.teams.iter().filter(|(_, have)| **have >= role);
    match (open.next(), open.next()) {
        (Some((team, _)), None) => Ok(*team),
        _ => {
            let names: Vec<&str> = asker.caller.team_names.values().map(String::as_str).collect();
            Err(Error::parameter(
                FieldFault::new(
                    "team",
                    "missing_parameter",
                    "there is not exactly one team that this can be about",
                )
                .hint(format!("name one of: {}", names.join(", "))),
            ))
        }
    }
}

/// A cluster by id or name, among those that the caller may see.
pub async fn cluster(state: &WebState, asker: &Asker, text: &str) -> Result<ClusterId, Error> {
    let scope = asker.scope();
    let found = match text.parse::<ClusterId>() {
        Ok(id) => match clusters_read::get(&state.db, &scope, id).await {
            Ok(cluster) => Some(cluster.id),
            Err(crate::db::DbError::NotFound) => None,
            Err(error) => return Err(error.into()),
        },
        Err(_) => clusters_read::by_name(&state.db, &scope, text).await?,
    };
    found.ok_or_else(|| Error::not_found("cluster", text))
}

/// A person: `me` or an id.
pub fn person(asker: &Asker, parameter: &str, text: &str) -> Result<UserId, Error> {
    if text == "me" {
        return Ok(asker.caller.actor.user);
    }
    text.parse().map_err(|_| {
        Error::parameter(
            FieldFault::new(parameter, "wrong_form", "this is no user's id")
                .value(text)
                .hint("me, or user_..."),
        )
    })
}
