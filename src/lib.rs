//! Trainyard: an open control plane for training clusters and jobs. One binary, one Postgres.

pub mod runtimes;
pub mod shim;
