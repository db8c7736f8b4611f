//! YAML, by the marked events of `yaml-rust2`, pulled one at a time.
//!
//! Pulled and kept on a stack of our own, because the crate's loader recurses and follows aliases: a hundred bytes can
//! unfold to gigabytes. Aliases, tags and merge keys are refused by name. Plain scalars follow the core schema of
//! YAML 1.2, so `yes` and `on` are texts, and so is the country `no`.

use config::{Map, Value, ValueKind};
use yaml_rust2::parser::{Event, Parser, Tag};
use yaml_rust2::scanner::{Marker, TScalarStyle};

use super::{MAX_DEPTH, REPORTED, Reading, Unusable};
use crate::config::origin::KeyPath;

/// A table or list that is not yet closed.
struct Open {
    path: KeyPath,
    line: usize,
    holds: Holds,
}

enum Holds {
    Table { values: Map<String, Value>, key: Option<Key> },
    List(Vec<Value>),
}

/// A key whose value is still to come.
struct Key {
    text: String,
    path: KeyPath,
    line: usize,
    /// It stands twice, or is no key: its value is read and dropped.
    dropped: bool,
}

/// Reads the text.
pub(super) fn read(text: &str, reading: &mut Reading<'_>) -> Result<Map<String, Value>, Unusable> {
    let mut parser = Parser::new_from_str(text);
    let mut stack: Vec<Open> = Vec::new();
    let mut root: Option<Value> = None;
    let mut documents = 0;
    loop {
        let (event, mark) = parser.next_token().map_err(|error| {
            let mark = *error.marker();
            reading.syntax(mark.line().max(1), mark.col() + 1, error.info())
        })?;
        let value = match event {
            Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => continue,
            Event::DocumentStart => {
                documents += 1;
                if documents > 1 {
                    return Err(reading.syntax(mark.line(), mark.col() + 1, "a second document, wants one"));
                }
                continue;
            }
            Event::MappingStart(_, ref tag) | Event::SequenceStart(_, ref tag) => {
                let table = matches!(event, Event::MappingStart(..));
                stack.push(open(table, &stack, &mark, tag.as_ref(), reading)?);
                continue;
            }
            Event::MappingEnd | Event::SequenceEnd => match stack.pop() {
                Some(open) => close(open, reading),
                None => continue,
            },
            Event::Alias(_) => alias(&stack, &mark, reading)?,
            Event::Scalar(text, style, _, tag) => match expects_key(&mut stack) {
                Some(top) => {
                    take_key(top, text, style, &mark, reading);
                    continue;
                }
                None => scalar(&stack, &text, style, &mark, tag.as_ref(), reading),
            },
        };
        place(value, &mut stack, &mut root);
    }
    match root.map(|value| value.kind) {
        // An empty file, or one with comments only.
        None => Ok(Map::new()),
        Some(ValueKind::Nil) if documents == 1 => Ok(Map::new()),
        Some(ValueKind::Table(table)) => Ok(table),
        Some(_) => Err(reading.syntax(1, 1, "the file holds one value, wants sections: targets, workloads, loads")),
    }
}

/// The innermost table, when a key is what comes next.
fn expects_key(stack: &mut [Open]) -> Option<&mut Open> {
    let top = stack.last_mut()?;
    matches!(top.holds, Holds::Table { key: None, .. }).then_some(top)
}

/// Where the next value stands.
fn position(stack: &[Open], mark: &Marker) -> (KeyPath, usize) {
    match stack.last() {
        Some(Open { holds: Holds::Table { key: Some(key), .. }, .. }) => (key.path.clone(), key.line),
        Some(open) => (open.path.clone(), mark.line()),
        None => (KeyPath::default(), mark.line()),
    }
}

fn open(
    table: bool,
    stack: &[Open],
    mark: &Marker,
    tag: Option<&Tag>,
    reading: &mut Reading<'_>,
) -> Result<Open, Unusable> {
    if stack.len() >= MAX_DEPTH {
        return Err(reading.too_deep(mark.line(), mark.col() + 1));
    }
    if let Some(Open { holds: Holds::Table { key: None, .. }, .. }) = stack.last() {
        return Err(reading.syntax(mark.line(), mark.col() + 1, "a table or list as a key, wants a text"));
    }
    let (path, line) = position(stack, mark);
    if tag.is_some() {
        refuse_tag(&path, line, reading);
    }
    let holds = if table { Holds::Table { values: Map::new(), key: None } } else { Holds::List(Vec::new()) };
    Ok(Open { path, line, holds })
}

fn close(open: Open, reading: &mut Reading<'_>) -> Value {
    match open.holds {
        Holds::Table { values, .. } => reading.value(&open.path, open.line, values),
        Holds::List(values) => reading.value(&open.path, open.line, values),
    }
}

fn place(value: Value, stack: &mut [Open], root: &mut Option<Value>) {
    match stack.last_mut().map(|open| &mut open.holds) {
        None => *root = Some(value),
        Some(Holds::List(values)) => values.push(value),
        Some(Holds::Table { values, key }) => {
            if let Some(key) = key.take().filter(|key| !key.dropped) {
                values.insert(key.text, value);
            }
        }
    }
}

fn take_key(top: &mut Open, text: String, style: TScalarStyle, mark: &Marker, reading: &mut Reading<'_>) {
    let Holds::Table { values, key } = &mut top.holds else { return };
    let (path, line) = (top.path.child(&text), mark.line());
    let mut dropped = false;
    if style == TScalarStyle::Plain && text == "<<" {
        reading.refused(&path, line, "merge keys are not supported", "write the settings out");
        dropped = true;
    } else if style == TScalarStyle::Plain && !matches!(plain(&text), Some(ValueKind::String(_))) {
        reading.refused(&path, line, "this key is no text", "put it in quotes");
    } else if values.contains_key(&text) {
        reading.twice(&path, line);
        dropped = true;
    }
    *key = Some(Key { text, path, line, dropped });
}

fn alias(stack: &[Open], mark: &Marker, reading: &mut Reading<'_>) -> Result<Value, Unusable> {
    if let Some(Open { holds: Holds::Table { key: None, .. }, .. }) = stack.last() {
        return Err(reading.syntax(mark.line(), mark.col() + 1, "an alias as a key, wants a text"));
    }
    if let Some(Open { holds: Holds::Table { key: Some(key), .. }, .. }) = stack.last()
        && key.dropped
    {
        // Of `<<: *name` the merge key has been reported.
        return Ok(Value::new(Some(&REPORTED.to_owned()), ValueKind::Nil));
    }
    let (path, line) = position(stack, mark);
    Ok(reading.refused(&path, line, "is an alias (*name), which is not supported", "write the value out"))
}

fn scalar(
    stack: &[Open],
    text: &str,
    style: TScalarStyle,
    mark: &Marker,
    tag: Option<&Tag>,
    reading: &mut Reading<'_>,
) -> Value {
    let (path, line) = position(stack, mark);
    if tag.is_some() {
        return refuse_tag(&path, line, reading);
    }
    if style != TScalarStyle::Plain {
        return reading.value(&path, line, text);
    }
    match plain(text) {
        Some(kind) => reading.value(&path, line, kind),
        None => reading.refused(&path, line, "is beyond any number that a setting takes", "write a smaller number"),
    }
}

fn refuse_tag(path: &KeyPath, line: usize, reading: &mut Reading<'_>) -> Value {
    let what = "has a tag (!name), which is not supported";
    reading.refused(path, line, what, "write the value without the tag, a text in quotes")
}

/// A plain scalar by the core schema; `None` for a number beyond `i128`.
fn plain(text: &str) -> Option<ValueKind> {
    Some(match text {
        "" | "~" | "null" | "Null" | "NULL" => ValueKind::Nil,
        "true" | "True" | "TRUE" => ValueKind::Boolean(true),
        "false" | "False" | "FALSE" => ValueKind::Boolean(false),
        ".nan" | ".NaN" | ".NAN" => ValueKind::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => ValueKind::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => ValueKind::Float(f64::NEG_INFINITY),
        _ => return number(text),
    })
}

fn number(text: &str) -> Option<ValueKind> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    let all = |digits: &str, radix| !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    let radix = |prefix, radix| {
        let digits = text.strip_prefix(prefix).filter(|digits| all(digits, radix))?;
        Some(i128::from_str_radix(digits, radix).ok().map(ValueKind::I128))
    };
    if let Some(number) = radix("0o", 8).or_else(|| radix("0x", 16)) {
        return number;
    }
    if all(digits, 10) {
        return text.parse().ok().map(ValueKind::I128);
    }
    // A float has a digit and nothing but digits, a dot and an exponent: `inf`, `nan` and `e5` are texts.
    let float = digits.contains(|c: char| c.is_ascii_digit())
        && !digits.starts_with(['e', 'E'])
        && digits.chars().all(|c| c.is_ascii_digit() || matches!(c, '.' | 'e' | 'E' | '+' | '-'));
    let float = float.then(|| text.parse().ok()).flatten();
    Some(float.map_or_else(|| ValueKind::String(text.to_owned()), ValueKind::Float))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_follow_the_core_schema() {
        for (text, kind) in [
            ("7", ValueKind::I128(7)),
            ("-7", ValueKind::I128(-7)),
            ("0x10", ValueKind::I128(16)),
            ("3.5", ValueKind::Float(3.5)),
            ("1e3", ValueKind::Float(1000.0)),
            (".5", ValueKind::Float(0.5)),
            ("~", ValueKind::Nil),
            ("True", ValueKind::Boolean(true)),
        ] {
            assert_eq!(plain(text), Some(kind), "{text}");
        }
        for text in ["yes", "no", "on", "inf", "nan", "e5", "1_000", "1.2.3", "5s", "12:30", "-", "."] {
            assert_eq!(plain(text), Some(ValueKind::String(text.to_owned())), "{text}");
        }
        assert_eq!(plain(&"9".repeat(50)), None);
    }
}
