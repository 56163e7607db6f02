//! HTTP, both faces.

pub mod pages;
pub mod plot;
