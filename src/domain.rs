//! Plain data that travels the pipeline: no I/O, no clock, no serialisation.

pub mod api;
pub mod arrival;
pub mod budget;
pub mod hex;
pub mod outcome;
pub mod prompt;
pub mod sample;
pub mod secret;
pub mod shed;
pub mod slo;
pub mod timeline;
