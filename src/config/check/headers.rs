//! Extra request headers.

use std::collections::BTreeMap;

use super::reader::{Checker, Entry, Section};
use super::{secret, vocabulary};
use crate::config::origin::{Literal, Origin};
use crate::config::redact;
use crate::config::sections::{HeaderSource, SecretSource};

/// Headers that the client sets for every request; a second one would break it or lie about it.
const OURS: [&str; 8] = [
    "host",
    "content-length",
    "content-type",
    "accept",
    "accept-encoding",
    "x-request-id",
    "transfer-encoding",
    "connection",
];

/// The `headers` of a target. `has_key`: the target has an API key, which is sent as `authorization`.
pub(super) fn headers(
    checker: &mut Checker<'_>,
    target: &Section<'_>,
    has_key: bool,
) -> Option<BTreeMap<String, HeaderSource>> {
    let Some(entry) = checker.entry(target, "headers") else { return Some(BTreeMap::new()) };
    let section = checker.table(&entry, &Literal::table("x-team", Literal::text("south")))?;
    let mut names: Vec<_> = section.table.keys().cloned().collect();
    names.sort();
    let mut headers = BTreeMap::new();
    let mut seen: BTreeMap<String, String> = BTreeMap::new();
    let mut whole = true;
    for name in names {
        let Some(entry) = checker.entry(&section, &name) else { continue };
        if let Some(other) = seen.insert(name.to_ascii_lowercase(), name.clone()) {
            let what = format!("is the same header as {}: case does not count", redact::plain(&other));
            whole &= checker.wrong::<()>(&entry, what, "keep one of the two").is_some();
            continue;
        }
        match named(checker, &entry, &name, has_key).and_then(|()| source(checker, &entry, &name)) {
            Some(source) => drop(headers.insert(name, source)),
            None => whole = false,
        }
    }
    whole.then_some(headers)
}

/// Whether a header of this name may be added.
fn named(checker: &mut Checker<'_>, entry: &Entry<'_>, name: &str, has_key: bool) -> Option<()> {
    if matches!(entry.origin, Origin::Environment(_)) {
        let help = "write it in a file; its value can come from a variable: { env = \"NAME\" }";
        return checker.wrong(entry, "headers cannot be set by a variable: its name has lost the header's case", help);
    }
    let lower = name.to_ascii_lowercase();
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return checker.wrong(entry, "is no header name", "use letters, digits and -");
    }
    if OURS.contains(&lower.as_str()) {
        return checker.wrong(entry, "is a header that steadyload sets itself", "remove it");
    }
    if lower == "authorization" && has_key {
        let what = "is sent already, with the key of api_key_env or api_key_file";
        return checker.wrong(entry, what, "remove this header, or the key if the gateway wants another scheme");
    }
    Some(())
}

/// Where the header's value comes from.
fn source(checker: &mut Checker<'_>, entry: &Entry<'_>, name: &str) -> Option<HeaderSource> {
    if entry.as_table().is_some() {
        return elsewhere(checker, entry).map(HeaderSource::Secret);
    }
    // Judged before the type: a key of digits only is a number to the parser, and is not to be shown either.
    if redact::header_names_a_secret(name) && !entry.is_reported() {
        return checker.key_written(entry);
    }
    let text = checker.text(entry, "value")?;
    if matches!(entry.origin, Origin::Flag(_)) && text.trim_start().starts_with('{') {
        let table = Literal::table("env", Literal::text("NAME"));
        let help = format!("write `{}`", entry.written(&table));
        return checker.wrong(entry, "is a table written as text, which would be sent as it stands", help);
    }
    if !text.bytes().all(|b| b == b' ' || b == b'\t' || b.is_ascii_graphic()) {
        let what = "holds a character that no header can carry (a line break, a control or a non-ASCII character)";
        return checker.wrong(entry, what, "use printable ASCII");
    }
    checker.keep(entry, format!("\"{}\"", text.escape_default()));
    Some(HeaderSource::Text(text.to_owned()))
}

/// `{ env = "NAME" }` or `{ file = "PATH" }`.
fn elsewhere(checker: &mut Checker<'_>, entry: &Entry<'_>) -> Option<SecretSource> {
    let example = Literal::table("env", Literal::text("NAME"));
    let section = checker.table(entry, &example)?;
    checker.close(&section, &vocabulary::HEADER);
    match (checker.entry(&section, "env"), checker.entry(&section, "file")) {
        (Some(env), None) => secret::variable(checker, &env, &secret::API_KEY),
        (None, Some(file)) => secret::secret_file(checker, &file, &secret::API_KEY),
        (Some(_), Some(_)) => checker.wrong(entry, "has env and file, wants one of them", "remove one"),
        (None, None) if ["env", "file"].iter().any(|key| checker.is_misspelt(&section, &vocabulary::HEADER, key)) => {
            None
        }
        (None, None) => {
            let help = format!("write `{}`", entry.written(&example));
            checker.wrong(entry, "is a table without env or file", help)
        }
    }
}
