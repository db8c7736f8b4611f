//! The simulated gateway, judged by its bytes: every test here is a client of its own making that knows nothing of the
//! crate's.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::print_stderr,
    reason = "all of this file is test code, also where the lints cannot see it; what a failed case heard is printed"
)]

#[path = "sim/engine.rs"]
mod engine;
#[path = "sim/faults.rs"]
mod faults;
#[path = "sim/metrics.rs"]
mod metrics;
#[path = "sim/peer.rs"]
mod peer;
#[path = "support/promtool.rs"]
mod promtool;
#[path = "sim/robust.rs"]
mod robust;
#[path = "sim/routes.rs"]
mod routes;
#[path = "sim/server.rs"]
mod server;
#[path = "sim/stamps.rs"]
mod stamps;
