//! Real processes, really killed: servers, workers, shims and Postgres, at random moments and under load.
//!
//! Each world has a data folder, a Postgres and ports of its own. What is random comes from one seed, which is printed;
//! `TRAINYARD_TEST_SEED` sets it. `TRAINYARD_TEST_LONG` makes it thousands of kills.

#[path = "chaos/api.rs"]
mod api;
#[path = "chaos/books.rs"]
mod books;
#[path = "chaos/postgres.rs"]
mod postgres;
#[path = "chaos/world.rs"]
mod world;

#[path = "chaos/fences.rs"]
mod fences;
#[path = "chaos/hang.rs"]
mod hang;
#[path = "chaos/output.rs"]
mod output;
#[path = "chaos/secrets.rs"]
mod secrets;
#[path = "chaos/stops.rs"]
mod stops;
#[path = "chaos/storm.rs"]
mod storm;

/// The seed of this run, and whether it is a long one.
fn seed() -> u64 {
    let given = std::env::var("TRAINYARD_TEST_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    given.unwrap_or_else(rand::random)
}

fn is_long() -> bool {
    std::env::var_os("TRAINYARD_TEST_LONG").is_some_and(|value| !value.is_empty())
}
