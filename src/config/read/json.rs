//! JSON, by `serde_json`'s own grammar.
//!
//! `serde_json` tells positions only in errors, so the text is fed to it byte by byte through [`CountedBytes`], and the
//! line is read off when a key has been understood. (YAML's reader has positions but is no JSON parser: it refuses
//! surrogate pairs and tabs that are right in JSON.) A visitor sees both of two equal keys, which a map would not.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io::{self, Read};

use config::{Map, Value, ValueKind};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use super::{MAX_DEPTH, Reading, Unusable};
use crate::config::origin::KeyPath;

/// Reads the text.
pub(super) fn read(text: &str, reading: &mut Reading<'_>) -> Result<Map<String, Value>, Unusable> {
    let line = Cell::new(1);
    let depth_fault = Cell::new(false);
    let bytes = CountedBytes { left: text.as_bytes(), line: &line, after_break: false };
    let mut parser = serde_json::Deserializer::from_reader(bytes);
    let result = {
        let walk = Walk { reading: RefCell::new(&mut *reading), line: &line, too_deep: &depth_fault };
        let node = Node { walk: &walk, path: KeyPath::default(), line: 1, depth: 0 };
        node.deserialize(&mut parser).and_then(|value| parser.end().map(|()| value))
    };
    match result {
        Err(error) if depth_fault.get() => Err(reading.too_deep(error.line().max(1), error.column().max(1))),
        Err(error) => {
            // serde_json ends its text with the position, which stands in front already.
            let says = error.to_string();
            let says = says.split(" at line ").next().unwrap_or(&says);
            Err(reading.syntax(error.line().max(1), error.column().max(1), says))
        }
        Ok(Value { kind: ValueKind::Table(table), .. }) => Ok(table),
        Ok(_) => Err(reading.syntax(1, 1, "the file holds one value, wants an object { … } with sections")),
    }
}

/// Hands out one byte at a time and counts the lines begun.
struct CountedBytes<'a> {
    left: &'a [u8],
    line: &'a Cell<usize>,
    after_break: bool,
}

impl Read for CountedBytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (Some(slot), Some((byte, left))) = (buffer.first_mut(), self.left.split_first()) else {
            return Ok(0);
        };
        // A break counts when the byte behind it is taken: the parser looks one byte ahead of a number.
        if self.after_break {
            self.line.set(self.line.get() + 1);
        }
        self.after_break = *byte == b'\n';
        self.left = left;
        *slot = *byte;
        Ok(1)
    }
}

struct Walk<'r, 'a> {
    reading: RefCell<&'r mut Reading<'a>>,
    line: &'r Cell<usize>,
    too_deep: &'r Cell<bool>,
}

/// One value that is about to be read.
struct Node<'w, 'r, 'a> {
    walk: &'w Walk<'r, 'a>,
    path: KeyPath,
    line: usize,
    depth: usize,
}

impl Node<'_, '_, '_> {
    fn keep<E>(self, kind: impl Into<ValueKind>) -> Result<Value, E> {
        Ok(self.walk.reading.borrow_mut().value(&self.path, self.line, kind))
    }

    fn deeper<E: Error>(&self) -> Result<usize, E> {
        if self.depth < MAX_DEPTH {
            return Ok(self.depth + 1);
        }
        self.walk.too_deep.set(true);
        Err(E::custom("too deep"))
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_, '_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_, '_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        self.keep(truth)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        self.keep(number)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        self.keep(number)
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        self.keep(number)
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        self.keep(text)
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        self.keep(ValueKind::Nil)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut values = Vec::new();
        let node = || Node { walk: self.walk, path: self.path.clone(), line: self.walk.line.get(), depth };
        while let Some(value) = items.next_element_seed(node())? {
            values.push(value);
        }
        self.keep(values)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let depth = self.deeper()?;
        let mut values = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            let (path, line) = (self.path.child(&key), self.walk.line.get());
            if values.contains_key(&key) {
                self.walk.reading.borrow_mut().twice(&path, line);
                // Into nowhere, under a path of its own: the first one is kept.
                entries.next_value::<serde::de::IgnoredAny>()?;
                continue;
            }
            values.insert(key, entries.next_value_seed(Node { walk: self.walk, path, line, depth })?);
        }
        self.keep(values)
    }
}
