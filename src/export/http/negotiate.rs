//! Which form of the exposition a scraper wants, and whether compressed.
//!
//! The quality of each form is that of the most specific range that covers it (RFC 9110). Where several are wanted as
//! much, one that was named goes before one that a wildcard covers, the first named before the next. Whoever accepts
//! anything, or says nothing, or wants what there is not, gets text 0.0.4: everything can read it, a browser can show it,
//! and a scrape that fails for a header helps nobody.

use std::cmp::Reverse;

use axum::http::HeaderMap;
use axum::http::header::{ACCEPT, ACCEPT_ENCODING, AsHeaderName};

use crate::export::metrics::Format;

/// The form that is wanted most.
pub(super) fn wanted(headers: &HeaderMap) -> Format {
    let ranges = list(headers, ACCEPT);
    let acceptable = Format::ALL.into_iter().filter_map(|format| {
        let covering = ranges.iter().enumerate().filter_map(|(at, range)| {
            // The first of equals.
            Some((specificity(range, format)?, Reverse(at), range.quality))
        });
        let (specificity, at, quality) = covering.max_by_key(|(specificity, at, _)| (*specificity, *at))?;
        (quality > 0).then_some(((quality, specificity >= NAMED, at, preference(format)), format))
    });
    acceptable.max_by_key(|(rank, _)| *rank).map_or(Format::Text, |(_, format)| format)
}

/// What is sent to somebody who does not care.
fn preference(format: Format) -> u8 {
    match format {
        Format::Protobuf => 0,
        Format::OpenMetrics => 1,
        Format::Text => 2,
    }
}

/// Whether gzip is allowed, and not wanted less than no compression.
pub(super) fn gzip(headers: &HeaderMap) -> bool {
    let codings = list(headers, ACCEPT_ENCODING);
    let quality = |names: &[&str]| {
        let named = codings.iter().find(|coding| names.iter().any(|name| coding.name.eq_ignore_ascii_case(name)));
        named.map(|coding| coding.quality)
    };
    let gzip = quality(&["gzip", "x-gzip"]).or_else(|| quality(&["*"])).unwrap_or(0);
    gzip > 0 && quality(&["identity"]).is_none_or(|identity| identity <= gzip)
}

/// One element of a header that is a list.
#[derive(Debug)]
struct Element<'a> {
    name: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
    /// In thousandths.
    quality: u16,
}

/// The elements of all headers of this name. What is no text and what has no quality that is one is left out.
fn list(headers: &HeaderMap, name: impl AsHeaderName) -> Vec<Element<'_>> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).filter_map(element).collect()
}

fn element(text: &str) -> Option<Element<'_>> {
    let mut parts = text.split(';').map(str::trim);
    let name = parts.next().filter(|name| !name.is_empty())?;
    let mut quality = 1000;
    let mut parameters = Vec::new();
    for part in parts {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        let (key, value) = (key.trim(), value.trim().trim_matches('"'));
        if key.eq_ignore_ascii_case("q") {
            quality = thousandths(value)?;
        } else {
            parameters.push((key, value));
        }
    }
    Some(Element { name, parameters, quality })
}

fn thousandths(value: &str) -> Option<u16> {
    let quality: f64 = value.parse().ok()?;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 1000, and not negative")]
    (0.0..=1.0).contains(&quality).then(|| (quality * 1000.0).round() as u16)
}

/// The specificity of a range without a wildcard.
const NAMED: usize = 2;

/// How closely a range covers a form: 0 for `*/*`, more for each thing it names; `None` if it does not.
fn specificity(range: &Element<'_>, format: Format) -> Option<usize> {
    let (media, own): (&str, &[(&str, &str)]) = match format {
        Format::Protobuf => (
            "application/vnd.google.protobuf",
            &[("proto", "io.prometheus.client.MetricFamily"), ("encoding", "delimited")],
        ),
        Format::OpenMetrics => ("application/openmetrics-text", &[("version", "1.0.0")]),
        Format::Text => ("text/plain", &[("version", "0.0.4")]),
    };
    let main = media.split('/').next().unwrap_or_default();
    if range.name == "*/*" || range.name == "*" {
        return Some(0);
    }
    if range.name.strip_suffix("/*").is_some_and(|range| range.eq_ignore_ascii_case(main)) {
        return Some(1);
    }
    if !range.name.eq_ignore_ascii_case(media) {
        return None;
    }
    let mut named = NAMED;
    for (key, value) in own {
        let asked = range.parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(key));
        match asked {
            Some((_, asked)) if asked.eq_ignore_ascii_case(value) => named += 1,
            Some(_) => return None,
            // A protobuf of some other message or framing is of no use to anybody.
            None if format == Format::Protobuf => return None,
            None => {}
        }
    }
    Some(named)
}

#[cfg(test)]
mod tests;
