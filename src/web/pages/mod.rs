//! The pages: one file each, with its handler, its view and its tests. A view is pure data that a template shows; every
//! page is whole without JavaScript, and what changes is patched in place where JavaScript runs.
//!
//! Deliberately absent: SQL (in db), decisions (in core's plan), and any markup made from text by hand: templates
//! escape, and the two makers of drawings escape every label.

pub mod assets;
pub mod audit;
pub mod cluster;
pub mod clusters;
pub mod confirm;
pub mod errors;
pub mod job;
pub mod jobs;
pub mod live;
pub mod logs;
pub mod new_job;
pub mod node;
pub mod nodes;
pub mod numbers;
pub mod refused;
pub mod restored;
pub mod search;
pub mod settings;
pub mod sign_in;
pub mod sort;
pub mod team;
pub mod teams;
pub mod terminal;
pub mod timeline;
pub mod told;
pub mod view;

pub use assets::url;

use askama::Template;
use axum::{http::Method, response::Html};
use trainyard_core::model::TeamRole;

use super::{Access, Code, Error, Load, Routes, auth, extract::Asker, params};
use crate::{actions::FieldFault, db::DbError};
use view::{Restored, Viewer};

/// Every page, with who may use it.
pub fn register(routes: Routes) -> Routes {
    use Access::{Admin, Public, SignedIn, Team};
    use Load::{Bounded, None};
    use TeamRole::{Member, Owner, Viewer};

    const GET: Method = Method::GET;
    const POST: Method = Method::POST;
    // Where it is asked whether something is to be taken from a team, and where it is done.
    const MEMBER: &str = "/teams/{team}/members/{user}/remove";
    const GRANT: &str = "/teams/{team}/grants/{cluster}/remove";
    const SECRET: &str = "/teams/{team}/secrets/{name}/delete";
    routes
        .page(Public, None, GET, "/static/{file}", assets::serve)
        .page(Public, None, GET, "/sign-in", sign_in::asked)
        .page(Public, Bounded, GET, "/sign-in/{secret}", sign_in::offered)
        .page(SignedIn, None, GET, "/", jobs::home)
        .page(Team(Viewer), Bounded, GET, "/jobs", jobs::page)
        .page(Team(Viewer), Bounded, GET, "/jobs/live", live::jobs)
        .page(Team(Member), Bounded, GET, "/jobs/new", new_job::page)
        .page(Team(Member), Bounded, POST, "/jobs/new", new_job::send)
        .page(Team(Viewer), Bounded, GET, "/jobs/{job}", job::page)
        .page(Team(Viewer), Bounded, GET, "/jobs/{job}/live", live::job)
        .page(Team(Viewer), Bounded, GET, "/jobs/{job}/logs", logs::page)
        .page(Team(Viewer), Bounded, GET, "/jobs/{job}/logs/live", logs::live)
        .page(Team(Viewer), Bounded, GET, "/jobs/{job}/first-error", logs::first_error)
        .page(
            Team(Viewer),
            Bounded,
            GET,
            "/jobs/{job}/numbers/{series}",
            numbers::of_job,
        )
        .page(Team(Member), Bounded, GET, "/jobs/{job}/{verb}", confirm::page)
        .page(Team(Member), Bounded, POST, "/jobs/{job}/{verb}", confirm::send)
        .page(Team(Viewer), Bounded, GET, "/nodes", nodes::page)
        .page(Team(Viewer), Bounded, GET, "/nodes/live", live::nodes)
        .page(Team(Viewer), Bounded, GET, "/nodes/{node}", node::page)
        .page(Team(Viewer), Bounded, GET, "/nodes/{node}/live", live::node)
        .page(
            Team(Viewer),
            Bounded,
            GET,
            "/nodes/{node}/numbers/{series}",
            numbers::of_node,
        )
        .page(Team(Viewer), Bounded, GET, "/n/{tail}", nodes::by_tail)
        .page(Team(Viewer), Bounded, GET, "/clusters", clusters::page)
        .page(Team(Viewer), Bounded, GET, "/clusters/live", live::clusters)
        .page(Team(Viewer), Bounded, GET, "/clusters/{cluster}", cluster::page)
        .page(Team(Viewer), Bounded, GET, "/clusters/{cluster}/live", live::cluster)
        .page(Team(Member), Bounded, POST, "/clusters/{cluster}/look", cluster::look)
        .page(SignedIn, Bounded, GET, "/search", search::page)
        .page(Admin, Bounded, POST, "/restored/confirm", restored::confirm)
        .page(SignedIn, Bounded, GET, "/settings", settings::page)
        .page(SignedIn, Bounded, POST, "/settings/tokens", settings::make)
        .page(SignedIn, Bounded, GET, "/settings/tokens/{token}/revoke", settings::ask)
        .page(
            SignedIn,
            Bounded,
            POST,
            "/settings/tokens/{token}/revoke",
            settings::revoke,
        )
        .page(Team(Owner), Bounded, GET, "/audit", audit::page)
        .page(SignedIn, Bounded, GET, "/teams", teams::page)
        .page(Admin, Bounded, POST, "/teams", teams::create)
        .page(Team(Viewer), Bounded, GET, "/teams/{team}", team::page)
        .page(
            Team(Owner),
            Bounded,
            POST,
            "/teams/{team}/members",
            team::deeds::put_member,
        )
        .page(Team(Owner), Bounded, GET, MEMBER, team::asks::member)
        .page(Team(Owner), Bounded, POST, MEMBER, team::asks::remove_member)
        .page(Admin, Bounded, POST, "/teams/{team}/grants", team::deeds::put_grant)
        .page(Admin, Bounded, GET, GRANT, team::asks::grant)
        .page(Admin, Bounded, POST, GRANT, team::asks::remove_grant)
        .page(
            Team(Member),
            Bounded,
            POST,
            "/teams/{team}/secrets",
            team::deeds::put_secret,
        )
        .page(Team(Member), Bounded, GET, SECRET, team::asks::secret)
        .page(Team(Member), Bounded, POST, SECRET, team::asks::delete_secret)
}

/// Who looks, for the page's frame and forms.
pub(crate) fn viewer(asker: &Asker) -> Option<Viewer> {
    Some(Viewer {
        name: asker.caller.actor.name.clone(),
        csrf: auth::csrf_of(&asker.caller).unwrap_or_default(),
        restored: asker.caller.restored_at.map(|at| Restored {
            at: trainyard_core::plan::words::exact(at),
            may_confirm: asker.caller.actor.admin,
        }),
    })
}

/// A page as it is sent. A template that can't be written is a fault of ours.
pub(crate) fn shown(page: &impl Template) -> Result<Html<String>, Error> {
    page.render().map(Html).map_err(|error| {
        tracing::error!(%error, "a page could not be rendered");
        Error::new(Code::Internal, "This page could not be put together")
    })
}

/// A form's fields. Fields that a page does not know are left alone.
pub(crate) fn form<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Error> {
    let text = std::str::from_utf8(body)
        .map_err(|_| Error::parameter(FieldFault::new("", "syntax", "the form is not UTF-8")))?;
    params::parse(text).map_err(Error::parameter)
}

/// A record that is not there, or not for this reader, by what it was looked for as.
pub(crate) fn found<T>(what: &str, id: impl ToString, result: Result<T, DbError>) -> Result<T, Error> {
    result.map_err(|error| match error {
        DbError::NotFound => Error::not_found(what, &id.to_string()),
        other => other.into(),
    })
}
