//! From stamps to quantities: pure, no clock, no I/O.

pub mod sample;
