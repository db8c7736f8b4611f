//! Configuration: raw files, environment and flags in; checked sections out, with every fault at once.

pub mod sections;
