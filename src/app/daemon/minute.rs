//! When a minute ends.
//!
//! Minutes are counted by the monotonic clock, so that each has 60 seconds whatever is done to the wall clock, and named by the
//! wall clock, so that people find them. They begin at whole minutes of the wall clock and follow it as it is slewed; when it is
//! set to another time, the minutes go on as they were and are named by the new time.

use std::time::Duration;

use tokio::time::Instant;

use crate::measure::window::MINUTE;

/// A wall clock that is off by more was set, not slewed.
const SET: f64 = 1.0;

/// The minutes since the start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Minutes {
    ends_at: Instant,
    /// What the wall clock should say then, in Unix seconds.
    ends_unix: f64,
    /// The open one is shorter than a minute: the first.
    is_short: bool,
}

/// A minute that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// When, in Unix seconds.
    pub(super) at_unix: u64,
    /// It was shorter than a minute.
    pub(super) is_short: bool,
}

impl Minutes {
    /// Begins with what is left of the minute that it is.
    pub(super) fn starting(now: Instant, unix: Duration) -> Self {
        let minute = MINUTE.as_secs();
        let passed = unix - Duration::from_secs(unix.as_secs() / minute * minute);
        let ends_unix = (unix.as_secs() / minute + 1) * minute;
        Self { ends_at: now + (MINUTE - passed), ends_unix: seconds(ends_unix), is_short: !passed.is_zero() }
    }

    /// The minute that has ended by `now`, if one has. To be called until there is none: after a stall several have.
    pub(super) fn close(&mut self, now: Instant, unix: Duration) -> Option<Ended> {
        if now < self.ends_at {
            return None;
        }
        // What the wall clock said at the end, seen from now.
        let end = unix.as_secs_f64() - (now - self.ends_at).as_secs_f64();
        let off = end - self.ends_unix;
        self.ends_at += MINUTE;
        if off.abs() < SET {
            // Slewed: the next minute ends when the wall clock says so.
            let correction = Duration::from_secs_f64(off.abs());
            self.ends_at = if off > 0.0 { self.ends_at - correction } else { self.ends_at + correction };
        } else {
            self.ends_unix = end.round();
        }
        let ended = Ended { at_unix: whole(self.ends_unix), is_short: self.is_short };
        self.ends_unix += MINUTE.as_secs_f64();
        self.is_short = false;
        Some(ended)
    }

    /// Ends the open minute before its time.
    pub(super) fn cut_short(self, unix: Duration) -> Ended {
        Ended { at_unix: unix.as_secs(), is_short: true }
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 are far below 2^53")]
fn seconds(unix: u64) -> f64 {
    unix as f64
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates; before 1970 is 0")]
fn whole(unix: f64) -> u64 {
    unix as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[test]
    fn minutes_end_with_those_of_the_wall() {
        let start = clock::now();
        let mut minutes = Minutes::starting(start, secs(600 + 13));
        assert_eq!(minutes.ends_at, start + secs(47));
        assert_eq!(minutes.close(start + secs(46), secs(659)), None);
        assert_eq!(minutes.close(start + secs(47), secs(660)), Some(Ended { at_unix: 660, is_short: true }));
        assert_eq!(minutes.close(start + secs(107), secs(720)), Some(Ended { at_unix: 720, is_short: false }));
    }

    #[test]
    fn a_stall_ends_several_minutes() {
        let start = clock::now();
        let mut minutes = Minutes::starting(start, secs(600));
        let (now, unix) = (start + secs(200), secs(800));
        let ended: Vec<_> = std::iter::from_fn(|| minutes.close(now, unix)).map(|ended| ended.at_unix).collect();
        assert_eq!(ended, [660, 720, 780]);
    }

    #[test]
    fn a_slewed_clock_is_followed() {
        let start = clock::now();
        let mut minutes = Minutes::starting(start, secs(600));
        let millis = Duration::from_millis;
        // The wall is 30 ms ahead after a minute, then 60.
        assert_eq!(minutes.close(start + secs(60), millis(660_030)).unwrap().at_unix, 660);
        assert!(minutes.ends_at.abs_diff(start + millis(119_970)) < millis(1));
        assert_eq!(minutes.close(start + millis(119_970), secs(720)).unwrap().at_unix, 720);
        assert!(minutes.ends_at.abs_diff(start + millis(179_970)) < millis(1));
    }

    #[test]
    fn a_clock_that_was_set_names_the_minutes_and_does_not_stretch_them() {
        for jump in [-86_400_i64, -30, -2, 2, 3600, 86_400 * 365] {
            let start = clock::now();
            let mut minutes = Minutes::starting(start, secs(10_000_000 * 60));
            let wall = |mono: u64| secs((600_000_000 + i64::try_from(mono).unwrap() + jump).try_into().unwrap());
            let first = minutes.close(start + secs(60), wall(60)).unwrap();
            assert_eq!(first.at_unix, wall(60).as_secs(), "{jump}");
            assert_eq!(minutes.ends_at, start + secs(120));
            let second = minutes.close(start + secs(120), wall(120)).unwrap();
            assert_eq!(second.at_unix - first.at_unix, 60);
        }
    }

    trait AbsDiff {
        fn abs_diff(self, other: Self) -> Duration;
    }

    impl AbsDiff for Instant {
        fn abs_diff(self, other: Self) -> Duration {
            self.saturating_duration_since(other).max(other.saturating_duration_since(self))
        }
    }
}
