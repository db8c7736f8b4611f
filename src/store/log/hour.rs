//! The hour that a segment is named after: `2026-12-01T14`, in UTC, so that names sort as time does and clocks that go
//! back in autumn change nothing.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const SECS: i64 = 3600;
/// The first and the last hour whose names have four digits of a year and sort: 0000-01-01T00 and 9999-12-31T23. Times
/// outside, which only a broken clock gives, are put there.
const FIRST: i64 = -17_268_672;
const LAST: i64 = 70_389_527;

/// Hours since 1970-01-01T00 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Hour(i64);

impl Hour {
    /// The last that has a name.
    pub(super) const LAST: Self = Self(LAST);

    /// The hour in which `secs` lies.
    pub(super) fn of(secs: i64) -> Self {
        Self(secs.div_euclid(SECS).clamp(FIRST, LAST))
    }

    /// The last second in it.
    pub(super) fn last_sec(self) -> i64 {
        self.0 * SECS + (SECS - 1)
    }

    /// The hour of a segment's name without its extension. Only what [`Hour`] displays is read.
    pub(super) fn parse(name: &str) -> Option<Self> {
        let digits = |from: usize, to: usize| {
            let digits = name.get(from..to)?;
            digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse::<i64>().ok()).flatten()
        };
        let (year, month, day, hour) = (digits(0, 4)?, digits(5, 7)?, digits(8, 10)?, digits(11, 13)?);
        let read = Self(days(year, month, day) * 24 + hour);
        // Writing it again is the check of the ranges and of what stands between the digits.
        (read.to_string() == name).then_some(read)
    }
}

impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0.div_euclid(24));
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}", self.0.rem_euclid(24))
    }
}

/// Seconds since 1970, rounded down.
pub(super) fn unix_secs(at: SystemTime) -> i64 {
    let whole = |gap: Duration| i64::try_from(gap.as_secs()).unwrap_or(i64::MAX);
    match at.duration_since(UNIX_EPOCH) {
        Ok(after) => whole(after),
        Err(before) => {
            let before = before.duration();
            -whole(before) - i64::from(before.subsec_nanos() > 0)
        }
    }
}

/// The other way; `None` beyond what the system can represent. Linux can represent all of it.
pub(super) fn system_time(secs: i64) -> Option<SystemTime> {
    let gap = Duration::from_secs(secs.unsigned_abs());
    if secs < 0 { UNIX_EPOCH.checked_sub(gap) } else { UNIX_EPOCH.checked_add(gap) }
}

/// Days since 1970-01-01 in the Gregorian calendar. Years begin in March, so that the leap day is the last of its year;
/// 400 years have 146,097 days, and 719,468 lie between 0000-03-01 and 1970-01-01. Algorithm: Howard Hinnant,
/// "chrono-Compatible Low-Level Date Algorithms", `days_from_civil`.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// The other way: year, month, day. `civil_from_days` of the same source.
fn date(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let (month, year) = ((shifted + 2) % 12 + 1, era * 400 + year_of_era);
    (if month <= 2 { year + 1 } else { year }, month, day_of_year - (153 * shifted + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_calendar() {
        // Seconds from `date -u -d … +%s`.
        for (secs, name) in [
            (0, "1970-01-01T00"),
            (-1, "1969-12-31T23"),
            (951_782_399, "2000-02-28T23"),
            (951_782_400, "2000-02-29T00"),
            (951_868_800, "2000-03-01T00"),
            (1_772_323_199, "2026-02-28T23"),
            (1_772_323_200, "2026-03-01T00"),
            (1_796_133_600, "2026-12-01T14"),
            (4_107_542_399, "2100-02-28T23"),
            (4_107_542_400, "2100-03-01T00"),
            (i64::MIN, "0000-01-01T00"),
            (i64::MAX, "9999-12-31T23"),
        ] {
            assert_eq!(Hour::of(secs).to_string(), name);
            assert_eq!(Hour::parse(name), Some(Hour::of(secs)));
        }
    }

    #[test]
    fn every_day_of_ten_thousand_years_follows_the_one_before() {
        let mut before = String::new();
        for hour in (FIRST..=LAST).step_by(24) {
            let name = Hour(hour).to_string();
            assert!(name > before && Hour::parse(&name) == Some(Hour(hour)), "{before} {name}");
            before = name;
        }
        assert!(Hour(FIRST - 1).to_string().starts_with('-') && Hour(LAST + 1).to_string() == "10000-01-01T00");
    }

    #[test]
    fn what_is_not_an_hour_is_none() {
        for name in
            ["", "2026-12-01", "2026-12-01T24", "2026-13-01T00", "2026-02-29T00", "2026-12-00T00", "+026-12-01T00"]
                .into_iter()
                .chain(["2026-12-01T140", "2026-12-01 14", "2026-12-01T1é", "２026-12-01T14", "2026-12-01T-1"])
        {
            assert_eq!(Hour::parse(name), None, "{name}");
        }
    }

    #[test]
    fn seconds_are_rounded_down_and_back_on_both_sides_of_1970() {
        for (at, secs) in [
            (UNIX_EPOCH + Duration::from_millis(1999), 1),
            (UNIX_EPOCH, 0),
            (UNIX_EPOCH - Duration::from_millis(1), -1),
            (UNIX_EPOCH - Duration::from_secs(1), -1),
        ] {
            assert_eq!(unix_secs(at), secs);
            assert!(system_time(secs).unwrap() <= at);
        }
        for secs in [i64::MIN + 1, -1, 0, i64::MAX] {
            assert_eq!(unix_secs(system_time(secs).unwrap()), secs);
        }
    }
}
