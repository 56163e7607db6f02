//! Everything else.

use super::*;

pub fn settings() -> SettingsPage {
    let token = |name: &str, dead| TokenRow {
        id: format!("tok_{name}"),
        name: name.into(),
        reach: "team vision, as member".into(),
        made: when("6 d ago", 8640),
        expires: Some(when("in 84 d", -120_960)),
        used: Some(when("4 min ago", 4)),
        dead,
    };
    SettingsPage {
        shell: shell("Settings", Section::Settings, &[]),
        facts: vec![
            Fact::new("Name", "Maya Ortiz"),
            Fact::new("Role", "admin of this installation"),
            Fact::new("Teams", "vision (owner), data (viewer)"),
            Fact::new("Id", USER),
        ],
        tokens: vec![token("laptop", None), token("ci", Some("revoked"))],
        fresh: Some(FreshToken {
            name: "laptop".into(),
            secret: "ty_shown_once".into(),
        }),
        pages: Pages::default(),
        may_audit: true,
        refused: None,
        name: String::new(),
        days: "90".into(),
        teams: vec![option("", "all my teams"), option("vision", "vision")],
        roles: vec![option("viewer", "viewer"), option("member", "member")],
    }
}

pub fn search() -> SearchPage {
    let hit = |tone, name: &str, about: &str| Hit {
        tone,
        name: name.into(),
        href: "/jobs/x".into(),
        about: about.into(),
    };
    SearchPage {
        shell: shell("Find: eval", Section::None, &[]),
        text: "eval".into(),
        groups: vec![
            HitGroup {
                heading: "Jobs",
                none: "",
                hits: vec![
                    hit(Tone::Waiting, "eval-harness", "Waiting 14 min, vision"),
                    hit(Tone::Succeeded, "eval-7", "Succeeded, vision"),
                ],
            },
            HitGroup {
                heading: "Nodes",
                none: "No node's name contains it.",
                hits: vec![],
            },
        ],
    }
}

pub fn numbers() -> NumbersPage {
    NumbersPage {
        shell: shell(
            "loss of mixtral-pretrain",
            Section::Jobs,
            &[("Jobs", "/jobs"), ("mixtral-pretrain", "/jobs/x")],
        ),
        heading: "loss of mixtral-pretrain".into(),
        about: "Attempt 2, every rank, by step.".into(),
        place: Place {
            path: "/jobs/x/numbers/loss".into(),
            kept: ("attempt", "2".into()),
            unit: "step",
            from: "100".into(),
            first: "10".into(),
            last: "1,240".into(),
            ..Place::default()
        },
        plot: plots(4, Some(2), plot::Size::Large).into_iter().next(),
        small: running_job().plots.into_iter().next(),
        csv: "/x.csv".into(),
        json: "/x.json".into(),
        columns: ["Step", "worker-0", "worker-1"].map(Into::into).to_vec(),
        rows: (0..30)
            .map(|step| vec![(step * 10).to_string(), "0.412".into(), "0.409".into()])
            .collect(),
    }
}

pub fn error() -> ErrorPage {
    ErrorPage {
        shell: shell("Not available", Section::None, &[]),
        status: 503,
        code: "database_away".into(),
        title: "The database is not available".into(),
        detail: "Trainyard runs, but its Postgres does not answer. Jobs go on; nothing that was acknowledged is lost."
            .into(),
        hint: Some("Wait a moment. If it lasts, run `trainyard doctor` on the server's machine.".into()),
        retry: true,
        again: None,
        request: Some("9f1c22".into()),
    }
}

/// The same while a form was sent.
pub fn error_of_form() -> ErrorPage {
    ErrorPage {
        again: Some(Again {
            action: "/jobs/new".into(),
            hidden: vec![("do".into(), "submit".into()), ("key".into(), "k".into())],
            texts: vec![("document".into(), DOCUMENT.into())],
        }),
        ..error()
    }
}

pub fn forbidden() -> ErrorPage {
    ErrorPage {
        status: 403,
        code: "forbidden".into(),
        title: "Not allowed".into(),
        detail: "This needs the role member in some team.".into(),
        hint: Some("An owner of the team, or an admin, can give you that role.".into()),
        retry: false,
        again: None,
        ..error()
    }
}
