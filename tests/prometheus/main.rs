//! What a real Prometheus makes of daemons: with native histograms and without, every name, count and quantile that it has is
//! held against the catalogue and against what the gateways say they did.
//!
//! `tests/run` installs Prometheus (Debian's, 2.42); where it is missing these tests fail.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::string_slice,
    reason = "a test fails by panicking"
)]
#![expect(clippy::float_cmp, reason = "counts are whole")]
#![expect(clippy::print_stdout, reason = "what was measured is shown beside what was asserted")]

mod exact;
mod one;
#[path = "../support/promtool.rs"]
mod promtool;
mod scene;
mod server;
mod shards;
#[path = "../support/daemon.rs"]
mod support;
mod tool;
