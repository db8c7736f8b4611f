//! One planned request.

use tokio::time::Instant;

/// The instant at which the schedule says that a request shall leave, and which request that is.
///
/// The planned instant travels with the request, so that lateness of our own making stays visible
/// (`sent_at - planned_at`) and is never mistaken for the gateway's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arrival {
    /// Position in the load's plan, from 0. The prompt is a function of it.
    pub index: u64,
    /// Open loop: the instant of the plan. Closed loop: the instant the slot became free.
    pub planned_at: Instant,
}
