//! Configuration: raw files, environment and flags in; checked sections out, with every fault at once.

pub mod credential;
pub mod effective;
pub mod environment;
pub mod fault;
mod merge;
pub mod origin;
pub mod plan;
mod read;
mod redact;
pub mod sections;
