//! `GET /api/v1/audit`: who did what.

use axum::{Json, extract::State};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use trainyard_core::model::{AuditId, TeamRole};
use utoipa::IntoParams;

use super::{
    super::{
        Code, Error, WebState,
        extract::{Asker, Params},
        page::{self, AuditList},
    },
    lookup,
};
use crate::{
    actions::FieldFault,
    db::{
        Scope,
        audit::{self, Which},
    },
};

#[derive(Debug, Clone, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AuditParams {
    /// Only what concerns this team, by id or name.
    pub team: Option<String>,
    /// Only this deed, such as `job.cancel`.
    pub action: Option<String>,
    /// Only what this person did: `me`, or a user's id.
    pub actor: Option<String>,
    /// Only what was done to this, by id: a job, team, user, token, secret, cluster, node or check.
    pub subject: Option<String>,
    /// Only what was done at this time or later.
    pub since: Option<DateTime<Utc>>,
    /// Only what was done before this time.
    pub until: Option<DateTime<Utc>>,
    /// At most this many. Left out: 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

/// Who did what, newest first: everything for admins, what concerns their teams for owners. A page may hold fewer than
/// asked for while `next` is there: one request looks at so many lines only.
#[utoipa::path(
    get,
    path = "/api/v1/audit",
    tag = "installation",
    params(AuditParams),
    responses((status = 200, body = AuditList))
)]
pub async fn list_audit(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<AuditParams>,
) -> Result<Json<AuditList>, Error> {
    read(&state, &asker, &params).await.map(Json)
}

/// The same for the page.
pub(in crate::web) async fn read(state: &WebState, asker: &Asker, params: &AuditParams) -> Result<AuditList, Error> {
    let limit = page::limit(params.limit)?;
    let team = match &params.team {
        Some(text) => Some(lookup::team(state, asker, text).await?),
        None => None,
    };
    let actor = &asker.caller.actor;
    if let Some(team) = team
        && !actor.may(team, TeamRole::Owner)
    {
        return Err(
            Error::new(Code::Forbidden, "This needs the role owner in the team").hint("ask an owner or an admin")
        );
    }
    let scope = match actor.admin {
        true => Scope::Everything,
        false => Scope::Teams(
            (actor.teams.iter())
                .filter(|(_, role)| **role >= TeamRole::Owner)
                .map(|(team, _)| *team)
                .collect(),
        ),
    };
    let which = Which {
        team,
        action: params.action.clone(),
        actor: match &params.actor {
            Some(text) => Some(lookup::person(asker, "actor", text)?),
            None => None,
        },
        subject: match &params.subject {
            Some(text) => Some(audit::subject(text).ok_or_else(|| {
                Error::parameter(
                    FieldFault::new(
                        "subject",
                        "wrong_form",
                        "this is no id of a thing that deeds are done to",
                    )
                    .value(text)
                    .hint("job_..., team_..., user_..., cluster_... and so on, as the list shows it"),
                )
            })?),
            None => None,
        },
        since: params.since,
        until: params.until,
    };
    let before: Option<AuditId> = page::decode(&which, params.cursor.as_deref())?;
    let rows = audit::list(&state.db, &scope, &which, before, limit + 1).await?;
    let (items, mut next) = page::cut(rows, limit, &which, |entry| entry.id);
    if next.is_none() {
        let horizon = audit::horizon(&state.db, before, which.since).await?;
        next = horizon.map(|last| page::encode(&which, last));
    }
    Ok(AuditList { items, next })
}
