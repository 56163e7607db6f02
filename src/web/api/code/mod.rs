//! Uploaded code.

pub mod get;
pub mod upload;
