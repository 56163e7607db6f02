//! Stories through the real router on a real Postgres: what people and programs ask, and what they are told.

mod support;

#[path = "api/access.rs"]
mod access;
#[path = "api/collisions.rs"]
mod collisions;
#[path = "api/creates.rs"]
mod creates;
#[path = "api/jobs.rs"]
mod jobs;
#[path = "api/limits.rs"]
mod limits;
#[path = "api/manners.rs"]
mod manners;
#[path = "api/openapi.rs"]
mod openapi;
#[path = "api/pages.rs"]
mod pages;
#[path = "api/people.rs"]
mod people;
#[path = "api/reports.rs"]
mod reports;
#[path = "api/rotation.rs"]
mod rotation;
#[path = "api/teams.rs"]
mod teams;
#[path = "api/world.rs"]
mod world;
#[path = "api/world_parts.rs"]
mod world_parts;
