//! Decisions. Pure: (wanted, observed, now) in, steps and words out.
