//! Every setting with the place that made it: the answer to "why is it nine?".

use std::fmt;

use crate::config::origin::{KeyPath, Origin};
use crate::config::redact;

/// Widest `key = value` up to which origins are aligned; one long URL must not push all of them off the screen.
const ALIGN_UP_TO: usize = 72;

/// One setting in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    /// Dotted key.
    pub key: String,
    /// The value as TOML would write it, or the name of the variable or file that holds a secret; never the secret.
    pub value: String,
    /// Where it was set.
    pub origin: Origin,
}

/// Every setting in force, defaults included.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effective {
    settings: Vec<Setting>,
}

impl Effective {
    /// The settings: targets, workloads, loads, each by name; then budget, server, state, log, shard.
    #[must_use]
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// Adds a setting. `shown` is text for people: whatever looks like a key is hidden even here.
    pub(super) fn push(&mut self, path: &KeyPath, shown: String, origin: &Origin) {
        let value = if redact::must_hide(&shown) { format!("\"{}\"", redact::HIDDEN) } else { shown };
        self.settings.push(Setting { key: path.to_string(), value, origin: origin.clone() });
    }
}

/// Lines of `key = value    # origin`, the origins one below the other.
impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> =
            self.settings.iter().map(|setting| format!("{} = {}", setting.key, setting.value)).collect();
        let widths = lines.iter().map(|line| line.chars().count());
        let width = widths.filter(|width| *width <= ALIGN_UP_TO).max().unwrap_or(0);
        for (line, setting) in lines.iter().zip(&self.settings) {
            writeln!(f, "{line:width$}  # {}", setting.origin.beside_key())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_stand_one_below_the_other() {
        let mut effective = Effective::default();
        effective.push(&KeyPath::of(["a"]), "1".to_owned(), &Origin::Default);
        effective.push(&KeyPath::of(["long", "key"]), "\"x\"".to_owned(), &Origin::Flag("long.key".to_owned()));
        assert_eq!(effective.to_string(), "a = 1           # default\nlong.key = \"x\"  # flag --set\n");
    }

    #[test]
    fn a_key_pasted_as_a_value_is_hidden() {
        let mut effective = Effective::default();
        effective.push(&KeyPath::of(["a"]), "\"sk-hidden123\"".to_owned(), &Origin::Default);
        assert_eq!(effective.to_string(), "a = \"[redacted]\"  # default\n");
    }
}
