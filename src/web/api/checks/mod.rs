//! Checks: questions that a worker answers.

pub mod ask;
pub mod get;
