//! The requests of a load that somebody will want to look up: the slowest, and the last that failed.

/// The notable requests of one load.
#[derive(Debug, Clone, Default)]
pub struct Requests {}
