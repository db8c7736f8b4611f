//! Readings of the world beside the latency. What cannot be read is absent, never 0.

pub mod client_health;
pub mod fetch;
pub mod models;
