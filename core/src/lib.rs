//! The pure part of Trainyard: no async, no SQL, no HTTP, no Kubernetes client, no clock.
//!
//! In reading order:
//! - [`model`]: the nouns. Typed ids, states, the records that rooms hand to each other.
//! - [`document`]: what a person writes. YAML or JSON in, typed documents or faults with positions out.
//! - [`catch`]: numbers and checkpoints in what programs print.
//! - [`plan`]: the decisions. (wanted, observed, now) in, steps and words out.
//! - [`kinds`]: how an attempt is written down; today the rendezvous environment of each framework.
//!
//! Cargo keeps this promise: this crate's manifest names no runtime, no database and no web framework.

pub mod catch;
pub mod document;
pub mod kinds;
pub mod model;
pub mod plan;
