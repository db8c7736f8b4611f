//! TOML, by the spans of the `toml` crate.

use config::{Map, Value};
use toml::de::{DeFloat, DeInteger, DeTable, DeValue, Error};

use super::{MAX_DEPTH, Reading, Unusable};
use crate::config::origin::KeyPath;

/// What the parser says of a key that stands twice: the one error after which the rest can still be judged.
const DUPLICATE: &str = "duplicate key";

/// Byte offsets of line starts.
struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

/// Reads the text. Keys that stand twice are reported and the rest goes on; any other syntax error is final.
pub(super) fn read(text: &str, reading: &mut Reading<'_>) -> Result<Map<String, Value>, Unusable> {
    let lines = Lines::new(text);
    if let Some(offset) = deep_nesting(text) {
        let (line, column) = lines.position(offset);
        return Err(reading.too_deep(line, column));
    }
    let (document, errors) = DeTable::parse_recoverable(text);
    if let Some(error) = errors.iter().find(|error| !error.message().starts_with(DUPLICATE)) {
        let (line, column) = lines.of_error(error);
        return Err(reading.syntax(line, column, error.message()));
    }
    for error in &errors {
        let (line, column) = lines.of_error(error);
        reading.parser_found_twice(line, column);
    }
    table(document.get_ref(), &KeyPath::default(), 0, &mut Walk { reading, lines: &lines })
}

struct Walk<'r, 'a, 'b> {
    reading: &'r mut Reading<'a>,
    lines: &'b Lines<'b>,
}

fn table(
    table: &DeTable<'_>,
    path: &KeyPath,
    depth: usize,
    walk: &mut Walk<'_, '_, '_>,
) -> Result<Map<String, Value>, Unusable> {
    let mut values = Map::new();
    for (key, item) in table {
        let path = path.child(key.get_ref());
        // The key's line, not the value's: a value that spans lines begins where its key is.
        let (line, column) = walk.lines.position(key.span().start);
        let value = value(item.get_ref(), &path, depth + 1, (line, column), walk)?;
        values.insert(key.get_ref().clone().into_owned(), value);
    }
    Ok(values)
}

fn value(
    item: &DeValue<'_>,
    path: &KeyPath,
    depth: usize,
    (line, column): (usize, usize),
    walk: &mut Walk<'_, '_, '_>,
) -> Result<Value, Unusable> {
    if depth > MAX_DEPTH {
        return Err(walk.reading.too_deep(line, column));
    }
    Ok(match item {
        DeValue::String(text) => walk.reading.value(path, line, text.clone().into_owned()),
        DeValue::Boolean(truth) => walk.reading.value(path, line, *truth),
        DeValue::Integer(number) => integer(number, path, line, walk.reading),
        DeValue::Float(number) => float(number, path, line, walk.reading),
        DeValue::Datetime(_) => {
            walk.reading.refused(path, line, "is a date or time, which no setting is", "write a text in quotes")
        }
        DeValue::Table(inner) => {
            let origin = walk.reading.at(line);
            let text = walk.reading.notes.origins.note(path, &origin);
            Value::new(Some(&text), table(inner, path, depth, walk)?)
        }
        DeValue::Array(items) => {
            let mut values = Vec::new();
            for item in items.iter() {
                let position = walk.lines.position(item.span().start);
                values.push(value(item.get_ref(), path, depth + 1, position, walk)?);
            }
            walk.reading.value(path, line, values)
        }
    })
}

fn integer(number: &DeInteger<'_>, path: &KeyPath, line: usize, reading: &mut Reading<'_>) -> Value {
    match i128::from_str_radix(number.as_str(), number.radix()) {
        Ok(number) => reading.value(path, line, number),
        Err(_) => reading.refused(path, line, "is beyond any number that a setting takes", "write a smaller number"),
    }
}

fn float(number: &DeFloat<'_>, path: &KeyPath, line: usize, reading: &mut Reading<'_>) -> Value {
    // What overflows becomes infinite, and the strict pass refuses that.
    match number.as_str().parse::<f64>() {
        Ok(number) => reading.value(path, line, number),
        Err(_) => reading.refused(path, line, "is no number", "write a number such as 3.5"),
    }
}

/// Where nesting, by brackets and by dots in keys, exceeds the limit: counted before the parser recurses.
///
/// The parser has a limit of its own for each of the two, but they multiply, and 32 inline tables under keys of 79
/// parts overflow the stack. A point in a number counts as a dot, which is one level too many at most.
fn deep_nesting(text: &str) -> Option<usize> {
    let bytes = text.as_bytes();
    let mut outer: Vec<usize> = Vec::new();
    let (mut depth, mut dots) = (0_usize, 0_usize);
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        match byte {
            b'"' | b'\'' | b'#' => {
                at = skipped(bytes, at);
                continue;
            }
            b'.' => (depth, dots) = (depth + 1, dots + 1),
            b',' | b'\n' => (depth, dots) = (depth - dots, 0),
            b'[' | b'{' => {
                outer.push(dots);
                (depth, dots) = (depth + 1, 0);
            }
            b']' | b'}' => {
                if let Some(before) = outer.pop() {
                    (depth, dots) = (depth - dots - 1, before);
                }
            }
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Some(at);
        }
        at += 1;
    }
    None
}

/// The end of the text or comment that begins here.
fn skipped(bytes: &[u8], start: usize) -> usize {
    let rest = bytes.get(start..).unwrap_or_default();
    let Some(&mark) = rest.first() else { return start };
    let line = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    if mark == b'#' {
        return start + line;
    }
    let triple = rest.starts_with(&[mark; 3]);
    let mut at = if triple { 3 } else { 1 };
    while at < rest.len() && (triple || at < line) {
        match rest.get(at) {
            Some(b'\\') if mark == b'"' => at += 2,
            Some(byte) if *byte != mark => at += 1,
            _ if !triple => return start + at + 1,
            _ => {
                // Three end it, and up to two more belong to the text.
                let marks = rest.iter().skip(at).take(5).take_while(|byte| **byte == mark).count();
                at += marks;
                if marks >= 3 {
                    return start + at;
                }
            }
        }
    }
    start + at
}

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let breaks = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        Self { text, starts: std::iter::once(0).chain(breaks).collect() }
    }

    /// Line and column of a byte offset, both from 1; the column counts characters.
    fn position(&self, offset: usize) -> (usize, usize) {
        let line = self.starts.partition_point(|start| *start <= offset).max(1);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let column = self.text.get(start..offset).map_or(1, |before| before.chars().count() + 1);
        (line, column)
    }

    fn of_error(&self, error: &Error) -> (usize, usize) {
        self.position(error.span().map_or(self.text.len(), |span| span.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_and_in_characters() {
        let lines = Lines::new("a\nüb = 1\n");
        assert_eq!(lines.position(0), (1, 1));
        assert_eq!(lines.position(2), (2, 1));
        assert_eq!(lines.position(4), (2, 2));
        assert_eq!(lines.position(99), (3, 1));
    }

    #[test]
    fn brackets_in_texts_and_comments_are_not_nesting() {
        let many = "[".repeat(100);
        assert_eq!(deep_nesting(&format!("a = \"{many}\" # {many}\nb = '{many}'")), None);
        assert_eq!(deep_nesting(&format!("a = \"\\\"{many}\"")), None);
        assert_eq!(deep_nesting(&format!("a = \"\"\"\n\"{many}\"\n\"\"\"\"\nb = '''don't {many}'''")), None);
        assert_eq!(deep_nesting(&format!("a = {many}")), Some(4 + MAX_DEPTH));
        assert_eq!(deep_nesting(&format!("a = '''don't'''\nb = {many}")), Some(20 + MAX_DEPTH));
    }

    #[test]
    fn dots_and_brackets_add_up_and_end_with_their_line_or_item() {
        let key = "a.".repeat(16);
        assert_eq!(
            deep_nesting(&format!("{key}b = 1\n{key}b = 1\nc = [{{ {key}b = 1.5 }}, {{ {key}b = 1 }}]\n")),
            None
        );
        assert!(deep_nesting(&format!("{key}b = {{ {key}b = 1 }}")).is_some());
    }
}
