//! Stories in a simulated world: the production router, worker loops and a real Postgres, with a clock that a test moves
//! and a runtime that does what a test says. What needs real processes is told in `chaos` and `local`.

mod support;

#[path = "stories/simulated.rs"]
mod simulated;
#[path = "stories/world.rs"]
mod world;

#[path = "stories/checks.rs"]
mod checks;
#[path = "stories/failures.rs"]
mod failures;
#[path = "stories/gone.rs"]
mod gone;
#[path = "stories/hangs.rs"]
mod hangs;
#[path = "stories/queueing.rs"]
mod queueing;
#[path = "stories/repeated.rs"]
mod repeated;
#[path = "stories/restored.rs"]
mod restored;
#[path = "stories/upkeep.rs"]
mod upkeep;
#[path = "stories/wishes.rs"]
mod wishes;
