//! Tokens of people and programs.

pub mod create;
pub mod list;
pub mod revoke;
