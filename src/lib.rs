//! Trainyard: an open control plane for training clusters and jobs. One binary, one Postgres.

pub mod db;
pub mod runtimes;
pub mod web;
