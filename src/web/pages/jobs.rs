//! The list of jobs: what is wrong or waiting, then the rest. Filters and place live in the address.

use askama::Template;

use super::view::{Choice, Pages, SelectOption, Shell, Tone, When};

#[derive(Debug, Template)]
#[template(path = "jobs.html")]
pub struct JobsPage {
    pub shell: Shell,
    /// `2 failed in the last day, 3 wait, 4 run`.
    pub summary: String,
    pub choices: Vec<Choice>,
    /// The state filter in force, kept by the form.
    pub state: Option<String>,
    pub text: String,
    pub label: String,
    pub teams: Vec<SelectOption>,
    pub clusters: Vec<SelectOption>,
    pub filtered: bool,
    pub rows: Vec<JobRow>,
    pub pages: Pages,
}

#[derive(Debug, Clone, Template)]
#[template(source = "{% import \"parts.html\" as parts %}{% include \"job_row.html\" %}", ext = "html")]
pub struct JobRowFragment {
    pub row: JobRow,
}

#[derive(Debug, Clone)]
pub struct JobRow {
    pub id: String,
    pub tone: Tone,
    pub sentence: String,
    pub name: String,
    pub team: String,
    pub owner: String,
    pub cluster: String,
    pub replicas: String,
    pub gpus: String,
    pub submitted: When,
    /// How long its attempts ran, or nothing yet.
    pub ran: String,
}
