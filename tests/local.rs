//! The local runtime with real processes. Everything that a test starts ends with it, also when it fails.

#[path = "local/world.rs"]
mod world;

#[path = "local/life.rs"]
mod life;

#[path = "local/stopping.rs"]
mod stopping;

#[path = "local/kills.rs"]
mod kills;

#[path = "local/outputs.rs"]
mod outputs;

#[path = "local/files.rs"]
mod files;

#[path = "local/frameworks.rs"]
mod frameworks;

#[path = "local/machine.rs"]
mod machine;
