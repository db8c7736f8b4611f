//! Where a setting was made, and how it would be written there.
//!
//! The `config` crate carries one text with each value. That text is what people see (`steadyload.toml:12`), and
//! [`Origins`] finds the place behind it again: sorting a report and spelling a correction need more than the text.

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use crate::config::redact;

/// Prefix and separator of the variables that set something: `STEADYLOAD__LOADS__CANARY__RATE`. Two underscores,
/// because settings have single ones, and because Kubernetes makes `STEADYLOAD_PORT` for every service of that name.
pub(super) const SEPARATOR: &str = "__";

/// What such a variable begins with.
pub(super) const PREFIX: &str = "STEADYLOAD__";

/// Where a setting was made. The order is that of a report.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// Nowhere: the built-in default.
    Default,
    /// In a file.
    File(FilePlace),
    /// By this environment variable; its name is hidden if somebody has written a key into it.
    Environment(String),
    /// By `--set` of this key.
    Flag(String),
}

/// A place in a configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FilePlace {
    /// Position among the files of the request, from 0: reports follow the order in which files were given.
    pub order: usize,
    /// The path as it was given.
    pub path: String,
    /// Counted from 1; `None` for the file as a whole.
    pub line: Option<usize>,
    /// How the file is written.
    pub format: Format,
}

/// The formats a file may have, told by its extension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Format {
    /// `.toml`.
    Toml,
    /// `.yaml`, `.yml`.
    Yaml,
    /// `.json`.
    Json,
}

/// The path of keys to a setting.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct KeyPath(Vec<String>);

/// A value as a correction shows it.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Literal {
    /// A number or a boolean: the same in every format.
    Bare(String),
    /// A text.
    Text(String),
    /// A table: `{ env = "NAME" }`.
    Table(Vec<(&'static str, Self)>),
}

/// Every place that was seen while reading.
#[derive(Debug, Default)]
pub(super) struct Origins {
    by_text: HashMap<String, Origin>,
    // Merging keeps the place of values but not of tables, and what is missing is missing in a table.
    by_key: BTreeMap<KeyPath, Origin>,
}

impl Origin {
    /// Whether the value is text that is still to be read as the wanted type.
    pub(super) const fn is_text(&self) -> bool {
        matches!(self, Self::Environment(_) | Self::Flag(_))
    }

    /// How `path` would be set to `value` in the place where it was set wrongly.
    pub(super) fn written(&self, path: &KeyPath, value: &Literal) -> String {
        let key = key_text(path.last());
        match self {
            Self::Environment(_) => format!("{}={}", path.variable(), value.raw()),
            // A flag sets one value: a setting of a table is spelled with a longer path.
            Self::Flag(_) => match value.first_entry() {
                Some((key, value)) => format!("--set {path}.{key}={}", value.raw()),
                None => format!("--set {path}={}", value.raw()),
            },
            Self::Default => format!("{key} = {}", value.in_format(Format::Toml)),
            Self::File(place) => {
                let value = value.in_format(place.format);
                match place.format {
                    Format::Toml => format!("{key} = {value}"),
                    Format::Yaml => format!("{key}: {value}"),
                    Format::Json => format!("\"{}\": {value}", redact::plain(path.last())),
                }
            }
        }
    }

    /// Where it was set, for a line that shows the key already.
    pub(super) fn beside_key(&self) -> String {
        match self {
            Self::Flag(_) => "flag --set".to_owned(),
            Self::Default | Self::File(_) | Self::Environment(_) => self.to_string(),
        }
    }

    /// How a setting is named in this place.
    pub(super) fn named(&self, path: &KeyPath) -> String {
        match self {
            Self::Environment(_) => path.variable(),
            Self::Flag(_) => format!("--set {path}"),
            Self::Default | Self::File(_) => path.last().to_owned(),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(place) => match place.line {
                Some(line) => write!(f, "{}:{line}", place.path),
                None => f.write_str(&place.path),
            },
            Self::Environment(variable) => write!(f, "environment {variable}"),
            Self::Flag(key) => write!(f, "flag --set {key}"),
        }
    }
}

impl FilePlace {
    /// The same file at a line.
    pub(super) fn at(&self, line: usize) -> Self {
        Self { line: Some(line), ..self.clone() }
    }
}

impl Format {
    /// The format of a file with this extension.
    pub(super) fn of_extension(extension: &str) -> Option<Self> {
        match extension.to_ascii_lowercase().as_str() {
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            "json" => Some(Self::Json),
            _ => None,
        }
    }
}

impl KeyPath {
    /// The path of these keys.
    pub(super) fn of(keys: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self(keys.into_iter().map(Into::into).collect())
    }

    /// One key further.
    pub(super) fn child(&self, key: &str) -> Self {
        let mut keys = self.0.clone();
        keys.push(key.to_owned());
        Self(keys)
    }

    /// The last key; empty for the root.
    pub(super) fn last(&self) -> &str {
        self.0.last().map_or("", String::as_str)
    }

    /// The keys.
    pub(super) fn keys(&self) -> &[String] {
        &self.0
    }

    /// The variable that sets it.
    pub(super) fn variable(&self) -> String {
        let keys: Vec<_> = self.0.iter().map(|key| redact::plain(key).to_uppercase()).collect();
        format!("{PREFIX}{}", keys.join(SEPARATOR))
    }
}

impl fmt::Display for KeyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, key) in self.0.iter().enumerate() {
            if at > 0 {
                f.write_str(".")?;
            }
            f.write_str(&key_text(key))?;
        }
        Ok(())
    }
}

impl Literal {
    /// A number or a boolean.
    pub(super) fn bare(value: impl ToString) -> Self {
        Self::Bare(value.to_string())
    }

    /// A text.
    pub(super) fn text(value: impl Into<String>) -> Self {
        Self::Text(value.into())
    }

    /// A table of one setting.
    pub(super) fn table(key: &'static str, value: Self) -> Self {
        Self::Table(vec![(key, value)])
    }

    /// A table with one setting more.
    pub(super) fn and(self, key: &'static str, value: Self) -> Self {
        match self {
            Self::Table(mut settings) => {
                settings.push((key, value));
                Self::Table(settings)
            }
            Self::Bare(_) | Self::Text(_) => self,
        }
    }

    /// The first key and value of a table.
    fn first_entry(&self) -> Option<(&'static str, &Self)> {
        match self {
            Self::Table(settings) => settings.first().map(|(key, value)| (*key, value)),
            Self::Bare(_) | Self::Text(_) => None,
        }
    }

    /// Text as it stands behind an equals sign in a shell.
    fn raw(&self) -> String {
        match self {
            Self::Bare(text) | Self::Text(text) => text.clone(),
            Self::Table(..) => self.in_format(Format::Json),
        }
    }

    fn in_format(&self, format: Format) -> String {
        match self {
            Self::Bare(text) => text.clone(),
            Self::Text(text) => format!("\"{text}\""),
            Self::Table(settings) => {
                let settings = settings.iter().map(|(key, value)| {
                    let value = value.in_format(format);
                    match format {
                        Format::Toml => format!("{key} = {value}"),
                        Format::Yaml => format!("{key}: {value}"),
                        Format::Json => format!("\"{key}\": {value}"),
                    }
                });
                format!("{{ {} }}", settings.collect::<Vec<_>>().join(", "))
            }
        }
    }
}

impl Origins {
    /// Notes a place, and returns the text that stands for it in the merged tree.
    pub(super) fn note(&mut self, path: &KeyPath, origin: &Origin) -> String {
        self.by_key.entry(path.clone()).or_insert_with(|| origin.clone());
        let text = origin.to_string();
        self.by_text.entry(text.clone()).or_insert_with(|| origin.clone());
        text
    }

    /// The place of a value: by its own text, else where its key was first seen.
    pub(super) fn find(&self, path: &KeyPath, text: Option<&str>) -> Origin {
        text.and_then(|text| self.by_text.get(text))
            .or_else(|| self.by_key.get(path))
            .cloned()
            .unwrap_or(Origin::Default)
    }
}

/// A key as TOML would write it, so that odd ones can be told from nested ones.
pub(super) fn key_text(key: &str) -> String {
    let bare = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if bare { redact::plain(key) } else { redact::quoted(key) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path() -> KeyPath {
        KeyPath::of(["loads", "canary", "rate"])
    }

    fn file(format: Format) -> Origin {
        Origin::File(FilePlace { order: 0, path: "f".to_owned(), line: Some(3), format })
    }

    #[test]
    fn a_correction_is_spelled_as_the_place_wants_it() {
        let two = Literal::Bare("2".to_owned());
        assert_eq!(file(Format::Toml).written(&path(), &two), "rate = 2");
        assert_eq!(file(Format::Yaml).written(&path(), &two), "rate: 2");
        assert_eq!(file(Format::Json).written(&path(), &two), "\"rate\": 2");
        assert_eq!(Origin::Environment(String::new()).written(&path(), &two), "STEADYLOAD__LOADS__CANARY__RATE=2");
        assert_eq!(Origin::Flag(String::new()).written(&path(), &two), "--set loads.canary.rate=2");
    }

    #[test]
    fn odd_keys_are_quoted_and_keys_pasted_as_names_hidden() {
        assert_eq!(KeyPath::of(["targets", "a.b", "x"]).to_string(), "targets.\"a.b\".x");
        assert_eq!(KeyPath::of(["targets", "sk-hidden123"]).to_string(), "targets.[redacted]");
    }

    #[test]
    fn a_report_has_files_in_their_order_then_variables_then_flags() {
        let mut origins = [
            Origin::Flag(String::new()),
            Origin::Environment(String::new()),
            file(Format::Json),
            Origin::File(FilePlace { order: 1, path: "a".to_owned(), line: None, format: Format::Toml }),
        ];
        origins.sort();
        assert!(matches!(&origins[0], Origin::File(place) if place.order == 0));
        assert!(matches!(origins.last(), Some(Origin::Flag(_))));
    }
}
