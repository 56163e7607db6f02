//! Nouns. Everything here is a value: it can be compared, stored and sent, and it does nothing.

pub mod id;
pub mod observe;
pub mod state;

pub use id::*;
pub use observe::*;
pub use state::*;
