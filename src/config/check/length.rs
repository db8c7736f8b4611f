//! Lengths: a number of tokens, or a table that says how it is drawn.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;

use config::{Map, Value, ValueKind};

use super::nonzero;
use super::reader::{Checker, Entry, Section};
use super::value::{described, integer};
use super::vocabulary::{self, Vocabulary};
use crate::config::origin::Literal;
use crate::config::sections::{Bounds, Length, Share};

/// Longest input and output. The largest context windows are a million tokens.
pub(super) const MAX_TOKENS: u64 = 1_000_000;

/// Most parts of a mixture.
const MAX_SHARES: usize = 100;

/// Widest log-normal: at 5 the middle two thirds span a factor of 20 000.
const SIGMA: RangeInclusive<f64> = 1e-6..=5.0;

/// A number of tokens, or how it is drawn.
pub(super) fn length(checker: &mut Checker<'_>, entry: &Entry<'_>, example: NonZeroU32) -> Option<Length> {
    if !matches!(entry.value.kind, ValueKind::Table(_)) {
        return checker.whole(entry, 1..=MAX_TOKENS, example.get().into()).and_then(nonzero).map(Length::Fixed);
    }
    let table = checker.table(entry, &Literal::table("uniform", Literal::bare("[128, 512]")))?;
    checker.close(&table, &vocabulary::LENGTH);
    one_of(checker, entry, &table, &vocabulary::LENGTH)
}

/// The one way to draw that a table holds.
fn one_of(
    checker: &mut Checker<'_>,
    entry: &Entry<'_>,
    table: &Section<'_>,
    vocabulary: &Vocabulary,
) -> Option<Length> {
    let ways = vocabulary.known.iter().filter(|key| **key != "weight");
    let mut found = ways.clone().filter_map(|key| checker.entry(table, key));
    match (found.next(), found.next()) {
        (Some(way), None) => match way.path.last() {
            "tokens" => checker.whole(&way, 1..=MAX_TOKENS, 256).and_then(nonzero).map(Length::Fixed),
            "uniform" => uniform(checker, &way),
            "normal" => normal(checker, &way),
            "log_normal" => log_normal(checker, &way),
            _ => mixture(checker, &way),
        },
        (None, _) => {
            let unknown = table.table.keys().any(|key| !vocabulary.known.contains(&key.as_str()));
            if unknown {
                return None;
            }
            let names: Vec<_> = ways.copied().collect();
            let help = format!("give {} one of {}", vocabulary.what, names.join(", "));
            checker.wrong(entry, "does not say how long", help)
        }
        (Some(one), Some(other)) => {
            let what = format!("has both {} and {}: a length is drawn in one way", one.path.last(), other.path.last());
            checker.wrong(entry, what, "remove one of them, or make a mixture of both")
        }
    }
}

/// `[least, most]`.
fn uniform(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<Length> {
    let help = format!("write `{}`", entry.written(&Literal::bare("[128, 512]")));
    let text = entry.as_text().filter(|_| entry.origin.is_text());
    let numbers: Option<Vec<u64>> = match (&entry.value.kind, text) {
        (ValueKind::Array(values), _) => values.iter().map(|value| u64::try_from(integer(&value.kind)?).ok()).collect(),
        (_, Some(text)) => {
            let inside = text.trim().strip_prefix('[').and_then(|text| text.strip_suffix(']'));
            inside.and_then(|inside| inside.split(',').map(|number| number.trim().parse().ok()).collect())
        }
        _ => None,
    };
    let Some([min, max]) = numbers.as_deref().and_then(|numbers| <[u64; 2]>::try_from(numbers).ok()) else {
        let wants = "two whole numbers: the least and the most tokens";
        return checker.wrong(entry, format!("is {}, wants {wants}", described(&entry.value.kind)), help);
    };
    if min == 0 || min > max || max > MAX_TOKENS {
        let what = format!("is [{min}, {max}], wants the least first, from 1 to 1_000_000");
        return checker.wrong(entry, what, help);
    }
    checker.keep(entry, format!("[{min}, {max}]"));
    Some(Length::Uniform(Bounds { min: nonzero(min)?, max: nonzero(max)? }))
}

/// `{ mean, sd, min, max }`.
fn normal(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<Length> {
    let example = Literal::table("mean", Literal::bare(256)).and("sd", Literal::bare(64));
    let table = checker.table(entry, &example)?;
    let mean = required(checker, &table, "mean", 1.0..=1e6, 256.0, &vocabulary::NORMAL);
    let sd = required(checker, &table, "sd", 1e-3..=1e6, 64.0, &vocabulary::NORMAL);
    let bounds = bounds(checker, &table);
    checker.close(&table, &vocabulary::NORMAL);
    Some(Length::Normal { mean: mean?, sd: sd?, bounds: bounds? })
}

/// `{ median, sigma, min, max }`.
fn log_normal(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<Length> {
    let example = Literal::table("median", Literal::bare(256)).and("sigma", Literal::bare(0.5));
    let table = checker.table(entry, &example)?;
    let median = required(checker, &table, "median", 1.0..=1e6, 256.0, &vocabulary::LOG_NORMAL);
    let sigma = required(checker, &table, "sigma", SIGMA, 0.5, &vocabulary::LOG_NORMAL);
    let bounds = bounds(checker, &table);
    checker.close(&table, &vocabulary::LOG_NORMAL);
    Some(Length::LogNormal { median: median?, sigma: sigma?, bounds: bounds? })
}

/// The least and the most that is drawn.
fn bounds(checker: &mut Checker<'_>, table: &Section<'_>) -> Option<Bounds> {
    let min = checker.whole_or(table, "min", 1..=MAX_TOKENS, 1);
    let max = checker.whole_or(table, "max", 1..=MAX_TOKENS, MAX_TOKENS);
    let (min, max) = (nonzero(min?)?, nonzero(max?)?);
    if min <= max {
        return Some(Bounds { min, max });
    }
    let entry = checker.entry(table, "min")?;
    checker.wrong(&entry, format!("is {min}, above the max of {max}"), "make min at most max")
}

/// A number that has no default.
fn required(
    checker: &mut Checker<'_>,
    table: &Section<'_>,
    key: &str,
    range: RangeInclusive<f64>,
    example: f64,
    vocabulary: &Vocabulary,
) -> Option<f64> {
    let Some(entry) = checker.entry(table, key) else {
        if !checker.is_misspelt(table, vocabulary, key) {
            let path = table.path.child(key);
            let written = table.origin.written(&path, &Literal::bare(example));
            checker.absent(table, &path, "is missing", format!("write `{written}`"));
        }
        return None;
    };
    let wants = format!("a number from {} to {}", range.start(), range.end());
    let number = checker.number(&entry, &wants, example)?;
    if range.contains(&number) {
        checker.keep(&entry, number.to_string());
        return Some(number);
    }
    let help = format!("write `{}`, say", entry.written(&Literal::bare(example)));
    checker.wrong(&entry, format!("is {number}, wants {wants}"), help)
}

/// `[{ weight, … }, …]`.
fn mixture(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<Length> {
    let help = "write `mixture = [{ weight = 0.9, tokens = 256 }, { weight = 0.1, uniform = [1024, 4096] }]`";
    let ValueKind::Array(values) = &entry.value.kind else {
        return checker.wrong(entry, format!("is {}, wants a list of tables", described(&entry.value.kind)), help);
    };
    if values.is_empty() || values.len() > MAX_SHARES {
        return checker.wrong(entry, format!("has {} parts, wants 1 to {MAX_SHARES}", values.len()), help);
    }
    let shares: Vec<_> = values.iter().enumerate().map(|(at, value)| share(checker, entry, at, value)).collect();
    shares.into_iter().collect::<Option<_>>().map(Length::Mixture)
}

/// One part of a mixture. Lists have no keys, so it is called by its number, from 1.
fn share(checker: &mut Checker<'_>, list: &Entry<'_>, at: usize, value: &Value) -> Option<Share> {
    let path = list.path.child(&(at + 1).to_string());
    let entry = Entry { path, origin: list.origin.clone(), value };
    let Some(table) = entry.as_table() else {
        return checker.wrong(
            &entry,
            format!("is {}, wants a table", described(&value.kind)),
            "give it a weight and tokens",
        );
    };
    let table: &Map<String, Value> = table;
    let section = Section { path: entry.path.clone(), origin: entry.origin.clone(), table };
    let weight = required(checker, &section, "weight", 1e-9..=1e9, 1.0, &vocabulary::SHARE);
    checker.close(&section, &vocabulary::SHARE);
    let length = one_of(checker, &entry, &section, &vocabulary::SHARE);
    Some(Share { weight: weight?, length: length? })
}
