//! Who did what: everything for admins, what concerns their teams for owners. The rows are the API's.

use std::collections::HashMap;

use askama::Template;
use axum::{extract::State, response::Html};
use chrono::{DateTime, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use trainyard_core::model::{ClusterId, TeamId, UserId};
use uuid::Uuid;

use super::{
    jobs, shown, told,
    view::{Crumb, Pages, Section, SelectOption, Shell, When},
    viewer,
};
use crate::{
    actions::FieldFault,
    db::{audit::AuditEntry, teams},
    web::{
        Error, WebState,
        api::audit::{self as api, AuditParams},
        extract::{Asker, Params},
    },
};

#[derive(Debug, Template)]
#[template(path = "audit.html")]
pub struct AuditPage {
    pub shell: Shell,
    pub summary: String,
    pub filtered: bool,
    pub query: AuditQuery,
    pub teams: Vec<SelectOption>,
    pub rows: Vec<AuditRow>,
    pub pages: Pages,
}

#[derive(Debug, Clone)]
pub struct AuditRow {
    pub at: When,
    /// Nobody: Trainyard itself.
    pub actor: Option<(String, String)>,
    /// It was done with a token, not in a browser.
    pub by_token: bool,
    pub action: String,
    /// What it was done to: in words, its page if it has one, and the same deeds' address.
    pub subject: Option<Subject>,
    pub team: String,
    /// `name: laptop, role: member`.
    pub detail: String,
    pub request: String,
}

#[derive(Debug, Clone)]
pub struct Subject {
    pub kind: String,
    pub id: String,
    pub page: Option<String>,
    /// All that was done to it.
    pub deeds: String,
}

/// What the address asks for, as it was typed.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct AuditQuery {
    #[serde(default)]
    pub team: String,
    #[serde(default)]
    pub action: String,
    #[serde(default)]
    pub actor: String,
    #[serde(default)]
    pub subject: String,
    #[serde(default)]
    pub since: String,
    #[serde(default)]
    pub until: String,
    pub cursor: Option<String>,
}

/// Teams that can be chosen; of more, the address takes the name.
const TEAMS: i64 = 500;

/// `GET /audit`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    Params(query): Params<AuditQuery>,
) -> Result<Html<String>, Error> {
    let now = state.actions.now();
    let list = api::read(&state, &asker, &query.params()?).await?;
    let names = names(&state, &list.items).await?;
    let mine = asker.caller.team_names.values().cloned();
    let team_names: Vec<String> = match asker.caller.actor.admin {
        true => (teams::list(&state.db, &asker.scope(), None, TEAMS).await?.into_iter())
            .map(|team| team.name)
            .collect(),
        false => mine.collect(),
    };
    let filtered = query.filters().iter().any(|(_, value)| value.is_some());
    shown(&AuditPage {
        shell: Shell {
            title: "Audit".into(),
            section: Section::Settings,
            crumbs: vec![Crumb {
                label: "Settings".into(),
                href: "/settings".into(),
            }],
            viewer: viewer(&asker),
            here: query.address(None),
            ..Shell::default()
        },
        summary: match asker.caller.actor.admin {
            true => "Every deed of a person or a program of theirs, newest first.".into(),
            false => "What was done in the teams that you own, newest first.".into(),
        },
        filtered,
        teams: jobs::options(
            "all teams",
            team_names.into_iter(),
            Some(query.team.as_str()).filter(|team| !team.is_empty()),
        ),
        rows: list.items.into_iter().map(|entry| row(entry, &names, now)).collect(),
        pages: Pages {
            first: query.cursor.as_ref().map(|_| query.address(None)),
            next: list.next.map(|next| query.address(Some(&next))),
        },
        query,
    })
}

impl AuditQuery {
    fn filters(&self) -> [(&str, Option<&str>); 6] {
        [
            ("team", &self.team),
            ("action", &self.action),
            ("actor", &self.actor),
            ("subject", &self.subject),
            ("since", &self.since),
            ("until", &self.until),
        ]
        .map(|(name, value)| (name, Some(value.trim()).filter(|value| !value.is_empty())))
    }

    fn address(&self, cursor: Option<&str>) -> String {
        let mut pairs = self.filters().to_vec();
        pairs.push(("cursor", cursor));
        told::address("/audit", &pairs)
    }

    /// The same for the API.
    fn params(&self) -> Result<AuditParams, Error> {
        let [team, action, actor, subject, since, until] = self.filters().map(|(_, value)| value.map(str::to_owned));
        Ok(AuditParams {
            team,
            action,
            actor,
            subject,
            since: since.map(|text| moment("since", &text)).transpose()?,
            until: until.map(|text| moment("until", &text)).transpose()?,
            limit: None,
            cursor: self.cursor.clone(),
        })
    }
}

/// A moment as people write it: a day, a day and a time, or with its zone. Without one it is UTC.
fn moment(name: &str, text: &str) -> Result<DateTime<Utc>, Error> {
    let day = || Some(text.parse::<NaiveDate>().ok()?.and_time(NaiveTime::MIN));
    let forms = [
        "%Y-%m-%dT%H:%M",
        "%Y-%m-%d %H:%M",
        "%Y-%m-%dT%H:%M:%S",
        "%Y-%m-%d %H:%M:%S",
    ];
    let local = || {
        forms
            .iter()
            .find_map(|form| NaiveDateTime::parse_from_str(text, form).ok())
    };
    let zoned = || text.parse::<DateTime<Utc>>().ok();
    let plain = text.strip_suffix(" UTC").map(|rest| moment(name, rest));
    plain.unwrap_or_else(|| {
        zoned()
            .or_else(|| Some(day().or_else(local)?.and_utc()))
            .ok_or_else(|| {
                let fault = FieldFault::new(name, "wrong_form", "this is no day or time").value(text);
                Error::parameter(fault.hint("2026-12-01, or 2026-12-01 14:30, which is taken as UTC"))
            })
    })
}

/// The names of all people, teams and clusters that the rows speak of.
async fn names(state: &WebState, rows: &[AuditEntry]) -> Result<HashMap<Uuid, String>, Error> {
    let mut ids: Vec<Uuid> = Vec::new();
    for row in rows {
        ids.extend(row.team.map(|team| team.0));
        ids.extend(row.subject.as_deref().and_then(outside));
        let told = row.detail.as_object().into_iter().flat_map(|detail| detail.values());
        ids.extend(told.filter_map(|value| outside(value.as_str()?)));
    }
    let names = state.db.names.of(&state.db, &ids).await?;
    Ok(names.into_iter().map(|(id, name)| (id, name.to_string())).collect())
}

/// The id inside, of what has a name.
fn outside(text: &str) -> Option<Uuid> {
    let user = text.parse::<UserId>().map(|id| id.0);
    let team = || text.parse::<TeamId>().map(|id| id.0);
    let cluster = |_| text.parse::<ClusterId>().map(|id| id.0);
    user.or_else(|_| team()).or_else(cluster).ok()
}

fn row(entry: AuditEntry, names: &HashMap<Uuid, String>, now: DateTime<Utc>) -> AuditRow {
    let named = |text: &str| outside(text).and_then(|id| names.get(&id)).cloned();
    let only = |name: &str, value: &str| told::address("/audit", &[(name, Some(value))]);
    AuditRow {
        at: told::when(entry.at, now),
        actor: entry.actor.map(|id| {
            let name = entry.actor_name.unwrap_or_else(|| id.to_string());
            (name, only("actor", &id.to_string()))
        }),
        by_token: entry.token.is_some(),
        subject: entry.subject.map(|id| Subject {
            page: match entry.subject_kind.as_str() {
                kind @ ("job" | "node" | "cluster" | "team") => Some(format!("/{kind}s/{id}")),
                _ => None,
            },
            deeds: only("subject", &id),
            kind: entry.subject_kind,
            id: named(&id).unwrap_or(id),
        }),
        team: entry.team.map_or_else(String::new, |team| {
            names.get(&team.0).cloned().unwrap_or_else(|| team.to_string())
        }),
        detail: detail(&entry.detail, &named),
        action: entry.action,
        request: entry.request_id.unwrap_or_default(),
    }
}

/// An object's fields on one line. What is not there is left out, and ids of what has a name are its name.
fn detail(value: &Value, named: &dyn Fn(&str) -> Option<String>) -> String {
    let fields = value.as_object().into_iter().flatten();
    let fields = fields.filter(|(_, value)| !value.is_null()).map(|(name, value)| {
        let words = match value {
            Value::String(text) => named(text).unwrap_or_else(|| text.clone()),
            Value::Array(items) if items.iter().all(Value::is_string) => {
                let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                items.join(" ")
            }
            other => other.to_string(),
        };
        format!("{}: {words}", name.replace('_', " "))
    });
    fields.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_moment_is_read_as_people_write_it() {
        let noon: DateTime<Utc> = "2026-12-01T12:00:00Z".parse().unwrap();
        for text in [
            "2026-12-01 12:00",
            "2026-12-01T12:00",
            "2026-12-01 12:00:00 UTC",
            "2026-12-01T14:00:00+02:00",
        ] {
            assert_eq!(moment("since", text).unwrap(), noon, "{text}");
        }
        assert_eq!(
            moment("since", "2026-12-01").unwrap(),
            noon - chrono::TimeDelta::hours(12)
        );
        let refused = moment("until", "yesterday").unwrap_err().0;
        assert_eq!((refused.status, refused.errors[0].path.as_str()), (400, "until"));
    }

    #[test]
    fn a_detail_is_one_line_without_what_is_not_there() {
        let user = UserId(Uuid::nil());
        let named = |text: &str| (text == user.to_string()).then(|| "Maya".to_owned());
        let value = json!({ "user": user, "role": "owner", "namespace": null, "keys": ["a", "b"], "expires_at": 7 });
        assert_eq!(
            detail(&value, &named),
            "user: Maya, role: owner, keys: a b, expires at: 7"
        );
    }
}
