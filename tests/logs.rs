//! Output from the runtime to the reader, on a real Postgres.

mod support;

#[path = "logs/follow.rs"]
mod follow;
#[path = "logs/ingest.rs"]
mod ingest;
#[path = "logs/outline.rs"]
mod outline;
#[path = "logs/ranks.rs"]
mod ranks;
#[path = "logs/reading.rs"]
mod reading;
#[path = "logs/window.rs"]
mod window;
#[path = "logs/world.rs"]
mod world;
