//! Loops that make the world match the records.

pub mod ingest;
pub mod seal;
pub mod sequencer;
