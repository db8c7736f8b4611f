//! From stamps to quantities, counts and windows: no clock, no I/O, no lock. Time comes in as an argument.

pub mod hdr;
pub mod histogram;
pub mod notable;
pub mod recorder;
pub mod sample;
pub mod snapshot;
pub mod totals;
pub mod window;
