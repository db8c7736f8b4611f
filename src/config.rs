//! Configuration: raw files, environment and flags in; checked sections out, with every fault at once.

pub mod credential;
pub mod endpoint;
pub mod environment;
pub mod secrets;
pub mod sections;
