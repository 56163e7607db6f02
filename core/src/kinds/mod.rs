//! How an attempt is written down. Pure: a launch in, environment variables or objects out.

pub mod rendezvous;
