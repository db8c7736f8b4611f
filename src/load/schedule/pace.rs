//! Runs an open loop against the clock.

use tokio::sync::mpsc::Receiver;
use tokio::task::coop;

use super::dispatch::{Dispatch, Event, Issue};
use crate::clock;
use crate::clock::pacer::Pacer;

/// Hands out each arrival at its instant until the loop is stopped, or until nobody is left who could say so.
///
/// `out` must not wait: a bounded channel's `try_send`, or a list of futures. What it cannot take it counts. `events` are
/// looked at before the clock, so an end that has been reported is known before the next arrival is decided on; its sender
/// should have room for `max_in_flight` of them.
pub async fn pace(
    dispatch: &mut Dispatch,
    pacer: &mut Pacer,
    events: &mut Receiver<Event>,
    mut out: impl FnMut(Issue),
) {
    while let Some(wake_at) = dispatch.wake_at() {
        let event = tokio::select! {
            biased;
            event = events.recv() => event.unwrap_or(Event::Stop),
            () = pacer.until(wake_at) => Event::Due,
        };
        dispatch.apply(clock::now(), event, &mut out);
        // An arrival that is already due is not waited for: without this, a plan beyond the machine would starve it.
        coop::consume_budget().await;
    }
}

#[cfg(test)]
mod tests;
