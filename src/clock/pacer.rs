//! Waits to an absolute instant, finer than tokio's timer, which rounds up to a whole millisecond.
//!
//! # How
//! A timerfd in tokio's own reactor wakes the task a little before the instant; the rest is waited out awake. Awake does not
//! mean blocked: until [`SPIN`] before the instant the task yields, and each yield is a trip through the reactor in which the
//! streams of the same thread are read and stamped. Only the last stretch, shorter than such a trip, is a spin.
//!
//! Weighed against an own thread with `clock_nanosleep` and a channel: the channel's wake-up alone costs more than the
//! timerfd is late, and the thread would need a core. `benches/pacer.rs` has the figures.
//!
//! # Which clock
//! Chosen by who builds it, not detected: [`Pacer::precise`] follows the machine's clock, [`Pacer::simulated`] follows tokio's,
//! paused or not. tokio does not say whether its clock is paused, and a guess from two readings would be wrong in the one
//! case that matters, a test that pauses later. A precise pacer under a paused clock waits real time; it never hangs,
//! since it reads the monotonic clock itself.
//!
//! # Invariants
//! * Never returns before the instant (of its own clock).
//! * Never blocks the thread for longer than [`SPIN`] at a time.
//! * Does not fail: where there is no timerfd, or the kernel refuses one, tokio's timer stands in.
//! * Dropping [`Pacer::until`] half way is safe; the next call arms the timer anew.
//!
//! A suspended machine: Linux's monotonic clock stands still meanwhile, so a wait is simply that much longer on the wall.

#[cfg(target_os = "linux")]
mod timer;

use std::time::Duration;

use tokio::time::{self, Instant};

/// How long before the instant the timer wakes us, at least: what a timerfd's wake-up takes to reach a task of a busy thread.
pub const EARLY: Duration = Duration::from_micros(50);

/// The same, at most: a core that has slept for long wakes slowly. At 20 waits a second a fixed 50 us left the median send
/// 31 us late on a virtual machine.
pub const EARLIEST: Duration = Duration::from_micros(200);

/// Between the two it is this part of the wait: up to 1000 waits a second, a twentieth of one core goes into being awake.
const AWAKE_PART: u32 = 20;

/// The longest time for which the thread is held without a yield.
pub const SPIN: Duration = Duration::from_micros(5);

/// One waiter's timer. Belongs to the runtime in which it was made.
#[derive(Debug)]
pub struct Pacer {
    #[cfg(target_os = "linux")]
    timer: Option<timer::Timer>,
}

impl Pacer {
    /// Follows the machine's monotonic clock to within microseconds; to tokio's millisecond where there is no timerfd.
    ///
    /// # Panics
    /// Outside a tokio runtime that drives I/O.
    #[must_use]
    pub fn precise() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            timer: timer::Timer::new()
                .inspect_err(|error| tracing::warn!(%error, "no timerfd: sends will be up to 2 ms late"))
                .ok(),
        }
    }

    /// Follows tokio's clock, to its millisecond: under a paused clock no real time passes.
    #[must_use]
    pub fn simulated() -> Self {
        Self {
            #[cfg(target_os = "linux")]
            timer: None,
        }
    }

    /// Whether this is finer than tokio's millisecond.
    #[must_use]
    pub fn is_precise(&self) -> bool {
        #[cfg(target_os = "linux")]
        return self.timer.is_some();
        #[cfg(not(target_os = "linux"))]
        false
    }

    /// Returns at `instant`, or at once if that has passed.
    pub async fn until(&mut self, instant: Instant) {
        #[cfg(target_os = "linux")]
        if let Some(timer) = &mut self.timer {
            match timer.until(instant).await {
                Ok(()) => return,
                Err(error) => tracing::debug!(%error, "timerfd refused: this wait is tokio's"),
            }
        }
        time::sleep_until(instant).await;
    }
}

/// How long before its end a wait of this length is waited out awake.
#[cfg(target_os = "linux")]
fn early(wait: Duration) -> Duration {
    (wait / AWAKE_PART).clamp(EARLY, EARLIEST)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[tokio::test(start_paused = true)]
    async fn a_simulated_pacer_follows_the_paused_clock() {
        let (start, mut pacer) = (clock::now(), Pacer::simulated());
        for second in 1..=86_400 {
            let instant = start + Duration::from_secs(second);
            pacer.until(instant).await;
            assert_eq!(clock::now(), instant);
        }
        assert!(!pacer.is_precise());
    }

    #[tokio::test]
    async fn it_never_returns_early() {
        let mut pacer = Pacer::precise();
        assert_eq!(pacer.is_precise(), cfg!(target_os = "linux"));
        for micros in [0, 1, 3, 20, 49, 50, 51, 200, 999, 1500] {
            let instant = clock::now() + Duration::from_micros(micros);
            pacer.until(instant).await;
            assert!(clock::now() >= instant, "{micros} us");
        }
    }

    #[tokio::test]
    async fn an_instant_that_has_passed_is_not_waited_for() {
        let begun = clock::now();
        let mut pacer = Pacer::precise();
        // As many waits as would take hours, were each of them to wait.
        for _ in 0..10_000 {
            pacer.until(begun).await;
        }
    }

    #[tokio::test]
    async fn a_wait_that_was_given_up_leaves_nothing_behind() {
        let mut pacer = Pacer::precise();
        let far = clock::now() + Duration::from_secs(3600);
        tokio::select! {
            biased;
            () = pacer.until(far) => unreachable!("an hour has not passed"),
            () = time::sleep(Duration::from_millis(2)) => {}
        }
        // Expires unseen: the tick of this one must not end the next wait.
        tokio::select! {
            biased;
            () = pacer.until(clock::now() + Duration::from_millis(1)) => {}
            () = tokio::task::yield_now() => {}
        }
        let instant = clock::now() + Duration::from_millis(5);
        pacer.until(instant).await;
        assert!(clock::now() >= instant);
    }

    #[tokio::test]
    async fn others_run_while_it_waits_awake() {
        let mut pacer = Pacer::precise();
        // Once is enough, and a thread that is taken off its core finds the instant passed: so it may try often.
        for _ in 0..1000 {
            let had_a_turn = tokio::select! {
                biased;
                () = pacer.until(clock::now() + EARLY) => false,
                () = std::future::ready(()) => true,
            };
            if had_a_turn {
                return;
            }
        }
        unreachable!("it held the thread a thousand times");
    }

    #[tokio::test(start_paused = true)]
    async fn a_precise_pacer_does_not_hang_under_a_paused_clock() {
        let mut pacer = Pacer::precise();
        pacer.until(clock::now() + Duration::from_micros(30)).await;
    }
}
