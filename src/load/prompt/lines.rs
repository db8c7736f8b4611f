//! The text of `dataset = "sonnet"`, line by line.
//!
//! Like the common benchmark tool, lines are drawn until the length is reached. Unlike there, nothing is shared unless it is
//! declared, and the last line is cut within, so that the length is exact.

use std::fs;
use std::path::Path;

use super::draw::Draw;
use super::error::SourceError;
use super::file;

/// Verse of our own.
const BUILT_IN: &str = include_str!("sonnet.txt");

/// Largest text: it is kept in memory.
pub(super) const MAX_BYTES: u64 = 16 << 20;

/// The text that is meant: its lines that are not empty, and the bytes that they were read from.
pub(super) fn read(workload: &str, path: Option<&Path>) -> Result<(Vec<String>, Vec<u8>), SourceError> {
    let Some(path) = path else { return Ok((split(BUILT_IN), BUILT_IN.as_bytes().to_vec())) };
    let place = || (workload.to_owned(), path.to_owned());
    let length = file::plain(workload, path)?;
    if length > MAX_BYTES {
        let (workload, path) = place();
        return Err(SourceError::TextTooLarge { workload, path });
    }
    let bytes = fs::read(path).map_err(|source| {
        let (workload, path) = place();
        SourceError::Unreadable { workload, path, source }
    })?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let before = bytes.get(..error.valid_up_to()).unwrap_or_default();
        let line = memchr::memchr_iter(b'\n', before).count() + 1;
        let (workload, path) = place();
        SourceError::NotText { workload, path, line }
    })?;
    let lines = split(text);
    if lines.is_empty() {
        let (workload, path) = place();
        return Err(SourceError::Empty { workload, path, what: "no line of text" });
    }
    Ok((lines, bytes))
}

fn split(text: &str) -> Vec<String> {
    let lines = text.trim_start_matches('\u{feff}').lines().map(str::trim);
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// The words of lines, one after the other, each with what stands in front of it. The lines are those that `line` gives.
pub(super) fn words<'a>(mut line: impl FnMut() -> &'a str) -> impl FnMut() -> String {
    let mut words = "".split_whitespace();
    move || match words.next() {
        Some(word) => format!(" {word}"),
        None => {
            words = line().split_whitespace();
            format!("\n{}", words.next().unwrap_or_default())
        }
    }
}

/// Lines in their order, from the first on, again and again.
pub(super) fn in_order<'a>(lines: &'a [String]) -> impl FnMut() -> &'a str + use<'a> {
    let mut all = lines.iter().cycle();
    move || all.next().map_or("", String::as_str)
}

/// Lines at random.
pub(super) fn at_random<'a>(lines: &'a [String], mut draw: Draw) -> impl FnMut() -> &'a str + use<'a> {
    move || draw.one(lines).map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_text_is_plain_and_has_no_line_twice() {
        let lines = split(BUILT_IN);
        let distinct: std::collections::BTreeSet<_> = lines.iter().collect();
        assert!(lines.len() >= 100 && distinct.len() == lines.len(), "{}", lines.len());
        assert!(BUILT_IN.is_ascii());
    }

    #[test]
    fn words_keep_the_lines_that_they_come_from() {
        let lines = ["one two".to_owned(), "three".to_owned()];
        let mut words = words(in_order(&lines));
        let text: String = (0..5).map(|_| words()).collect();
        assert_eq!(text, "\none two\nthree\none two");
    }
}
