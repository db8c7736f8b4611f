//! Workloads and loads.

use std::num::NonZeroU32;

use super::reader::{Checker, Entry, Section};
use super::suggest::did_you_mean;
use super::{Names, Sections, vocabulary};
use crate::config::origin::{Literal, Origin};
use crate::config::redact;
use crate::config::sections::{Load, Pace, Rate, Workload};
use crate::domain::slo::Slo;

/// Longest input and output. The largest context windows are a million tokens.
const MAX_TOKENS: u64 = 1_000_000;

/// Highest rate, in requests per second: ten times what one machine's client can send.
const MAX_RATE: f64 = 100_000.0;

/// Most workers of a closed loop, each of which has a connection: there are no more ports.
const MAX_CONCURRENCY: u64 = 65_536;

/// One workload.
pub(super) fn workload(checker: &mut Checker<'_>, section: &Section<'_>) -> Option<Workload> {
    let input_tokens = checker.whole_or(section, "input_tokens", 1..=MAX_TOKENS, 256);
    let output_tokens = checker.whole_or(section, "output_tokens", 1..=MAX_TOKENS, 100);
    let seed = checker.whole_or(section, "seed", 0..=u64::MAX, 1000);
    checker.close(section, &vocabulary::WORKLOAD);
    Some(Workload { input_tokens: nonzero(input_tokens?)?, output_tokens: nonzero(output_tokens?)?, seed: seed? })
}

/// Every load.
pub(super) fn loads(checker: &mut Checker<'_>, root: &Section<'_>, names: &Names) -> Sections<Load> {
    Sections::read(checker, root, "loads", |checker, name, section| load(checker, name, section, names))
}

fn load(checker: &mut Checker<'_>, name: &str, section: &Section<'_>, names: &Names) -> Option<Load> {
    if let Some(meant) = stray(name, section, names) {
        // Only variables or flags speak of this load, and it is not whole: it is a slip, not a load.
        let help = format!(
            "did you mean loads.{meant}, as in {}?",
            section.origin.named(&section.path.child("rate")).replace(&name.to_uppercase(), &meant.to_uppercase(),)
        );
        checker.absent(section, &section.path, format!("there is no load {}", redact::quoted(name)), help);
        return None;
    }
    let target = reference(checker, section, "target", &names.targets);
    let workload = reference(checker, section, "workload", &names.workloads);
    let pace = pace(checker, section);
    checker.close(section, &vocabulary::LOAD);
    Some(Load {
        target: target?,
        workload: workload?,
        pace: pace?,
        warmup_requests: 0,
        slo: Slo::default(),
        grace: Load::GRACE,
    })
}

/// The load that was meant by one that no file has and that lacks a target or a workload.
fn stray<'a>(name: &str, section: &Section<'_>, names: &'a Names) -> Option<&'a str> {
    let whole = section.table.contains_key("target") && section.table.contains_key("workload");
    if whole || !matches!(section.origin, Origin::Environment(_) | Origin::Flag(_)) {
        return None;
    }
    did_you_mean(name, names.loads.iter().map(String::as_str).filter(|other| *other != name))
}

/// The name of a target or workload that exists.
fn reference(checker: &mut Checker<'_>, section: &Section<'_>, key: &'static str, names: &[String]) -> Option<String> {
    let first = names.first().map_or("NAME", String::as_str);
    let Some(entry) = checker.entry(section, key) else {
        if checker.is_misspelt(section, &vocabulary::LOAD, key) {
            return None;
        }
        let path = section.path.child(key);
        let written = section.origin.written(&path, &Literal::text(first));
        checker.absent(section, &path, "is missing", format!("write `{written}`{}", others(names)));
        return None;
    };
    let name = checker.filled_text(&entry, first)?;
    if names.iter().any(|known| known == name) {
        checker.keep(&entry, format!("\"{name}\""));
        return Some(name.to_owned());
    }
    let help = match did_you_mean(name, names.iter().map(String::as_str)) {
        Some(meant) => {
            let written = entry.written(&Literal::text(meant));
            format!("did you mean `{written}`?")
        }
        None if names.is_empty() => format!("add [{key}s.{}]", redact::plain(name)),
        None => format!("there is {}", listed(names)),
    };
    checker.dangling(&entry, format!("there is no {key} {}", redact::quoted(name)), help);
    None
}

fn others(names: &[String]) -> String {
    if names.len() > 1 { format!("; there is {}", listed(names)) } else { String::new() }
}

fn listed(names: &[String]) -> String {
    let names: Vec<_> = names.iter().map(|name| redact::plain(name)).collect();
    names.join(", ")
}

/// A rate or a concurrency.
fn pace(checker: &mut Checker<'_>, section: &Section<'_>) -> Option<Pace> {
    let rate = checker.entry(section, "rate");
    let concurrency = checker.entry(section, "concurrency");
    match (rate, concurrency) {
        (Some(rate), None) => self::rate(checker, &rate).map(Rate::of).map(Pace::Rate),
        (None, Some(concurrency)) => {
            nonzero(checker.whole(&concurrency, 1..=MAX_CONCURRENCY, 8)?).map(Pace::Concurrency)
        }
        (Some(rate), Some(concurrency)) => both(checker, section, &rate, &concurrency),
        (None, None) => {
            if ["rate", "concurrency"].iter().any(|key| checker.is_misspelt(section, &vocabulary::LOAD, key)) {
                return None;
            }
            let written =
                |key, value: &str| section.origin.written(&section.path.child(key), &Literal::Bare(value.to_owned()));
            let help = format!(
                "write `{}` for an open loop (requests per second) or `{}` for a closed one (workers)",
                written("rate", "3.5"),
                written("concurrency", "8")
            );
            checker.absent(section, &section.path, "has neither rate nor concurrency", help);
            None
        }
    }
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

/// Both are there: said once, at the one that was written later.
fn both(checker: &mut Checker<'_>, section: &Section<'_>, rate: &Entry<'_>, concurrency: &Entry<'_>) -> Option<Pace> {
    // Each may be wrong in itself, too.
    self::rate(checker, rate);
    checker.whole(concurrency, 1..=MAX_CONCURRENCY, 8);
    let (first, second) = if rate.origin <= concurrency.origin { (rate, concurrency) } else { (concurrency, rate) };
    let what = format!("has rate and concurrency: {} is set by {}", first.path.last(), first.origin);
    let help = "remove one: rate is an open loop, which sends on time whatever the gateway does; concurrency is a closed \
                loop, which waits for each answer";
    let entry = Entry { path: section.path.clone(), origin: second.origin.clone(), value: second.value };
    checker.wrong(&entry, what, help)
}

fn nonzero(number: u64) -> Option<NonZeroU32> {
    u32::try_from(number).ok().and_then(NonZeroU32::new)
}
