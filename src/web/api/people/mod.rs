//! Users, teams and members.

pub mod change_user;
pub mod create_team;
pub mod create_user;
pub mod get_team;
pub mod get_user;
pub mod invite;
pub mod list_members;
pub mod list_teams;
pub mod list_users;
pub mod put_member;
pub mod remove_member;
