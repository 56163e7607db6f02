//! Every page filled with values that could be real, among them the bad nights: failures, long names, many ranks.

use chrono::{DateTime, Duration, Utc};
use trainyard::web::{
    pages::{
        audit::*, cluster::*, clusters, clusters::*, confirm::*, errors::*, job::*, jobs, jobs::*, logs::*, new_job::*,
        node::*, nodes, nodes::*, numbers::*, refused::*, search::*, settings::*, sign_in::*, sort, team::*, teams::*,
        terminal, timeline, timeline::*, view::*,
    },
    plot::{self, Chart, Horizontal, Line},
};

#[path = "samples/fleet.rs"]
mod fleet_samples;
#[path = "samples/job.rs"]
mod job_samples;
#[path = "samples/jobs.rs"]
mod jobs_samples;
#[path = "samples/logs.rs"]
mod logs_samples;
#[path = "samples/people.rs"]
mod people_samples;
#[path = "samples/rest.rs"]
mod rest_samples;

pub use fleet_samples::*;
pub use job_samples::*;
pub use jobs_samples::*;
pub use logs_samples::*;
pub use people_samples::*;
pub use rest_samples::*;

pub fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(1_796_054_400, 0).unwrap()
}

pub fn ago(minutes: i64) -> DateTime<Utc> {
    now() - Duration::minutes(minutes)
}

pub fn when(words: &str, minutes: i64) -> When {
    When::new(words, ago(minutes))
}

pub fn shell(title: &str, section: Section, crumbs: &[(&str, &str)]) -> Shell {
    Shell {
        title: title.into(),
        section,
        crumbs: crumbs
            .iter()
            .map(|(label, href)| Crumb {
                label: (*label).into(),
                href: (*href).into(),
            })
            .collect(),
        viewer: Some(Viewer {
            name: "Maya Ortiz".into(),
            csrf: "0f3c".into(),
            restored: None,
        }),
        here: "/".into(),
        ..Shell::default()
    }
}

pub fn option(value: &str, label: &str) -> SelectOption {
    SelectOption {
        value: value.into(),
        label: label.into(),
        selected: value.is_empty(),
    }
}

pub fn choice(label: &str, count: &str, current: bool) -> Choice {
    Choice {
        label: label.into(),
        href: "/jobs?state=x".into(),
        current,
        count: (!count.is_empty()).then(|| count.into()),
    }
}

/// Every sample by its name.
pub fn all() -> Vec<(&'static str, String)> {
    use askama::Template;
    let render = |sample: &dyn askama::DynTemplate| sample.dyn_render().unwrap();
    let hostile = JobPage {
        name: HOSTILE.into(),
        document: HOSTILE.into(),
        ..failed_job()
    };
    vec![
        ("sign-in", render(&SignInPage::offered("k3".into()))),
        ("sign-in-expired", render(&SignInPage::expired())),
        ("sign-in-used", render(&SignInPage::used())),
        ("jobs", render(&jobs())),
        (
            "jobs-empty",
            render(&JobsPage {
                rows: vec![],
                summary: "No job was submitted yet.".into(),
                ..jobs()
            }),
        ),
        ("job-running", render(&running_job())),
        ("job-hung", render(&hung_job())),
        ("job-waiting", render(&waiting_job())),
        ("job-failed", render(&failed_job())),
        ("job-wide", render(&wide_job())),
        ("job-hostile", render(&hostile)),
        ("cancel", render(&cancel())),
        ("delete", render(&delete())),
        ("logs", render(&logs(false))),
        ("logs-search", render(&logs(true))),
        ("new-job", render(&new_job(false))),
        ("new-job-faults", render(&new_job(true))),
        ("nodes", render(&nodes(5_000))),
        ("nodes-table", render(&nodes_table())),
        ("node", render(&node())),
        ("clusters", clusters().render().unwrap()),
        ("cluster", cluster().render().unwrap()),
        ("teams", render(&teams())),
        ("teams-refused", render(&teams_refused())),
        ("team", render(&team())),
        ("team-bare", render(&team_bare())),
        ("team-refused", render(&team_refused())),
        ("forget", render(&forget())),
        ("settings", render(&settings())),
        ("audit", render(&audit())),
        ("audit-empty", render(&audit_empty())),
        ("search", render(&search())),
        ("numbers", render(&numbers())),
        ("error", render(&error())),
        ("error-form", render(&error_of_form())),
        ("error-forbidden", render(&forbidden())),
    ]
}

pub const HOSTILE: &str =
    "</pre></script><script>window.broken = 1</script><img src=x onerror='window.broken = 1'>\"'&";

pub const JOB: &str = "job_06a5fqhl5pv3t1g0l2m9n7k8r4";
