//! What tests share: a database of their own on a real Postgres.

pub mod postgres;
