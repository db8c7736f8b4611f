//! Layers into one tree: files in their order, then environment, then flags; the last one that sets a value wins.
//!
//! The `config` crate merges, and keeps with each value the place that set it. Variables and flags are handed to it as
//! text and stay text: its own environment source would take `MODEL=7` for a number, and forgets which variable it was.

use std::collections::BTreeMap;

use config::{Config, ConfigError, Map, Source, Value, ValueKind};

use crate::config::environment::{Environment, Variable};
use crate::config::fault::Finding;
use crate::config::origin::{KeyPath, Origin, PREFIX, SEPARATOR, key_text};
use crate::config::read::{Notes, REPORTED};
use crate::config::redact;

/// Most keys in a variable or flag. Settings need four; the tree is walked by recursion.
const MAX_KEYS: usize = 16;

/// One source of settings.
#[derive(Debug, Clone)]
pub(super) struct Layer(Map<String, Value>);

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, ConfigError> {
        Ok(self.0.clone())
    }
}

/// A file's layer.
///
/// The crate takes a top-level key such as `"loads.x"` for a path, which in the file it is not, so keys that it could
/// misread are reported here and left out; no section is called so.
pub(super) fn of_file(tree: Map<String, Value>, notes: &mut Notes) -> Layer {
    let (plain, odd): (Map<_, _>, Map<_, _>) = tree.into_iter().partition(|(key, _)| is_plain(key));
    for (key, value) in odd {
        let path = KeyPath::of([key.as_str()]);
        let origin = notes.origins.find(&path, value.origin());
        let help = if key.contains('.') { "write the dotted key without quotes, or as a section" } else { "remove it" };
        notes.findings.push(Finding::at(&origin, &path, "unknown section", help));
    }
    Layer(plain)
}

/// The layers of the environment, one a variable.
pub(super) fn of_environment(environment: &Environment, notes: &mut Notes) -> Vec<Layer> {
    let mut seen: BTreeMap<KeyPath, String> = BTreeMap::new();
    let mut layers = Vec::new();
    for (variable, value) in environment.iter() {
        let Some(rest) = variable
            .get(..PREFIX.len())
            .filter(|start| start.eq_ignore_ascii_case(PREFIX))
            .and_then(|_| variable.get(PREFIX.len()..))
        else {
            continue;
        };
        let lower = rest.to_lowercase();
        let path = KeyPath::of(lower.split(SEPARATOR));
        let origin = Origin::Environment(redact::name(variable));
        if let Some(finding) = badly_spelled(&path, &origin) {
            notes.findings.push(finding);
            continue;
        }
        if let Some(other) = clash(&path, &seen) {
            let what = format!("is set by {} as well", redact::name(other));
            notes.findings.push(Finding::at(&origin, &path, what, "unset one of the two"));
            continue;
        }
        seen.insert(path.clone(), variable.to_owned());
        let text = match value {
            Variable::Text(text) => text,
            Variable::NotText => {
                notes.origins.note(&path, &origin);
                notes.findings.push(Finding::at(&origin, &path, "is not UTF-8 text", "set it to text, or unset it"));
                layers.push(nested(&path, Value::new(Some(&REPORTED.to_owned()), ValueKind::Nil)));
                continue;
            }
        };
        layers.push(nested(&path, text_value(&path, &origin, text, notes)));
    }
    layers
}

/// The layers of the flags, in their order.
pub(super) fn of_flags(overrides: &[(String, String)], notes: &mut Notes) -> Vec<Layer> {
    let mut layers = Vec::new();
    for (key, text) in overrides {
        let path = KeyPath::of(key.split('.'));
        let origin = Origin::Flag(redact::name(key));
        match badly_spelled(&path, &origin) {
            Some(finding) => notes.findings.push(finding),
            None => layers.push(nested(&path, text_value(&path, &origin, text, notes))),
        }
    }
    layers
}

/// Merges the layers in the order given.
pub(super) fn merge(layers: Vec<Layer>) -> Map<String, Value> {
    let builder = layers.into_iter().fold(Config::builder(), |builder, layer| builder.add_source(layer));
    // A layer's `collect` cannot fail, so neither can this.
    match builder.build().map(|config| config.cache.kind) {
        Ok(ValueKind::Table(table)) => table,
        Ok(_) | Err(_) => Map::new(),
    }
}

/// What is wrong with the path itself.
fn badly_spelled(path: &KeyPath, origin: &Origin) -> Option<Finding> {
    let root = KeyPath::default();
    let keys = path.keys();
    let first = keys.first().map_or("", String::as_str);
    if keys.iter().any(String::is_empty) {
        let help = match origin {
            Origin::Environment(_) => "write one name between two double underscores: STEADYLOAD__LOADS__NAME__RATE=2",
            Origin::Flag(_) | Origin::Default | Origin::File(_) => "write the dotted key: --set loads.NAME.rate=2",
        };
        return Some(Finding::at(origin, &root, "has an empty name in its path", help));
    }
    if keys.len() > MAX_KEYS {
        return Some(Finding::at(origin, &root, "has a longer path than any setting", "write loads.NAME.rate, say"));
    }
    if !is_plain(first) {
        let what = format!("{} is no section", key_text(first));
        return Some(Finding::at(
            origin,
            &root,
            what,
            "begin with a section, such as loads: STEADYLOAD__LOADS__NAME__RATE=2, --set loads.NAME.rate=2",
        ));
    }
    None
}

/// A variable that sets the same path, a part of it, or what it is a part of: which of the two wins would depend on how
/// their names sort.
fn clash<'a>(path: &KeyPath, seen: &'a BTreeMap<KeyPath, String>) -> Option<&'a str> {
    seen.iter()
        .find(|(other, _)| path.keys().starts_with(other.keys()) || other.keys().starts_with(path.keys()))
        .map(|(_, variable)| variable.as_str())
}

fn text_value(path: &KeyPath, origin: &Origin, text: &str, notes: &mut Notes) -> Value {
    // The tables on the way come into being here too, if no file has them.
    for depth in 1..path.keys().len() {
        notes.origins.note(&KeyPath::of(path.keys().iter().take(depth).cloned()), origin);
    }
    Value::new(Some(&notes.origins.note(path, origin)), text)
}

fn nested(path: &KeyPath, value: Value) -> Layer {
    let mut value = value;
    for key in path.keys().iter().skip(1).rev() {
        value = Value::new(None, Map::from_iter([(key.clone(), value)]));
    }
    Layer(path.keys().first().map(|key| (key.clone(), value)).into_iter().collect())
}

/// Whether the crate reads the key as the one key that it is.
fn is_plain(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(layers: Vec<Layer>, keys: [&str; 3]) -> Option<String> {
        let tree = merge(layers);
        let mut value = tree.get(keys[0])?.clone();
        for key in &keys[1..] {
            let ValueKind::Table(table) = value.kind else { return None };
            value = table.get(*key)?.clone();
        }
        Some(format!("{} from {}", value.kind, value.origin().unwrap_or_default()))
    }

    #[test]
    fn a_variable_is_found_in_any_case_and_stays_text() {
        let mut notes = Notes::default();
        let environment: Environment = [("SteadyLoad__Targets__X__MODEL", "7")].into_iter().collect();
        let layers = of_environment(&environment, &mut notes);
        let want = "7 from environment SteadyLoad__Targets__X__MODEL";
        assert_eq!(set(layers, ["targets", "x", "model"]).as_deref(), Some(want));
    }

    #[test]
    fn variables_with_a_single_underscore_belong_to_kubernetes() {
        let mut notes = Notes::default();
        let environment: Environment =
            [("STEADYLOAD_PORT", "tcp://10.0.0.1:80"), ("STEADYLOAD_SERVICE_HOST", "x")].into_iter().collect();
        assert!(of_environment(&environment, &mut notes).is_empty());
        assert!(notes.findings.is_empty());
    }

    #[test]
    fn the_last_layer_wins_and_says_so() {
        let mut notes = Notes::default();
        let flag = |value: &str| ("loads.a.rate".to_owned(), value.to_owned());
        let layers = of_flags(&[flag("1"), flag("2")], &mut notes);
        assert_eq!(set(layers, ["loads", "a", "rate"]).as_deref(), Some("2 from flag --set loads.a.rate"));
    }
}
