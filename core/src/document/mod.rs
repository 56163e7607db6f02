//! What a person writes: documents as trees with positions, checked whole, and only then as types.

pub mod job;
pub mod units;
