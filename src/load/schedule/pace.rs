//! Runs a schedule against the clock.

use std::cell::RefCell;

use tokio::sync::mpsc::Receiver;
use tokio::task::coop;

use super::{Event, Issue, Schedule};
use crate::clock;
use crate::clock::pacer::Pacer;

/// Hands out each arrival at its instant until the schedule is stopped, or until nobody is left who could say so.
///
/// `out` must not wait: a bounded channel's `try_send`, or a list of futures. What it cannot take it counts. `events` are
/// looked at before the clock, so an end that has been reported is known before the next arrival is decided on. The schedule
/// is borrowed only while an event is applied, so that others on the same thread may look at it.
pub async fn pace(
    schedule: &RefCell<Schedule>,
    pacer: &mut Pacer,
    events: &mut Receiver<Event>,
    mut out: impl FnMut(Issue),
) {
    loop {
        let wake_at = {
            let schedule = schedule.borrow();
            if schedule.is_stopped() {
                return;
            }
            schedule.wake_at()
        };
        let event = match wake_at {
            Some(wake_at) => tokio::select! {
                biased;
                event = events.recv() => event.unwrap_or(Event::Stop),
                () = pacer.until(wake_at) => Event::Due,
            },
            None => events.recv().await.unwrap_or(Event::Stop),
        };
        schedule.borrow_mut().apply(clock::now(), event, &mut out);
        // An arrival that is already due is not waited for: without this, a plan beyond the machine would starve it.
        coop::consume_budget().await;
    }
}

#[cfg(test)]
mod tests;
