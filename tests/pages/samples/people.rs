//! Teams, one team, and what was done.

use super::*;

pub const USER: &str = "user_06a5fqhl5pv3t1g0l2m9n7k8r4";
const TEAM: &str = "team_06a5fqhl5pv3t1g0l2m9n7k8r4";

pub fn teams() -> TeamsPage {
    let row = |name: &str, role: &str, members: &str| TeamRow {
        id: TEAM.into(),
        name: name.into(),
        role: role.into(),
        members: members.into(),
        made: when("41 d ago", 59_040),
    };
    TeamsPage {
        shell: shell("Teams", Section::Teams, &[]),
        summary: "You are in 2 teams.".into(),
        rows: vec![
            row("data", "viewer", "14"),
            row(
                "evaluation-of-very-large-language-models-in-many-languages-nightly",
                "none",
                "3",
            ),
            row("vision", "owner", "1,204"),
        ],
        pages: Pages {
            first: None,
            next: Some("/teams?cursor=x".into()),
        },
        may_make: true,
        may_audit: true,
        refused: None,
        name: String::new(),
    }
}

/// With something wrong in the form, and what was typed still there.
pub fn teams_refused() -> TeamsPage {
    TeamsPage {
        refused: Some(Refused {
            status: 422,
            form: "team",
            words: vec![
                "`name`: a name has 1 to 63 lower-case letters, digits and dashes, no dash at an end. For example \
                 vision-research."
                    .into(),
            ],
        }),
        name: "Vision Research".into(),
        rows: vec![],
        pages: Pages::default(),
        summary: "You are in no team.".into(),
        ..teams()
    }
}

pub fn team() -> TeamPage {
    let member = |name: &str, role: &str| MemberRow {
        id: USER.into(),
        name: name.into(),
        role: role.into(),
        since: when("6 d ago", 8_640),
    };
    let secret = |name: &str, keys: &[&str], version: &str| SecretRow {
        name: name.into(),
        keys: keys.iter().map(|key| (*key).to_owned()).collect(),
        version: version.into(),
        by: "Maya Ortiz".into(),
        put: when("2 h ago", 120),
    };
    TeamPage {
        shell: Shell {
            notice: Some("The secret was put. Nobody can read it back.".into()),
            ..shell("Team vision", Section::Teams, &[("Teams", "/teams")])
        },
        id: TEAM.into(),
        name: "vision".into(),
        summary: "3 members, 2 clusters. You are owner in it, and admin.".into(),
        members: vec![
            member("Maya Ortiz", "owner"),
            member("Bartholomäus von Hohenstein-Niederlausitz", "member"),
            member("Ng", "viewer"),
        ],
        grants: vec![
            GrantRow {
                cluster: "cluster_x".into(),
                name: "local".into(),
                level: "use".into(),
                namespace: "none".into(),
                queue: "none".into(),
                since: when("41 d ago", 59_040),
            },
            GrantRow {
                cluster: "cluster_y".into(),
                name: "eu-west-h100".into(),
                level: "privileged".into(),
                namespace: "vision".into(),
                queue: "research".into(),
                since: when("3 d ago", 4_320),
            },
        ],
        secrets: vec![
            secret("object-storage", &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"], "12"),
            secret("wandb", &["api-key"], "1"),
        ],
        pages: Pages::default(),
        may_own: true,
        may_put: true,
        may_grant: true,
        may_audit: true,
        refused: None,
        typed: Typed {
            pairs: vec![Default::default(); 3],
            ..Typed::default()
        },
        people: vec![option(USER, "Maya Ortiz")],
        roles: vec![
            option("viewer", "viewer"),
            option("member", "member"),
            option("owner", "owner"),
        ],
        clusters: vec![option("cluster_x", "local, this machine")],
        levels: vec![option("use", "use"), option("privileged", "privileged")],
    }
}

/// What somebody sees who may change nothing, of a team that has nothing.
pub fn team_bare() -> TeamPage {
    TeamPage {
        shell: shell("Team vision", Section::Teams, &[("Teams", "/teams")]),
        summary: "1 member, 0 clusters. You are viewer in it.".into(),
        members: vec![team().members.remove(2)],
        grants: vec![],
        secrets: vec![],
        may_own: false,
        may_put: false,
        may_grant: false,
        may_audit: false,
        ..team()
    }
}

/// A secret that was refused, with what was typed.
pub fn team_refused() -> TeamPage {
    TeamPage {
        shell: shell("Team vision", Section::Teams, &[("Teams", "/teams")]),
        refused: Some(Refused {
            status: 422,
            form: "secret",
            words: vec!["`values.my key`: A key has 1 to 253 letters, digits, '-', '_' and '.'.".into()],
        }),
        typed: Typed {
            secret: "wandb".into(),
            pairs: vec![
                ("my key".into(), "-----BEGIN KEY-----\nabc\n".into()),
                Default::default(),
                Default::default(),
            ],
            ..Typed::default()
        },
        ..team()
    }
}

pub fn forget() -> ConfirmPage {
    ConfirmPage {
        shell: shell(
            "Forget wandb?",
            Section::Teams,
            &[("Teams", "/teams"), ("vision", "/teams/x")],
        ),
        question: "Forget wandb?".into(),
        consequence: "Jobs that refer to it do not start any more. What was started with it keeps what it was given."
            .into(),
        lost: vec!["1 value of version 1: api-key".into()],
        action: "/teams/x/secrets/wandb/delete".into(),
        verb: "Forget the secret",
        danger: true,
        keep: "Keep it",
        back: "/teams/x".into(),
        type_name: Some("wandb".into()),
        asked_at: "2026-11-30 16:00:00 UTC".into(),
        ..ConfirmPage::default()
    }
}

pub fn audit() -> AuditPage {
    let row =
        |minutes, actor: Option<&str>, action: &str, subject: Option<(&str, &str, bool)>, detail: &str| AuditRow {
            at: when(&format!("{minutes} min ago"), minutes),
            actor: actor.map(|name| (name.to_owned(), "/audit?actor=x".to_owned())),
            by_token: action == "job.cancel",
            action: action.into(),
            subject: subject.map(|(kind, id, is_page)| Subject {
                kind: kind.into(),
                id: id.into(),
                page: is_page.then(|| format!("/{kind}s/{id}")),
                deeds: "/audit?subject=x".into(),
            }),
            team: "vision".into(),
            detail: detail.into(),
            request: "019ad82f41c17d3a9e2b5c6d7e8f9a0b".into(),
        };
    AuditPage {
        shell: shell("Audit", Section::Settings, &[("Settings", "/settings")]),
        summary: "Every deed of a person or a program of theirs, newest first.".into(),
        filtered: true,
        query: AuditQuery {
            since: "2026-11-30".into(),
            ..AuditQuery::default()
        },
        teams: vec![option("", "all teams"), option("vision", "vision")],
        rows: vec![
            row(2, Some("Maya Ortiz"), "job.cancel", Some(("job", JOB, true)), ""),
            row(
                9,
                Some("Bartholomäus von Hohenstein-Niederlausitz"),
                "secret.put",
                Some(("secret", "secret_06a5fqhl5pv3t1g0l2m9n7k8r4", false)),
                "keys: AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY, name: object-storage, version: 12",
            ),
            row(
                31,
                Some("Maya Ortiz"),
                "team.member",
                Some(("team", "vision", true)),
                "role: member, user: Ng",
            ),
            row(55, None, "keys.rotate", None, ""),
        ],
        pages: Pages {
            first: Some("/audit".into()),
            next: Some("/audit?cursor=x".into()),
        },
    }
}

pub fn audit_empty() -> AuditPage {
    AuditPage {
        rows: vec![],
        pages: Pages::default(),
        ..audit()
    }
}
