//! Configuration: raw files, environment and flags in; checked sections out, with every fault at once.

pub mod credential;
pub mod environment;
mod redact;
pub mod sections;
