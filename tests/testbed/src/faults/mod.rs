//! What can go wrong, on demand: as functions here and as `testbed fault ...` for people.

pub mod api;
pub mod nodes;
pub mod proxy;
pub mod quota;
pub mod token;
pub mod webhook;
