//! What is done by the forms of a team's page, through the same verbs as the API.

use std::collections::BTreeMap;

use axum::{
    extract::State,
    response::{IntoResponse, Redirect, Response},
};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use trainyard_core::model::{ClusterId, SHORTEST_MASKED, TeamId, TeamRole, UserId};

use super::{TeamQuery, Typed, load};
use crate::{
    actions::{FieldFault, Refusal},
    db::{clusters_read, grants::GrantTerms},
    web::{
        Error, WebState,
        extract::{Asker, PathOf, RawBody},
        pages::{
            form,
            refused::{self, Refused},
        },
    },
};

#[derive(Debug, Clone, Default, Deserialize)]
struct MemberForm {
    #[serde(default)]
    user: String,
    #[serde(default)]
    role: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct GrantForm {
    #[serde(default)]
    cluster: String,
    #[serde(default)]
    level: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct SecretForm {
    #[serde(default)]
    name: String,
    #[serde(default)]
    key: Vec<String>,
    #[serde(default)]
    value: Vec<SecretString>,
}

/// `POST /teams/{team}/members`: adds a person, or changes their role.
pub async fn put_member(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(team): PathOf<TeamId>,
    RawBody(body): RawBody,
) -> Result<Response, Error> {
    let sent: MemberForm = form(&body)?;
    let done = async {
        state.actions.may_in(asker.ask(), team, TeamRole::Owner).await?;
        let user: UserId = (sent.user.trim().parse()).map_err(|_| {
            let fault = FieldFault::new("user", "wrong_form", "this is no person's id").value(sent.user.trim());
            Refusal::fault(fault.hint("it begins with user_, and each person finds their own in Settings"))
        })?;
        let role: TeamRole = (sent.role.parse()).map_err(|_| {
            let fault = FieldFault::new("role", "unknown_word", "a member's role is viewer, member or owner");
            Refusal::fault(fault.value(&sent.role))
        })?;
        state.actions.put_member(asker.ask(), team, user, role).await
    };
    let done = done.await;
    let typed = Typed {
        user: sent.user,
        role: sent.role,
        ..Typed::default()
    };
    answer(&state, &asker, team, done.map(|_| "member"), ("member", typed)).await
}

/// `POST /teams/{team}/grants`: lets the team use a cluster, or changes how freely.
pub async fn put_grant(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(team): PathOf<TeamId>,
    RawBody(body): RawBody,
) -> Result<Response, Error> {
    let sent: GrantForm = form(&body)?;
    let done = async {
        let cluster: ClusterId = (sent.cluster.parse()).map_err(|_| {
            let fault = FieldFault::new("cluster", "wrong_form", "this is no cluster's id").value(&sent.cluster);
            Refusal::fault(fault.hint("choose one of the list"))
        })?;
        // The form says how freely; where to, if anybody said it, stays.
        let before = clusters_read::granted(&state.db, team).await?;
        let before = before.iter().find(|grant| grant.cluster == cluster);
        let terms = GrantTerms {
            namespace: before.and_then(|grant| grant.namespace.as_deref()),
            queue: before.and_then(|grant| grant.queue.as_deref()),
            level: &sent.level,
        };
        state.actions.put_grant(asker.ask(), cluster, team, terms).await
    };
    let done = done.await;
    let typed = Typed {
        cluster: sent.cluster,
        level: sent.level,
        ..Typed::default()
    };
    answer(&state, &asker, team, done.map(|_| "granted"), ("grant", typed)).await
}

/// `POST /teams/{team}/secrets`: puts a secret, or its next version.
pub async fn put_secret(
    State(state): State<WebState>,
    asker: Asker,
    PathOf(team): PathOf<TeamId>,
    RawBody(body): RawBody,
) -> Result<Response, Error> {
    let sent: SecretForm = form(&body)?;
    let pairs = sent.key.iter().zip(&sent.value);
    let pairs: Vec<(&str, String)> = pairs
        // Browsers end lines as terminals did; what was pasted had no such ends.
        .map(|(key, value)| (key.trim(), value.expose_secret().replace("\r\n", "\n")))
        .filter(|(key, value)| !(key.is_empty() && value.is_empty()))
        .collect();
    let short = pairs.iter().any(|(_, value)| value.len() < SHORTEST_MASKED);
    let done = async {
        state.actions.may_in(asker.ask(), team, TeamRole::Member).await?;
        let mut values: BTreeMap<String, SecretString> = BTreeMap::new();
        for (key, value) in &pairs {
            if values.insert((*key).to_owned(), value.as_str().into()).is_some() {
                let fault = FieldFault::new(format!("values.{key}"), "duplicate", "this key stands here twice");
                return Err(Refusal::fault(fault.hint("a key has one value")));
            }
        }
        state
            .actions
            .put_secret(asker.ask(), team, sent.name.trim(), &values)
            .await
    };
    let done = done.await.map(|_| if short { "put-short" } else { "put" });
    let typed = Typed {
        pairs: pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(),
        secret: sent.name,
        ..Typed::default()
    };
    answer(&state, &asker, team, done, ("secret", typed)).await
}

/// On to the page that shows what was done, or back to the form with what is wrong and all that was typed.
async fn answer(
    state: &WebState,
    asker: &Asker,
    team: TeamId,
    done: Result<&'static str, Refusal>,
    (form, typed): (&'static str, Typed),
) -> Result<Response, Error> {
    match done {
        Ok(done) => Ok(Redirect::to(&format!("/teams/{team}?done={done}")).into_response()),
        Err(refusal) => {
            let refused = Refused::of(form, refusal)?;
            let mut page = load(state, asker, team, &TeamQuery::default(), typed).await?;
            page.refused = Some(refused);
            refused::answer(&page, page.refused.as_ref())
        }
    }
}
