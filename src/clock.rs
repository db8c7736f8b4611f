//! The one reader of monotonic and wall time.
//!
//! Every stamp in the program comes from [`now`], so that a test which pauses tokio's clock pauses all of it.
//! Wall time labels files and log lines; it is never subtracted from anything.

pub mod pacer;

pub use tokio::time::Instant;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The monotonic clock, with nanosecond resolution. Under `tokio::time::pause` it stands still.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock, for labels and files only: it may step backwards.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub fn wall_now() -> SystemTime {
    SystemTime::now()
}

/// The wall clock as the time since the Unix epoch; 0 on a clock that is set before it.
#[must_use]
pub fn unix_now() -> Duration {
    wall_now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
