//! Asking before a verb is done: what will be lost, and the name where it cannot be undone.

use askama::Template;
use axum::{
    extract::State,
    response::{Html, IntoResponse, Redirect, Response},
};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use trainyard_core::{
    document::job::JobDocument,
    model::{JobId, Phase},
    plan::words,
};

use super::{
    form, found, shown,
    view::{Crumb, Section, Shell},
    viewer,
};
use crate::{
    actions::{Refusal, wish::Verb as Wish},
    db::{
        jobs_read::{self, JobDetail},
        reports::{self, Checkpoint},
    },
    web::{
        Code, Error, WebState,
        extract::{Asker, PathOf, RawBody},
    },
};

#[derive(Debug, Default, Template)]
#[template(path = "confirm.html")]
pub struct ConfirmPage {
    pub shell: Shell,
    /// `Cancel llama-pretrain?`.
    pub question: String,
    pub consequence: String,
    pub lost: Vec<String>,
    pub action: String,
    pub verb: &'static str,
    pub danger: bool,
    pub keep: &'static str,
    pub back: String,
    /// The name to type, where it cannot be undone.
    pub type_name: Option<String>,
    pub priority: Option<i32>,
    /// The generation that the reader saw, so that a change in between is noticed.
    pub etag: Option<String>,
    /// Sent with the form, so that a doubled click runs it again once.
    pub key: Option<String>,
    /// Why the last try was not done.
    pub fault: Option<String>,
    /// What stands here is of then.
    pub asked_at: String,
}

impl ConfirmPage {
    /// The tab says the question, too.
    pub(super) fn titled(mut self) -> Self {
        self.shell.title = self.question.clone();
        self
    }
}

/// What a person can do with a job on a page of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Cancel,
    Suspend,
    Resume,
    Rerun,
    Delete,
    Priority,
}

impl std::str::FromStr for Verb {
    type Err = ();

    fn from_str(word: &str) -> Result<Self, ()> {
        Ok(match word {
            "cancel" => Verb::Cancel,
            "suspend" => Verb::Suspend,
            "resume" => Verb::Resume,
            "rerun" => Verb::Rerun,
            "delete" => Verb::Delete,
            "priority" => Verb::Priority,
            _ => return Err(()),
        })
    }
}

impl Verb {
    fn word(self) -> &'static str {
        match self {
            Verb::Cancel => "cancel",
            Verb::Suspend => "suspend",
            Verb::Resume => "resume",
            Verb::Rerun => "rerun",
            Verb::Delete => "delete",
            Verb::Priority => "priority",
        }
    }
}

#[derive(Debug, Clone, Default, Deserialize)]
struct ConfirmForm {
    #[serde(default)]
    name: String,
    priority: Option<i32>,
    generation: Option<String>,
    key: Option<String>,
}

/// `GET /jobs/{job}/{verb}`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((id, verb)): PathOf<(JobId, String)>,
) -> Result<Html<String>, Error> {
    let verb = known(&verb)?;
    let job = found("job", id, jobs_read::get(&state.db, &asker.scope(), id).await)?;
    shown(&asked(&state, &asker, &job, verb, None).await?)
}

/// `POST /jobs/{job}/{verb}`.
pub async fn send(
    State(state): State<WebState>,
    asker: Asker,
    PathOf((id, verb)): PathOf<(JobId, String)>,
    RawBody(body): RawBody,
) -> Result<Response, Error> {
    let verb = known(&verb)?;
    let sent: ConfirmForm = form(&body)?;
    let job = found("job", id, jobs_read::get(&state.db, &asker.scope(), id).await)?;
    let name = &job.job.name;
    if verb == Verb::Delete && sent.name.trim() != name {
        let fault = format!("The name that was typed, \"{}\", is not the job's.", sent.name.trim());
        return Ok(shown(&asked(&state, &asker, &job, verb, Some(fault)).await?)?.into_response());
    }
    match carry_out(&state, &asker, id, verb, &sent).await {
        Ok(to) => Ok(Redirect::to(&to).into_response()),
        // What a person can mend is said on the page that asked; the rest is an error like any other.
        Err(refusal @ (Refusal::Stale | Refusal::Ended { .. } | Refusal::Superseded { .. } | Refusal::Faults(_))) => {
            let fault = words::sentence(&refusal_words(&refusal));
            Ok(shown(&asked(&state, &asker, &job, verb, Some(fault)).await?)?.into_response())
        }
        Err(refusal) => Err(refusal.into()),
    }
}

fn refusal_words(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Faults(faults) => {
            let words: Vec<String> = faults
                .iter()
                .map(|fault| format!("{}: {}", fault.path, fault.message))
                .collect();
            format!("{}.", words.join("; "))
        }
        Refusal::Stale => {
            "somebody changed the job since you opened this page; look at it again before you go on.".to_owned()
        }
        other => format!("{other}."),
    }
}

async fn carry_out(
    state: &WebState,
    asker: &Asker,
    id: JobId,
    verb: Verb,
    sent: &ConfirmForm,
) -> Result<String, Refusal> {
    let ask = asker.ask();
    let wish = match verb {
        Verb::Cancel => Wish::Cancel,
        Verb::Suspend => Wish::Suspend,
        Verb::Resume => Wish::Resume,
        Verb::Delete => Wish::Delete,
        Verb::Rerun => {
            let made = state.actions.rerun_job(ask, id, sent.key.as_deref()).await?;
            return Ok(format!("/jobs/{}?done=rerun", made.job.job.id));
        }
        Verb::Priority => {
            let etag = sent.generation.as_deref().unwrap_or("*");
            state
                .actions
                .set_priority(ask, id, sent.priority.unwrap_or(0), etag)
                .await?;
            return Ok(format!("/jobs/{id}?done=priority"));
        }
    };
    state.actions.wish(ask, id, wish, None).await?;
    Ok(match verb {
        Verb::Delete => "/jobs".to_owned(),
        _ => format!("/jobs/{id}?done={}", verb.word()),
    })
}

fn known(word: &str) -> Result<Verb, Error> {
    word.parse()
        .map_err(|()| Error::new(Code::NoRoute, "There is nothing at this address"))
}

async fn asked(
    state: &WebState,
    asker: &Asker,
    detail: &JobDetail,
    verb: Verb,
    fault: Option<String>,
) -> Result<ConfirmPage, Error> {
    let now = state.actions.now();
    let id = detail.job.id;
    let home = found("job", id, jobs_read::home(&state.db, &asker.scope(), id).await)?;
    let last = reports::checkpoints(&state.db, &home, None, 1)
        .await?
        .into_iter()
        .next();
    let mut page = told(detail, verb, last.as_ref(), now);
    page.shell.viewer = viewer(asker);
    page.fault = fault;
    page.key = (verb == Verb::Rerun).then(|| uuid::Uuid::new_v4().to_string());
    Ok(page)
}

/// The question and what it would cost.
fn told(detail: &JobDetail, verb: Verb, checkpoint: Option<&Checkpoint>, now: DateTime<Utc>) -> ConfirmPage {
    let job = &detail.job;
    let name = &job.name;
    let document: Option<JobDocument> = serde_json::from_str(detail.document.get()).ok();
    let grace = document.as_ref().map_or_else(
        || "30 s".to_owned(),
        |document| words::duration(document.stop.grace.as_chrono()),
    );
    let ranks = words::counted(job.replicas.unsigned_abs().into(), "rank");
    let active = job.phase.is_active();
    let unsaved = unsaved_steps(job.step.filter(|_| active), checkpoint);
    let (question, consequence, lost, button, danger, keep) = match verb {
        Verb::Cancel => (
            format!("Cancel {name}?"),
            match active {
                true => format!("The {ranks} are asked to end, and are killed after {grace}. The job cannot be resumed; a rerun is a new job."),
                false => "It leaves the queue. It cannot be resumed; a rerun is a new job.".to_owned(),
            },
            unsaved,
            "Cancel the job",
            true,
            if active { "Keep it running" } else { "Keep it waiting" },
        ),
        Verb::Suspend => (
            format!("Suspend {name}?"),
            match document.as_ref().is_some_and(|document| document.checkpoints.signal.is_some()) {
                true => "A checkpoint is asked for and waited for. Then its processes end and its room is free for others; resuming starts a new attempt.".to_owned(),
                false => "Its processes end and its room is free for others; resuming starts a new attempt. This document names no signal that asks for a checkpoint.".to_owned(),
            },
            unsaved,
            "Suspend the job",
            false,
            "Keep it running",
        ),
        Verb::Resume => (
            format!("Resume {name}?"),
            match checkpoint {
                Some(last) => format!("It waits for room again, and goes on from the checkpoint at step {}.", words::count(last.step)),
                None => "It waits for room again. No checkpoint was reported, so it begins at the beginning.".to_owned(),
            },
            Vec::new(),
            "Resume the job",
            false,
            "Leave it suspended",
        ),
        Verb::Rerun => (
            format!("Run {name} again?"),
            "The same document is submitted as a new job of yours. This one stays as it is.".to_owned(),
            Vec::new(),
            "Run it again",
            false,
            "Back",
        ),
        Verb::Delete => (
            format!("Delete {name}?"),
            match job.phase.is_final() {
                true => format!("It leaves every list at once. Its output, plots and events are removed with the jobs of its retention class ({}); until then nobody sees them here.", retention(document.as_ref())),
                false => "Its processes are ended first, then it leaves every list with its output, plots and events.".to_owned(),
            },
            unsaved,
            "Delete the job",
            true,
            "Keep it",
        ),
        Verb::Priority => (
            format!("Priority of {name}"),
            match job.phase == Phase::Queued {
                true => format!("It waits with priority {}. A higher one starts it before others of its queue.", job.priority),
                false => format!("Its priority is {}. It matters when the job waits again.", job.priority),
            },
            Vec::new(),
            "Set the priority",
            false,
            "Leave it",
        ),
    };
    ConfirmPage {
        shell: Shell {
            section: Section::Jobs,
            crumbs: vec![
                Crumb {
                    label: "Jobs".into(),
                    href: "/jobs".into(),
                },
                Crumb {
                    label: name.clone(),
                    href: format!("/jobs/{}", job.id),
                },
            ],
            here: format!("/jobs/{}/{}", job.id, verb.word()),
            ..Shell::default()
        },
        question,
        consequence,
        lost,
        action: format!("/jobs/{}/{}", job.id, verb.word()),
        verb: button,
        danger,
        keep,
        back: format!("/jobs/{}", job.id),
        type_name: (verb == Verb::Delete).then(|| name.clone()),
        priority: (verb == Verb::Priority).then_some(job.priority),
        etag: (verb == Verb::Priority).then(|| job.etag()),
        asked_at: words::exact(now),
        ..ConfirmPage::default()
    }
    .titled()
}

fn retention(document: Option<&JobDocument>) -> &'static str {
    document.map_or("standard", |document| document.retention.as_str())
}

/// What was done since the last checkpoint and would be done again.
fn unsaved_steps(step: Option<i64>, checkpoint: Option<&Checkpoint>) -> Vec<String> {
    let Some(step) = step else { return Vec::new() };
    match checkpoint {
        Some(last) if step > last.step => vec![format!(
            "{} since the checkpoint at step {}",
            words::counted((step - last.step).unsigned_abs(), "step"),
            words::count(last.step)
        )],
        Some(_) => Vec::new(),
        None => vec![format!(
            "all {}: no checkpoint was reported",
            words::counted(step.unsigned_abs(), "step")
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_be_lost_is_counted_from_the_last_checkpoint() {
        let checkpoint = Checkpoint {
            attempt: 1,
            step: 1_200,
            path: "/c".into(),
            at: DateTime::UNIX_EPOCH,
            source: "line".into(),
        };
        assert_eq!(
            unsaved_steps(Some(1_240), Some(&checkpoint)),
            ["40 steps since the checkpoint at step 1,200"]
        );
        assert_eq!(unsaved_steps(Some(1_200), Some(&checkpoint)), Vec::<String>::new());
        assert_eq!(
            unsaved_steps(Some(7), None),
            ["all 7 steps: no checkpoint was reported"]
        );
        assert_eq!(unsaved_steps(None, None), Vec::<String>::new());
    }

    #[test]
    fn every_verb_has_its_word() {
        for verb in [
            Verb::Cancel,
            Verb::Suspend,
            Verb::Resume,
            Verb::Rerun,
            Verb::Delete,
            Verb::Priority,
        ] {
            assert_eq!(verb.word().parse(), Ok(verb));
        }
        assert_eq!("logs".parse::<Verb>(), Err(()));
    }
}
