//! Numbers, sizes and times as people read them. Used by every sentence here and by pages and the command line.

use chrono::{DateTime, Duration, Utc};

/// `2 h 14 min`, `3 d 2 h`, `45 s`, `0 s`. At most two units; negative ones count as zero.
pub fn duration(span: Duration) -> String {
    let _ = span;
    todo!()
}

/// `about 2 h`: one unit, rounded.
pub fn about(span: Duration) -> String {
    let _ = span;
    todo!()
}

/// `4 min ago`, `in 4 min`, `now`.
pub fn relative(then: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let _ = (then, now);
    todo!()
}

/// `2026-11-30 13:04:10 UTC`.
pub fn exact(at: DateTime<Utc>) -> String {
    at.format("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// `1,240`.
pub fn count(number: impl Into<i128>) -> String {
    let _ = number.into();
    todo!()
}

/// `1 rank`, `8 ranks`, `1,240 jobs`.
pub fn counted(number: u64, noun: &str) -> String {
    let _ = (number, noun);
    todo!()
}

/// `1.5 GiB`, `512 MiB`, `17 bytes`.
pub fn bytes(number: u64) -> String {
    let _ = number;
    todo!()
}

/// `2 cores`, `0.5 cores`, `1 core`.
pub fn cores(milli: u64) -> String {
    let _ = milli;
    todo!()
}

/// `a`, `a and b`, `a, b and c`, `a, b and 7 more`.
pub fn list(items: &[String], most: usize) -> String {
    let _ = (items, most);
    todo!()
}
