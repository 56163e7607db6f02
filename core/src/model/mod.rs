//! Nouns. Everything here is a value: it can be compared, stored and sent, and it does nothing.

pub mod id;
pub mod observe;
pub mod state;

pub use id::*;
pub use observe::*;
pub use state::*;

/// Shorter secret values are not masked in output, in bytes: they would mask half of every log.
pub const SHORTEST_MASKED: usize = 4;
