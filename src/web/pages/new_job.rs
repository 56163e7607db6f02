//! Writing a job. Every fault at once with its line and column; nothing that was typed is ever lost.

use askama::Template;
use axum::{
    extract::State,
    response::{Html, IntoResponse, Redirect, Response},
};
use serde::Deserialize;
use trainyard_core::{
    document::{job::JobDocument, to_yaml},
    model::JobId,
    plan::words,
};

use super::{
    form, found, shown, told,
    view::{Crumb, Fact, Section, Shell},
    viewer,
};
use crate::{
    actions::{
        FieldFault, Refusal,
        create::{CheckedJob, Submission},
    },
    db::jobs_read,
    web::{
        Error, WebState,
        extract::{Asker, Params, RawBody},
    },
};

#[derive(Debug, Template)]
#[template(path = "new_job.html")]
pub struct NewJobPage {
    pub shell: Shell,
    pub document: String,
    /// `3 faults in this document`.
    pub faults_heading: String,
    pub faults: Vec<FaultView>,
    /// The answer to a check without faults.
    pub plan: Option<PlanView>,
    /// Sent with the form, so that a doubled click submits once.
    pub idempotency_key: String,
    /// The job whose document is edited.
    pub from: Option<String>,
    pub examples: Vec<Example>,
}

#[derive(Debug, Clone)]
pub struct FaultView {
    pub line: Option<usize>,
    pub column: usize,
    pub path: String,
    pub message: String,
    pub hint: Option<String>,
    /// The line itself with a mark under the place.
    pub excerpt: Option<String>,
}

#[derive(Debug, Clone)]
pub struct PlanView {
    pub heading: &'static str,
    pub sentence: String,
    pub facts: Vec<Fact>,
    pub warnings: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct Example {
    pub name: String,
    pub about: String,
    pub href: String,
}

/// The examples of this repository, the simplest first. What each is for is its own first line.
const EXAMPLES: [(&str, &str); 10] = [
    ("train", include_str!("../../../examples/train/job.yaml")),
    ("single", include_str!("../../../examples/single/job.yaml")),
    ("pytorch", include_str!("../../../examples/pytorch/job.yaml")),
    ("allreduce", include_str!("../../../examples/allreduce/job.yaml")),
    ("mpi", include_str!("../../../examples/mpi/job.yaml")),
    ("checkpoint", include_str!("../../../examples/checkpoint/job.yaml")),
    ("fails", include_str!("../../../examples/fails/job.yaml")),
    ("hang", include_str!("../../../examples/hang/job.yaml")),
    ("too-big", include_str!("../../../examples/too-big/job.yaml")),
    ("sweep", include_str!("../../../examples/sweep/job.yaml")),
];

/// What the address asks for.
#[derive(Debug, Clone, Default, Deserialize)]
pub struct NewJobQuery {
    example: Option<String>,
    /// A job whose document is edited.
    from: Option<JobId>,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct NewJobForm {
    #[serde(default)]
    document: String,
    #[serde(default)]
    key: String,
    /// `check` or `submit`.
    #[serde(default, rename = "do")]
    wish: String,
    #[serde(default)]
    from: String,
}

/// `GET /jobs/new`.
pub async fn page(
    State(state): State<WebState>,
    asker: Asker,
    Params(query): Params<NewJobQuery>,
) -> Result<Html<String>, Error> {
    let document = match (query.from, query.example.as_deref()) {
        (Some(id), _) => {
            let detail = found("job", id, jobs_read::get(&state.db, &asker.scope(), id).await)?;
            match serde_json::from_str::<JobDocument>(detail.document.get()) {
                Ok(document) => to_yaml(&document),
                Err(_) => detail.document.get().to_owned(),
            }
        }
        (None, Some(name)) => EXAMPLES
            .iter()
            .find(|(known, _)| *known == name)
            .map_or("", |(_, text)| text)
            .to_owned(),
        (None, None) => String::new(),
    };
    shown(&written(&asker, document, uuid::Uuid::new_v4().to_string(), query.from))
}

/// `POST /jobs/new`. A refusal is this page again, with everything that was typed.
pub async fn send(State(state): State<WebState>, asker: Asker, RawBody(body): RawBody) -> Result<Response, Error> {
    let sent: NewJobForm = form(&body)?;
    // Browsers send line ends as CR LF; positions are counted in what the person typed.
    let document = sent.document.replace("\r\n", "\n");
    let from = sent.from.parse().ok();
    let key = if sent.key.is_empty() {
        uuid::Uuid::new_v4().to_string()
    } else {
        sent.key
    };
    let submission = Submission {
        text: &document,
        format: None,
        key: Some(&key),
        clone_of: from,
    };
    let outcome = match sent.wish.as_str() {
        "check" => state
            .actions
            .dry_run_job(asker.ask(), submission)
            .await
            .map(Outcome::Sound),
        _ => state
            .actions
            .create_job(asker.ask(), submission)
            .await
            .map(|made| Outcome::Submitted(made.job.job.id)),
    };
    match outcome {
        Ok(Outcome::Submitted(id)) => Ok(Redirect::to(&format!("/jobs/{id}?done=submitted")).into_response()),
        Ok(Outcome::Sound(checked)) => {
            let mut page = written(&asker, document, key, from);
            page.plan = Some(plan(&checked));
            Ok(shown(&page)?.into_response())
        }
        Err(Refusal::Faults(faults)) => {
            // A key holds for one body; a mended document is another one.
            let mut page = written(&asker, document, uuid::Uuid::new_v4().to_string(), from);
            page.faults_heading = format!(
                "{} in this document; nothing was submitted",
                words::counted(faults.len() as u64, "fault")
            );
            page.shell.title = page.faults_heading.clone();
            page.faults = faults
                .into_iter()
                .map(|fault| fault_view(fault, &page.document))
                .collect();
            let status = axum::http::StatusCode::UNPROCESSABLE_ENTITY;
            Ok((status, shown(&page)?).into_response())
        }
        Err(Refusal::KeyReused) => {
            let mut page = written(&asker, document, uuid::Uuid::new_v4().to_string(), from);
            page.faults_heading = "Nothing was submitted".into();
            page.faults = vec![FaultView {
                line: None,
                column: 0,
                path: String::new(),
                message: "This form was sent before with another document. Send it again to submit this one.".into(),
                hint: None,
                excerpt: None,
            }];
            Ok(shown(&page)?.into_response())
        }
        Err(refusal) => Err(refusal.into()),
    }
}

enum Outcome {
    Sound(CheckedJob),
    Submitted(JobId),
}

fn written(asker: &Asker, document: String, key: String, from: Option<JobId>) -> NewJobPage {
    NewJobPage {
        shell: Shell {
            title: "New job".into(),
            section: Section::Jobs,
            crumbs: vec![Crumb {
                label: "Jobs".into(),
                href: "/jobs".into(),
            }],
            viewer: viewer(asker),
            here: "/jobs/new".into(),
            ..Shell::default()
        },
        document,
        faults_heading: String::new(),
        faults: Vec::new(),
        plan: None,
        idempotency_key: key,
        from: from.map(|id| id.to_string()),
        examples: EXAMPLES
            .iter()
            .map(|(name, text)| Example {
                name: (*name).to_owned(),
                about: about(text),
                href: format!("/jobs/new?example={name}"),
            })
            .collect(),
    }
}

/// The first sentence of an example's first comment.
fn about(text: &str) -> String {
    let comment: Vec<&str> = text
        .lines()
        .map_while(|line| line.strip_prefix('#'))
        .map(str::trim)
        .take_while(|line| !line.is_empty())
        .collect();
    let comment = comment.join(" ");
    let ends = [". ", "? ", ": "]
        .into_iter()
        .filter_map(|end| Some(comment.find(end)? + 1));
    let end = ends.min().unwrap_or(comment.len());
    comment[..end].trim_end_matches([':', '.']).to_owned()
}

fn plan(CheckedJob { document, warnings }: &CheckedJob) -> PlanView {
    let sum = |each: &dyn Fn(&trainyard_core::document::job::Role) -> u64| -> i64 {
        let total: u64 = document
            .roles
            .iter()
            .map(|role| each(role).saturating_mul(u64::from(role.replicas)))
            .sum();
        i64::try_from(total).unwrap_or(i64::MAX)
    };
    let asks = told::asks(
        i32::try_from(document.total_replicas()).unwrap_or(i32::MAX),
        sum(&|role| role.resources.cpu.as_milli()),
        sum(&|role| role.resources.memory.map_or(0, |memory| memory.as_bytes())),
        i32::try_from(sum(&|role| u64::from(role.resources.gpus))).unwrap_or(i32::MAX),
    );
    let roles: Vec<String> = document
        .roles
        .iter()
        .map(|role| format!("{} {}", role.replicas, role.name))
        .collect();
    PlanView {
        heading: "This document is sound; nothing was submitted",
        sentence: format!("It asks for {asks}."),
        facts: vec![
            Fact::new("Name", document.name.clone()),
            Fact::new("Team", document.team.clone().unwrap_or_else(|| "your only one".into())),
            Fact::new(
                "Cluster",
                document.cluster.clone().unwrap_or_else(|| "any that fits".into()),
            ),
            Fact::new("Roles", roles.join(", ")),
            Fact::new(
                "Attempts",
                format!("at most {}", document.restart.max.saturating_add(1)),
            ),
        ],
        warnings: warnings.iter().map(|warning| told::full(warning)).collect(),
    }
}

fn fault_view(fault: FieldFault, document: &str) -> FaultView {
    let line = fault.line.map(|line| line as usize);
    let column = fault.column.map_or(1, |column| column as usize);
    FaultView {
        excerpt: line.and_then(|line| excerpt(document, line, column)),
        line,
        column,
        path: fault.path,
        message: told::full(&fault.message),
        hint: fault.hint.map(|hint| told::full(&hint)),
    }
}

/// The line of a fault with its number, and a caret under the column. Tabs stay, so that the caret stands right.
pub fn excerpt(document: &str, line: usize, column: usize) -> Option<String> {
    const WIDTH: usize = 120;
    let text = document.lines().nth(line.checked_sub(1)?)?;
    let skipped = column.saturating_sub(WIDTH / 2);
    let shown: String = text.chars().skip(skipped).take(WIDTH).collect();
    let lead: String = text
        .chars()
        .skip(skipped)
        .take(column.saturating_sub(1).saturating_sub(skipped))
        .map(|character| if character == '\t' { '\t' } else { ' ' })
        .collect();
    let number = line.to_string();
    Some(format!("{number} | {shown}\n{} | {lead}^", " ".repeat(number.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_example_says_what_it_is_for_and_is_a_sound_document() {
        for (name, text) in EXAMPLES {
            let about = about(text);
            assert!((10..250).contains(&about.len()), "{name}: {about}");
            let sound = trainyard_core::document::check_job(text, None).is_ok();
            // The sweep has placeholders, and shows that they are named.
            assert_eq!(sound, name != "sweep", "{name}");
        }
    }

    #[test]
    fn an_excerpt_points_at_the_place_even_in_a_very_long_line() {
        assert_eq!(excerpt("a: 1\nb: x\n", 2, 4).unwrap(), "2 | b: x\n  |    ^");
        let long = "y".repeat(5_000) + "!";
        let shown = excerpt(&long, 1, 5_001).unwrap();
        let (text, caret) = shown.split_once('\n').unwrap();
        assert_eq!(text.find('!'), caret.find('^'));
        assert_eq!(excerpt("a", 7, 1), None);
    }
}
