//! Loads.

use std::ops::RangeInclusive;
use std::time::Duration;

use super::reader::{Checker, Section};
use super::suggest::did_you_mean;
use super::value::WAIT;
use super::{Names, Sections, pace, vocabulary};
use crate::config::origin::{Literal, Origin};
use crate::config::redact;
use crate::config::sections::Load;
use crate::domain::slo::Slo;

/// Most warm-up requests: at the rates that are usual, a million take days.
const MAX_WARMUP: u64 = 1_000_000;

/// How long a load may go on after its end. Unlike other durations it may be none: what is under way is broken off then.
const GRACE: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60 * 60);

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
    let pace = pace::pace(checker, section);
    let warmup_requests = checker.whole_or(section, "warmup_requests", 0..=MAX_WARMUP, 0);
    let slo = slo(checker, section);
    let grace = checker.duration_or(section, "grace", Load::GRACE, &GRACE);
    checker.close(section, &vocabulary::LOAD);
    Some(Load {
        target: target?,
        workload: workload?,
        pace: pace?,
        warmup_requests: u32::try_from(warmup_requests?).ok()?,
        slo: slo?,
        grace: grace?,
    })
}

/// The objectives. There is no default: what is good enough is for the user to say.
fn slo(checker: &mut Checker<'_>, load: &Section<'_>) -> Option<Slo> {
    let section = checker.inner(load, "slo", &Literal::table("ttft", Literal::text("500ms")))?;
    let mut limit = |key, example| match checker.entry(&section, key) {
        Some(entry) => checker.duration(&entry, Duration::from_millis(example), &WAIT).map(Some),
        None => Some(None),
    };
    let (ttft, tpot, e2el) = (limit("ttft", 500), limit("tpot", 50), limit("e2el", 10_000));
    checker.close(&section, &vocabulary::SLO);
    Some(Slo { ttft: ttft?, tpot: tpot?, e2el: e2el? })
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
