//! The client from outside: against what real servers sent, and against the simulated gateway.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "what was measured is shown beside what was asserted")]
#![expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small figures of known sign")]

mod capture;
mod conformance;
mod faults;
mod hostile;
mod replay;
mod sending;
