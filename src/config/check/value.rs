//! Reading one value as the type that is wanted.
//!
//! Every reader answers `None` when it has reported something, so that the caller goes on to the next key. Values from
//! files must have the wanted type already; values from variables and flags are text and are parsed as it.

use std::ops::RangeInclusive;
use std::time::Duration;

use config::ValueKind;

use super::reader::{Checker, Entry, Section};
use super::suggest::did_you_mean;
use crate::config::origin::Literal;
use crate::config::plan::grouped;
use crate::config::redact;

/// How long anything may be waited for. A day is longer than any request; more is a slip of the unit, and nothing is in
/// time when there is none.
pub(super) const WAIT: RangeInclusive<Duration> = Duration::from_nanos(1)..=Duration::from_secs(24 * 60 * 60);

impl Checker<'_> {
    /// A text. `example` is what one looks like.
    pub(super) fn text<'t>(&mut self, entry: &Entry<'t>, example: &str) -> Option<&'t str> {
        match (entry.as_text(), number_text(&entry.value.kind)) {
            (Some(text), _) if redact::is_key(text) => self.key_written(entry),
            (Some(text), _) => Some(text),
            (None, Some(number)) => self.wrong_type(entry, "a text in quotes", &Literal::Text(number)),
            (None, None) => self.wrong_type(entry, "a text", &Literal::text(example)),
        }
    }

    /// A text that is not empty.
    pub(super) fn filled_text<'t>(&mut self, entry: &Entry<'t>, example: &str) -> Option<&'t str> {
        let text = self.text(entry, example)?;
        if text.trim().is_empty() {
            let help = format!("write `{}`", entry.written(&Literal::text(example)));
            return self.wrong(entry, "is empty", help);
        }
        Some(text)
    }

    /// A whole number within the range, or the default.
    pub(super) fn whole_or(
        &mut self,
        section: &Section<'_>,
        key: &str,
        range: RangeInclusive<u64>,
        default: u64,
    ) -> Option<u64> {
        match self.entry(section, key) {
            Some(entry) => self.whole(&entry, range, default),
            None => {
                self.keep_default(section, key, default.to_string());
                Some(default)
            }
        }
    }

    /// A whole number within the range.
    pub(super) fn whole(&mut self, entry: &Entry<'_>, range: RangeInclusive<u64>, example: u64) -> Option<u64> {
        let wants = if *range.end() == u64::MAX {
            format!("a whole number, {} or more", range.start())
        } else {
            format!("a whole number from {} to {}", range.start(), grouped_whole(*range.end()))
        };
        let number = match entry.as_text() {
            Some(text) if entry.origin.is_text() => text.parse().ok(),
            _ => integer(&entry.value.kind),
        };
        let Some(number) = number else {
            let example = nearest_whole(&entry.value.kind).filter(|near| range.contains(near)).unwrap_or(example);
            return self.wrong_type(entry, &wants, &Literal::bare(example));
        };
        match u64::try_from(number).ok().filter(|number| range.contains(number)) {
            Some(number) => {
                self.keep(entry, number.to_string());
                Some(number)
            }
            None => {
                let (bound, side) =
                    if number < i128::from(*range.start()) { (range.start(), "more") } else { (range.end(), "less") };
                let written = entry.written(&Literal::bare(bound));
                self.wrong(entry, format!("is {number}, wants {wants}"), format!("write `{written}` or {side}"))
            }
        }
    }

    /// A finite number. `example` is what one looks like.
    pub(super) fn number(&mut self, entry: &Entry<'_>, wants: &str, example: f64) -> Option<f64> {
        let text = entry.as_text();
        let number = match text {
            Some(text) if entry.origin.is_text() => decimal(text),
            _ => float(&entry.value.kind),
        };
        match number {
            Some(number) if number.is_finite() => Some(number),
            Some(number) => {
                let help = format!("write `{}`", entry.written(&Literal::bare(example)));
                self.wrong(entry, format!("is {number}, wants {wants}"), help)
            }
            None => {
                let meant = text.and_then(|text| decimal(text.trim())).filter(|number| number.is_finite());
                self.wrong_type(entry, wants, &Literal::bare(meant.unwrap_or(example)))
            }
        }
    }

    /// True or false, or the default.
    pub(super) fn truth_or(&mut self, section: &Section<'_>, key: &str, default: bool) -> Option<bool> {
        let Some(entry) = self.entry(section, key) else {
            self.keep_default(section, key, default.to_string());
            return Some(default);
        };
        let truth = match (&entry.value.kind, entry.as_text()) {
            (ValueKind::Boolean(truth), _) => Some(*truth),
            (_, Some(text)) if entry.origin.is_text() => text.parse().ok(),
            _ => None,
        };
        if let Some(truth) = truth {
            self.keep(&entry, truth.to_string());
            return Some(truth);
        }
        let negative = |text: &str| ["no", "off", "false", "0"].contains(&text.to_ascii_lowercase().as_str());
        let meant = entry.as_text().map_or(default, |text| !negative(text));
        self.wrong_type(&entry, "true or false", &Literal::bare(meant))
    }

    /// A duration such as "5s" within the range, or the default.
    pub(super) fn duration_or(
        &mut self,
        section: &Section<'_>,
        key: &str,
        default: Duration,
        range: &RangeInclusive<Duration>,
    ) -> Option<Duration> {
        match self.entry(section, key) {
            Some(entry) => self.duration(&entry, default, range),
            None => {
                self.keep_default(section, key, shown(default));
                Some(default)
            }
        }
    }

    /// A duration such as "5s" within the range. A range that leaves out anything but zero at its lower end is not
    /// foreseen.
    pub(super) fn duration(
        &mut self,
        entry: &Entry<'_>,
        example: Duration,
        range: &RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let wants = "a duration with its unit";
        // A number is most often one of the unit that such a setting has.
        let unit = if example < Duration::from_secs(1) { "ms" } else { "s" };
        let example = Literal::Text(humantime::format_duration(example).to_string());
        let Some(text) = entry.as_text() else {
            let meant = nearest_whole(&entry.value.kind).filter(|number| *number > 0 || range.start().is_zero());
            let meant = meant.map(|number| Literal::Text(format!("{number}{unit}")));
            return self.wrong_type(entry, wants, meant.as_ref().unwrap_or(&example));
        };
        let help = |literal: &Literal| format!("write `{}`", entry.written(literal));
        match humantime::parse_duration(text) {
            Ok(duration) if duration < *range.start() => {
                self.wrong(entry, "is zero: nothing would ever be in time", help(&example))
            }
            Ok(duration) if duration > *range.end() => {
                let what = format!("is {}, wants {} or less", redact::quoted(text), limit(*range.end()));
                self.wrong(entry, what, help(&example))
            }
            Ok(duration) => {
                self.keep(entry, shown(duration));
                Some(duration)
            }
            Err(_) => {
                let meant = text.trim().parse::<u32>().ok().map(|number| Literal::Text(format!("{number}{unit}")));
                self.wrong_type(entry, wants, meant.as_ref().unwrap_or(&example))
            }
        }
    }

    /// One of a few words, or the default, which is one of them.
    pub(super) fn choice_or<T: Copy + PartialEq>(
        &mut self,
        section: &Section<'_>,
        key: &str,
        options: &[(&'static str, T)],
        default: T,
    ) -> Option<T> {
        if let Some(entry) = self.entry(section, key) {
            return self.choice(&entry, options);
        }
        let name = options.iter().find(|(_, value)| *value == default).map_or("", |(name, _)| *name);
        self.keep_default(section, key, format!("\"{name}\""));
        Some(default)
    }

    /// One of a few words.
    fn choice<T: Copy>(&mut self, entry: &Entry<'_>, options: &[(&'static str, T)]) -> Option<T> {
        let names: Vec<_> = options.iter().map(|(name, _)| *name).collect();
        let text = self.text(entry, names.first().copied().unwrap_or_default())?;
        if let Some((name, value)) = options.iter().find(|(name, _)| *name == text) {
            self.keep(entry, format!("\"{name}\""));
            return Some(*value);
        }
        let what = format!("is {}, wants one of {}", redact::quoted(text), names.join(", "));
        let help = did_you_mean(text, names.iter().copied()).map_or_else(String::new, |name| {
            let written = entry.written(&Literal::text(name));
            format!("did you mean `{written}`?")
        });
        self.wrong(entry, what, help)
    }
}

/// A duration as `--print` has it.
fn shown(duration: Duration) -> String {
    format!("\"{}\"", humantime::format_duration(duration))
}

/// The end of a range, in hours where it is some: humantime would call 24 hours a day.
fn limit(duration: Duration) -> String {
    match duration.as_secs() {
        secs if secs >= 3600 && secs.is_multiple_of(3600) => format!("{}h", secs / 3600),
        _ => humantime::format_duration(duration).to_string(),
    }
}

/// A value in words, without showing what may be a key.
pub(super) fn described(kind: &ValueKind) -> String {
    match kind {
        ValueKind::Nil => "null".to_owned(),
        ValueKind::Boolean(truth) => truth.to_string(),
        ValueKind::String(text) if text.is_empty() => "an empty text".to_owned(),
        ValueKind::String(text) => format!("the text {}", redact::quoted(text)),
        ValueKind::Table(_) => "a table".to_owned(),
        ValueKind::Array(_) => "a list".to_owned(),
        ValueKind::I64(_) | ValueKind::I128(_) | ValueKind::U64(_) | ValueKind::U128(_) | ValueKind::Float(_) => {
            format!("the number {}", number_text(kind).unwrap_or_default())
        }
    }
}

/// A number as it would be written; nothing for what is none.
fn number_text(kind: &ValueKind) -> Option<String> {
    if let ValueKind::Float(number) = kind {
        return Some(format!("{number:?}"));
    }
    integer(kind).map(|number| number.to_string())
}

/// The whole number that a value is, without any coercion.
pub(super) fn integer(kind: &ValueKind) -> Option<i128> {
    match kind {
        ValueKind::I64(number) => Some((*number).into()),
        ValueKind::I128(number) => Some(*number),
        ValueKind::U64(number) => Some((*number).into()),
        ValueKind::U128(number) => i128::try_from(*number).ok(),
        ValueKind::Nil
        | ValueKind::Boolean(_)
        | ValueKind::Float(_)
        | ValueKind::String(_)
        | ValueKind::Table(_)
        | ValueKind::Array(_) => None,
    }
}

/// The number that a value is: a whole one is as good as one with a point.
fn float(kind: &ValueKind) -> Option<f64> {
    if let ValueKind::Float(number) = kind {
        return Some(*number);
    }
    integer(kind).and_then(|number| number.to_string().parse().ok())
}

/// What was most likely meant by something that is no whole number.
fn nearest_whole(kind: &ValueKind) -> Option<u64> {
    let number = if let ValueKind::String(text) = kind { decimal(&text.trim().replace('_', "")) } else { float(kind) };
    format!("{:.0}", number?.round()).parse().ok()
}

/// A number as people write it: digits, not `inf` or `nan`.
fn decimal(text: &str) -> Option<f64> {
    text.parse().ok().filter(|_| text.contains(|c: char| c.is_ascii_digit()))
}

fn grouped_whole(number: u64) -> String {
    number.to_string().parse().map_or_else(|_| number.to_string(), grouped)
}
