//! Trainyard: an open control plane for training clusters and jobs. One binary, one Postgres.

pub mod actions;
pub mod app;
pub mod backup;
pub mod cli;
pub mod client;
pub mod clock;
pub mod config;
pub mod db;
pub mod doctor;
pub mod examples;
pub mod hub;
pub mod job_token;
pub mod keys;
pub mod logs;
pub mod machine;
pub mod packages;
pub mod postgres;
pub mod private_file;
pub mod runtimes;
pub mod shim;
pub mod telemetry;
pub mod tls;
pub mod way_in;
pub mod web;
pub mod worker;
