//! `steadyload`: a steady, reproducible load on an LLM inference gateway, measured as a user would feel it.
//!
//! The folders are the pipeline; a number travels `config → Arrival → Timeline → Sample` and never back.
//! `ARCHITECTURE.md` has the map, and `tests/architecture.rs` holds the rules of who may use whom.

pub mod app;
pub mod cli;
pub mod clock;
pub mod config;
pub mod domain;
pub mod export;
pub mod load;
pub mod measure;
pub mod sim;
pub mod store;
pub mod tokens;
pub mod watch;
