//! The load path: what is sent, when, and the client that sends it and stamps what comes back.

pub mod client;
pub mod prompt;
pub mod schedule;
pub mod worker;
