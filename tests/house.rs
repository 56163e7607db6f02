//! What the house stands on: the private Postgres, the command line, backups.
//!
//! One binary for all of it. Servers are real, and die with the test; see `ground`.

mod support;

#[path = "house/backup.rs"]
mod backup;
#[path = "house/cli.rs"]
mod cli;
#[path = "house/client.rs"]
mod client;
#[path = "house/dropped.rs"]
mod dropped;
#[path = "house/ground.rs"]
mod ground;
#[path = "house/postgres.rs"]
mod postgres;
#[path = "house/postgres_rights.rs"]
mod postgres_rights;
#[path = "house/restored.rs"]
mod restored;
#[path = "house/rooms.rs"]
mod rooms;
#[path = "house/silent.rs"]
mod silent;
#[path = "house/up.rs"]
mod up;
