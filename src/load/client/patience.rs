//! How long a gateway asks to be left alone: `Retry-After`, in seconds or as a date (RFC 9110, section 10.2.3).
//!
//! Gateways of every age send it, so what is no such value is ignored rather than guessed at, and a wait is never longer than
//! [`LONGEST`]: a gateway (or a clock) that is wrong must not silence a load for a day. A date is held against our wall clock: one
//! that is wrong by a minute makes the wait wrong by a minute, within the same limit.

use std::time::{Duration, SystemTime};

/// The longest wait that is granted. Quotas by the minute are over long before; with those by the day an attempt an hour is
/// no burden.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// The wait that the value of a `Retry-After` asks for, at most [`LONGEST`].
///
/// `None` when it asks for none: 0 seconds, a date that is over, or anything that is neither.
pub(super) fn retry_after(value: &[u8], now: SystemTime) -> Option<Duration> {
    let value = value.trim_ascii();
    let wait = if !value.is_empty() && value.iter().all(u8::is_ascii_digit) {
        let digits = str::from_utf8(value).ok()?;
        // More digits than a number can have are still a number.
        Duration::from_secs(digits.parse().unwrap_or(u64::MAX))
    } else {
        let date = httpdate::parse_http_date(str::from_utf8(value).ok()?).ok()?;
        date.duration_since(now).ok()?
    };
    (!wait.is_zero()).then(|| wait.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    /// Sun, 06 Nov 1994 08:49:37 GMT, the example of the RFC.
    const NOW: u64 = 784_111_777;

    fn wait(value: &str) -> Option<u64> {
        let wait = retry_after(value.as_bytes(), UNIX_EPOCH + Duration::from_secs(NOW));
        wait.map(|wait| wait.as_secs())
    }

    #[test]
    fn seconds_and_the_three_forms_of_a_date_are_read() {
        for (value, expected) in [
            ("7", 7),
            (" 120 ", 120),
            ("007", 7),
            ("Sun, 06 Nov 1994 08:49:44 GMT", 7),
            ("Sunday, 06-Nov-94 08:49:44 GMT", 7),
            ("Sun Nov  6 08:49:44 1994", 7),
        ] {
            assert_eq!(wait(value), Some(expected), "{value}");
        }
    }

    #[test]
    fn no_gateway_silences_a_load_for_longer_than_an_hour() {
        for value in ["3601", "99999999999", "99999999999999999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"] {
            assert_eq!(wait(value), Some(3600), "{value}");
        }
    }

    #[test]
    fn what_asks_for_nothing_and_what_is_no_time_is_ignored() {
        let past = ["0", "Sun, 06 Nov 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49:30 GMT"];
        let garbage = ["", " ", "-1", "+1", "1.5", "1e3", "soon", "7 s", "٧", "Sun, 99 Nov 1994 08:49:44 GMT"];
        for value in past.into_iter().chain(garbage) {
            assert_eq!(wait(value), None, "{value}");
        }
        assert_eq!(retry_after(b"\xff\xfe", UNIX_EPOCH), None);
        assert_eq!(retry_after(&[b' '; 100_000], UNIX_EPOCH), None);
    }
}
