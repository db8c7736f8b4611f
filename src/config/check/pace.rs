//! How a load is paced: an open loop with its arrivals, or the workers of a closed one.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::reader::{Checker, Entry, Section};
use super::vocabulary;
use crate::config::origin::{Literal, Origin};
use crate::config::sections::{ArrivalProcess, Pace, Rate};

/// Highest rate, in requests per second: ten times what one machine's client can send.
const MAX_RATE: f64 = 100_000.0;

/// Most workers of a closed loop, each of which has a connection: there are no more ports.
const MAX_CONCURRENCY: u64 = 65_536;

/// The shapes that are taken. At a thousandth nearly all requests come in one burst, at a million gaps vary by a
/// thousandth; beyond, the generator runs out of digits.
const BURSTINESS: RangeInclusive<f64> = 0.001..=1e6;

/// How late a request may be and still be sent. What leaves ten seconds late is no longer the load that was planned.
const LATE_CAP: RangeInclusive<Duration> = Duration::from_nanos(1)..=Duration::from_secs(10);

/// What only an open loop has, and why a closed one has not.
const OPEN_ONLY: [(&str, &str); 4] = [
    ("arrival", "a closed loop sends when a worker is free, not at instants that were planned"),
    ("burstiness", "a closed loop sends when a worker is free, not at instants that were planned"),
    ("max_in_flight", "a closed loop never has more under way than its workers"),
    ("late_cap", "a closed loop sends when a worker is free, so nothing is late"),
];

/// The words for arrivals.
const ARRIVALS: [(&str, Gaps); 3] = [("poisson", Gaps::Poisson), ("constant", Gaps::Constant), ("gamma", Gaps::Gamma)];

/// An arrival process without its parameter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gaps {
    Poisson,
    Constant,
    Gamma,
}

/// A rate with what belongs to it, or a concurrency.
pub(super) fn pace(checker: &mut Checker<'_>, section: &Section<'_>) -> Option<Pace> {
    let rate = checker.entry(section, "rate");
    let concurrency = checker.entry(section, "concurrency");
    match (rate, concurrency) {
        (Some(rate), None) => {
            let per_second = self::rate(checker, &rate);
            open(checker, section, per_second).map(Pace::Rate)
        }
        (None, Some(concurrency)) => closed(checker, section, &concurrency).map(Pace::Concurrency),
        (Some(rate), Some(concurrency)) => both(checker, section, &rate, &concurrency),
        (None, None) => {
            open(checker, section, None);
            neither(checker, section);
            None
        }
    }
}

/// An open loop. Without a rate, which is reported elsewhere, what belongs to it is still read.
fn open(checker: &mut Checker<'_>, section: &Section<'_>, per_second: Option<f64>) -> Option<Rate> {
    let arrival = arrival(checker, section);
    let most = u64::from(Rate::MOST_IN_FLIGHT.get());
    let max_in_flight = match (checker.entry(section, "max_in_flight"), per_second) {
        (Some(entry), _) => checker.whole(&entry, 1..=most, 64),
        (None, Some(per_second)) => {
            let default = Rate::default_max_in_flight(per_second);
            checker.keep_default(section, "max_in_flight", default.to_string());
            Some(default.get().into())
        }
        (None, None) => None,
    };
    let late_cap = checker.duration_or(section, "late_cap", Rate::LATE_CAP, &LATE_CAP);
    Some(Rate {
        per_second: per_second?,
        arrival: arrival?,
        max_in_flight: nonzero(max_in_flight?)?,
        late_cap: late_cap?,
    })
}

fn rate(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<f64> {
    let rate = checker.number(entry, "a number", 3.5)?;
    if rate > 0.0 && rate <= MAX_RATE {
        checker.keep(entry, rate.to_string());
        return Some(rate);
    }
    let help = if rate > MAX_RATE {
        format!("write `{}` or less", entry.written(&Literal::bare("100000")))
    } else {
        "write a rate above 0, or remove the load".to_owned()
    };
    checker.wrong(entry, format!("is {rate}, wants requests per second: above 0 and at most 100_000"), help)
}

/// How the gaps vary. A burstiness without gamma is refused rather than ignored: who wrote it wants bursts.
fn arrival(checker: &mut Checker<'_>, section: &Section<'_>) -> Option<ArrivalProcess> {
    let gaps = checker.choice_or(section, "arrival", &ARRIVALS, Gaps::Poisson);
    let entry = checker.entry(section, "burstiness");
    let arrival = match (gaps, entry) {
        (Some(Gaps::Poisson), None) => ArrivalProcess::Poisson,
        (Some(Gaps::Constant), None) => ArrivalProcess::Constant,
        (Some(Gaps::Gamma), Some(entry)) => ArrivalProcess::Gamma { burstiness: burstiness(checker, &entry)? },
        (Some(Gaps::Gamma), None) => return shapeless(checker, section),
        (Some(Gaps::Poisson), Some(entry)) => {
            return needless(checker, section, &entry, "poisson", "whose burstiness is always 1");
        }
        (Some(Gaps::Constant), Some(entry)) => {
            return needless(checker, section, &entry, "constant", "whose gaps are all the same");
        }
        // What it belongs to is not known, but it may be wrong in itself.
        (None, entry) => {
            entry.and_then(|entry| burstiness(checker, &entry));
            return None;
        }
    };
    Some(arrival)
}

fn burstiness(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<f64> {
    let wants = "a number from 0.001 (bursts) to 1_000_000 (even gaps); 1 is poisson";
    let number = checker.number(entry, wants, 0.5)?;
    if BURSTINESS.contains(&number) {
        checker.keep(entry, number.to_string());
        return Some(number);
    }
    let help = format!("write `{}`, say", entry.written(&Literal::bare(0.5)));
    checker.wrong(entry, format!("is {number}, wants {wants}"), help)
}

/// Gamma without its shape.
fn shapeless(checker: &mut Checker<'_>, section: &Section<'_>) -> Option<ArrivalProcess> {
    if !checker.is_misspelt(section, &vocabulary::LOAD, "burstiness") {
        let path = section.path.child("burstiness");
        let written = section.origin.written(&path, &Literal::bare(0.5));
        let help = format!("write `{written}`: 1 is poisson, less comes in bursts, more is smoother");
        checker.absent(section, &path, "is missing: arrival gamma has no shape without it", help);
    }
    None
}

fn needless(
    checker: &mut Checker<'_>,
    section: &Section<'_>,
    entry: &Entry<'_>,
    arrival: &str,
    why: &str,
) -> Option<ArrivalProcess> {
    let of = checker.entry(section, "arrival").map_or(Origin::Default, |entry| entry.origin);
    let what = format!("belongs to arrival gamma, not to {arrival} ({of}), {why}");
    let gamma = entry.origin.written(&section.path.child("arrival"), &Literal::text("gamma"));
    checker.wrong(entry, what, format!("remove it, or write `{gamma}`"))
}

/// A closed loop. Each setting of an open one is refused rather than ignored.
fn closed(checker: &mut Checker<'_>, section: &Section<'_>, concurrency: &Entry<'_>) -> Option<NonZeroU32> {
    let workers = checker.whole(concurrency, 1..=MAX_CONCURRENCY, 8);
    let mut whole = true;
    for (key, why) in OPEN_ONLY {
        let Some(entry) = checker.entry(section, key) else { continue };
        let help = format!("remove it, or give the load a rate in place of concurrency ({})", concurrency.origin);
        whole &= checker.wrong::<()>(&entry, format!("belongs to a load with a rate: {why}"), help).is_some();
    }
    nonzero(workers?).filter(|_| whole)
}

/// Both are there: said once, at the one that was written later.
fn both(checker: &mut Checker<'_>, section: &Section<'_>, rate: &Entry<'_>, concurrency: &Entry<'_>) -> Option<Pace> {
    // Each may be wrong in itself, too, and what belongs to a rate as well.
    let per_second = self::rate(checker, rate);
    open(checker, section, per_second);
    checker.whole(concurrency, 1..=MAX_CONCURRENCY, 8);
    let (first, second) = if rate.origin <= concurrency.origin { (rate, concurrency) } else { (concurrency, rate) };
    let what = format!("has rate and concurrency: {} is set by {}", first.path.last(), first.origin);
    let help = "remove one: rate is an open loop, which sends on time whatever the gateway does; concurrency is a closed \
                loop, which waits for each answer";
    let entry = Entry { path: section.path.clone(), origin: second.origin.clone(), value: second.value };
    checker.wrong(&entry, what, help)
}

fn neither(checker: &mut Checker<'_>, section: &Section<'_>) {
    if ["rate", "concurrency"].iter().any(|key| checker.is_misspelt(section, &vocabulary::LOAD, key)) {
        return;
    }
    let written = |key, value: &str| section.origin.written(&section.path.child(key), &Literal::Bare(value.to_owned()));
    let help = format!(
        "write `{}` for an open loop (requests per second) or `{}` for a closed one (workers)",
        written("rate", "3.5"),
        written("concurrency", "8")
    );
    checker.absent(section, &section.path, "has neither rate nor concurrency", help);
}

fn nonzero(number: u64) -> Option<NonZeroU32> {
    u32::try_from(number).ok().and_then(NonZeroU32::new)
}
