//! The load path: what is sent, and the client that sends it and stamps what comes back.

pub mod client;
pub mod prompt;
