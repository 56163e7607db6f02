//! The REST API, one file per endpoint: what it is for, its parameters, an example, and the handler. Within v1, fields
//! are only added.
//!
//! Adding one: a file, its line in the folder's `mod.rs`, and its line in [`register`], which demands who may use it.

use axum::http::Method;
use trainyard_core::model::TeamRole;
use utoipa_axum::routes;

use super::{Access, Load, Routes};

pub mod audit;
pub mod checks;
pub mod clusters;
pub mod code;
pub mod confirm_restore;
pub mod docs;
pub mod document;
pub mod feed;
pub mod health;
pub mod installation;
pub mod jobs;
pub mod lookup;
pub mod me;
pub mod nodes;
pub mod people;
pub mod schemas;
pub mod secrets;
pub mod tokens;

/// Every operation, with who may use it.
pub fn register(routes: Routes) -> Routes {
    use Access::{Admin, Public, Reporter, SignedIn, Team};
    use TeamRole::{Member, Owner, Viewer};

    let routes = routes
        .api(Public, routes!(health::healthz))
        .api(Public, routes!(health::readyz))
        .api(Public, routes!(schemas::job_schema))
        .page(
            Public,
            Load::None,
            Method::GET,
            "/api/v1/openapi.json",
            docs::openapi_json,
        )
        .page(Public, Load::None, Method::GET, "/docs", docs::index)
        .page(Public, Load::None, Method::GET, "/docs/{*file}", docs::file)
        .api(SignedIn, routes!(me::get_me))
        .api(SignedIn, routes!(installation::get_installation))
        .api(Admin, routes!(confirm_restore::confirm_restore))
        .api(SignedIn, routes!(feed::get_feed));

    let routes = routes
        .api(Team(Viewer), routes!(jobs::list::list_jobs))
        .api(Team(Member), routes!(jobs::create::create_job))
        .api(Team(Viewer), routes!(jobs::get::get_job))
        .api(
            Team(Member),
            routes!(jobs::delete::delete_job, jobs::change::change_job),
        )
        .api(Team(Member), routes!(jobs::cancel::cancel_job))
        .api(Team(Member), routes!(jobs::suspend::suspend_job))
        .api(Team(Member), routes!(jobs::resume::resume_job))
        .api(Team(Member), routes!(jobs::rerun::rerun_job))
        .api(Team(Viewer), routes!(jobs::clone::clone_job))
        .api(Team(Viewer), routes!(jobs::attempts::list_attempts))
        .api(Team(Viewer), routes!(jobs::attempt::get_attempt))
        .api(Team(Viewer), routes!(jobs::replicas::list_replicas))
        .api(Team(Viewer), routes!(jobs::incarnations::list_incarnations))
        .api(Team(Viewer), routes!(jobs::events::list_job_events))
        .api(Team(Viewer), routes!(jobs::conditions::list_job_conditions))
        .api(Team(Viewer), routes!(jobs::checkpoints::list_checkpoints))
        .api(Reporter, routes!(jobs::report_checkpoint::report_checkpoint))
        .api(Team(Viewer), routes!(jobs::metrics::get_job_metrics))
        .api(Reporter, routes!(jobs::report_metrics::report_metrics))
        .api(Team(Viewer), routes!(jobs::usage::get_usage))
        .api(Team(Viewer), routes!(jobs::why::get_why))
        .api(Team(Viewer), routes!(jobs::post_mortem::get_post_mortem))
        .api(Team(Viewer), routes!(jobs::log_streams::list_log_streams))
        .api(Team(Viewer), routes!(jobs::logs::read_logs))
        .api(Team(Viewer), routes!(jobs::log_search::search_logs))
        .api(Team(Viewer), routes!(jobs::log_download::download_logs))
        .api(Team(Viewer), routes!(jobs::log_follow::follow_logs));

    let routes = routes
        .api(Team(Viewer), routes!(clusters::list::list_clusters))
        .api(Team(Viewer), routes!(clusters::get::get_cluster))
        .api(Team(Viewer), routes!(clusters::conditions::list_cluster_conditions))
        .api(Team(Viewer), routes!(clusters::events::list_cluster_events))
        .api(Team(Viewer), routes!(clusters::node_pools::list_node_pools))
        .api(Team(Viewer), routes!(clusters::grants::list_grants))
        .api(
            Admin,
            routes!(clusters::put_grant::put_grant, clusters::remove_grant::remove_grant),
        )
        .api(Team(Viewer), routes!(nodes::list::list_nodes))
        .api(Team(Viewer), routes!(nodes::get::get_node))
        .api(Team(Viewer), routes!(nodes::conditions::list_node_conditions))
        .api(Team(Viewer), routes!(nodes::events::list_node_events))
        .api(Team(Viewer), routes!(nodes::metrics::get_node_metrics))
        .api(Team(Viewer), routes!(nodes::replicas::list_node_replicas))
        .api(Admin, routes!(nodes::gone::declare_gone))
        .api(Team(Member), routes!(checks::ask::ask_check))
        .api(SignedIn, routes!(checks::get::get_check));

    routes
        .api(Team(Viewer), routes!(secrets::list::list_secrets))
        .api(
            Team(Member),
            routes!(secrets::put::put_secret, secrets::delete::delete_secret),
        )
        .api(Team(Member), routes!(code::upload::upload_code))
        .api(Team(Viewer), routes!(code::get::get_code))
        .api(
            Admin,
            routes!(people::list_users::list_users, people::create_user::create_user),
        )
        .api(
            Admin,
            routes!(people::get_user::get_user, people::change_user::change_user),
        )
        .api(Admin, routes!(people::invite::invite_user))
        .api(SignedIn, routes!(people::list_teams::list_teams))
        .api(Admin, routes!(people::create_team::create_team))
        .api(Team(Viewer), routes!(people::get_team::get_team))
        .api(Team(Viewer), routes!(people::list_members::list_members))
        .api(
            Team(Owner),
            routes!(people::put_member::put_member, people::remove_member::remove_member),
        )
        .api(
            SignedIn,
            routes!(tokens::list::list_tokens, tokens::create::create_token),
        )
        .api(SignedIn, routes!(tokens::revoke::revoke_token))
        .api(Team(Owner), routes!(audit::list_audit))
}
