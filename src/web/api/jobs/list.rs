//! `GET /api/v1/jobs`: jobs, newest first.

use std::collections::BTreeMap;

use axum::{extract::State, response::Response};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use trainyard_core::model::{JobId, Phase};
use utoipa::IntoParams;

use super::super::{
    super::{
        Error, WebState,
        extract::{Asker, Params},
        page::{self, JobList},
        pages::jobs,
    },
    lookup,
};
use crate::{
    actions::FieldFault,
    db::jobs_list::{self, JobFilter, JobPage},
};

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListParams {
    /// Only jobs in one of these phases; may come several times.
    #[serde(default)]
    pub state: Vec<Phase>,
    /// Only jobs of this team, by id or name.
    pub team: Option<String>,
    /// Only jobs on this cluster, by id or name.
    pub cluster: Option<String>,
    /// Only jobs of this person: `me`, or an id.
    pub owner: Option<String>,
    /// Only jobs with this label, `key=value`; may come several times, and then all must be there.
    #[serde(default)]
    pub label: Vec<String>,
    /// Only jobs with exactly this name.
    pub name: Option<String>,
    /// Part of the name, of a label or of the message.
    #[param(max_length = 200)]
    pub text: Option<String>,
    /// Submitted at this time or later.
    pub from: Option<DateTime<Utc>>,
    /// Submitted before this time.
    pub to: Option<DateTime<Utc>>,
    /// Say the state of each in a sentence, too; that takes a further look at the records.
    #[serde(default)]
    pub sentence: bool,
    /// At most this many. Left out: 50.
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// `next` of the page before.
    pub cursor: Option<String>,
}

/// Jobs that the caller may see, newest first. No row has the job's document.
#[utoipa::path(
    get,
    path = "/api/v1/jobs",
    tag = "jobs",
    params(ListParams),
    responses((status = 200, body = JobList))
)]
pub async fn list_jobs(
    State(state): State<WebState>,
    asker: Asker,
    Params(params): Params<ListParams>,
) -> Result<Response, Error> {
    let limit = page::limit(params.limit)?;
    let filter = filter(&state, &asker, &params).await?;
    let before: Option<JobId> = page::decode(&filter, params.cursor.as_deref())?;
    let JobPage { mut jobs, next } = jobs_list::page(&state.db, &asker.scope(), &filter, before, limit).await?;
    if params.sentence {
        let sentences = jobs::sentences(&state.db, &jobs, state.actions.now()).await?;
        for (job, sentence) in jobs.iter_mut().zip(sentences) {
            job.sentence = Some(sentence);
        }
    }
    Ok(page::answer(&JobList {
        items: jobs,
        next: next.map(|last| page::encode(&filter, last)),
    }))
}

async fn filter(state: &WebState, asker: &Asker, params: &ListParams) -> Result<JobFilter, Error> {
    let mut labels = BTreeMap::new();
    for label in &params.label {
        let (key, value) = label.split_once('=').ok_or_else(|| {
            Error::parameter(
                FieldFault::new("label", "wrong_form", "a label is written key=value")
                    .value(label)
                    .hint("label=project=vision"),
            )
        })?;
        labels.insert(key.to_owned(), value.to_owned());
    }
    if params.text.as_ref().is_some_and(|text| text.len() > 200) {
        return Err(Error::parameter(FieldFault::new(
            "text",
            "out_of_range",
            "at most 200 bytes are searched for",
        )));
    }
    let team = match &params.team {
        Some(text) => Some(lookup::team(state, asker, text).await?),
        None => None,
    };
    let cluster = match &params.cluster {
        Some(text) => Some(lookup::cluster(state, asker, text).await?),
        None => None,
    };
    let mut phases = params.state.clone();
    phases.sort_unstable();
    phases.dedup();
    Ok(JobFilter {
        phases,
        team,
        cluster,
        owner: params
            .owner
            .as_deref()
            .map(|owner| lookup::person(asker, "owner", owner))
            .transpose()?,
        labels,
        name: params.name.clone(),
        text: params.text.clone().filter(|text| !text.is_empty()),
        from: params.from,
        to: params.to,
        ..JobFilter::default()
    })
}
