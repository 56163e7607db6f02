//! The committed examples, submitted with `trainyard submit` to a real server with a real worker, and what API and
//! pages say of them afterwards. What was seen is printed, so that it can be quoted.

#[path = "chaos/api.rs"]
#[allow(dead_code, reason = "shared with the chaos tests, which use more of it")]
mod api;
#[path = "chaos/postgres.rs"]
#[allow(dead_code, reason = "shared with the chaos tests, which use more of it")]
mod postgres;
#[path = "chaos/world.rs"]
#[allow(dead_code, reason = "shared with the chaos tests, which use more of it")]
mod world;

#[path = "examples/yard.rs"]
mod yard;

#[path = "examples/failures.rs"]
mod failures;
#[path = "examples/token.rs"]
mod token;
#[path = "examples/training.rs"]
mod training;
#[path = "examples/why.rs"]
mod why;
