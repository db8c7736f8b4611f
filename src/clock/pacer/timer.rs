//! A timerfd in tokio's reactor. Linux only.

use std::hint;
use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::read;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::task;
use tokio::time::Instant;

use super::{EARLY, SPIN, early};
use crate::clock;

/// How often the two clocks are read side by side, to find a pair between which this thread was not taken off its core.
const ANCHOR_READINGS: usize = 8;

/// A one-shot timer on the monotonic clock.
#[derive(Debug)]
pub(super) struct Timer {
    fd: AsyncFd<OwnedFd>,
    /// One moment, as tokio's instant and as the kernel's monotonic time. An `Instant` does not show its number, and a timer
    /// that is armed relative to now is late by whatever comes between reading the clock and arming it.
    anchor: (Instant, Duration),
}

impl Timer {
    pub(super) fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Self { fd: registered(fd)?, anchor: anchor() })
    }

    /// Returns at `instant`, or at once if that has passed.
    pub(super) async fn until(&mut self, instant: Instant) -> io::Result<()> {
        let target = self.monotonic(instant);
        let wait = target.saturating_sub(monotonic_now());
        if wait > EARLY {
            self.expire_at(target - early(wait)).await?;
        }
        loop {
            let left = target.saturating_sub(monotonic_now());
            if left.is_zero() {
                return Ok(());
            } else if left > SPIN {
                task::yield_now().await;
            } else {
                hint::spin_loop();
            }
        }
    }

    async fn expire_at(&self, at: Duration) -> io::Result<()> {
        // Arming also takes back an expiry that nobody has read.
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: timespec(at)? };
        timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::ABSTIME, &spec)?;
        loop {
            // Readiness may be left over from a wait that was given up; only a read tells.
            let mut ready = self.fd.readable().await?;
            let expired = ready.try_io(|fd| Ok(read(fd.get_ref(), &mut [0; 8])?));
            match expired {
                Ok(result) => return result.map(drop),
                Err(_not_yet) => {}
            }
        }
    }

    fn monotonic(&self, instant: Instant) -> Duration {
        let (anchor, monotonic) = self.anchor;
        if instant >= anchor { monotonic + (instant - anchor) } else { monotonic.saturating_sub(anchor - instant) }
    }
}

#[expect(unsafe_code, reason = "tokio registers a descriptor with its reactor only through an unsafe function")]
fn registered(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: `fd` owns an open descriptor, always names the same one, and is dropped, thereby closed, only by the `AsyncFd`
    // that takes it here. That one stays in a private field of which only shared references are given out.
    Ok(unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?)
}

/// The pair of readings that lie closest together.
fn anchor() -> (Instant, Duration) {
    let reading = || {
        let before = monotonic_now();
        let instant = clock::now();
        (monotonic_now() - before, instant, before)
    };
    let first = reading();
    let closest = (1..ANCHOR_READINGS).map(|_| reading()).fold(first, |a, b| if b.0 < a.0 { b } else { a });
    (closest.1, closest.2)
}

fn monotonic_now() -> Duration {
    // The monotonic clock starts at boot: it is neither negative nor does it end.
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}

fn timespec(at: Duration) -> io::Result<Timespec> {
    Timespec::try_from(at).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}
