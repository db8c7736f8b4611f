//! `steadyload run` as its users see it: a process, its exit codes, its log and its metrics, beside simulated gateways.

#![expect(clippy::unwrap_used, clippy::panic, clippy::string_slice, reason = "a test fails by panicking")]
#![expect(clippy::float_cmp, reason = "counts are whole")]
#![expect(clippy::print_stdout, reason = "what the daemon said is shown when a test fails")]

#[path = "../support/daemon.rs"]
mod support;

mod across_minutes;
mod answers;
mod drain;
mod faults;
mod indices;
mod life;
mod logs;
mod prompts;
mod reload;
mod rig;
mod standstill;
mod start;
mod supervisor;
