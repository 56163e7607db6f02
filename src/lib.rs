//! Trainyard: an open control plane for training clusters and jobs. One binary, one Postgres.

pub mod client;
pub mod clock;
pub mod config;
pub mod db;
pub mod keys;
pub mod logs;
pub mod postgres;
pub mod private_file;
pub mod runtimes;
pub mod telemetry;
pub mod web;
pub mod worker;
