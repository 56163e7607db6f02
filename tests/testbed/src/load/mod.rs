//! Size: thousands of fake nodes and pods, events at a set rate, recorded watches, logs to follow.

pub mod events;
pub mod fill;
pub mod logs;
pub mod nodes;
pub mod record;
pub mod snapshot;
