//! The process environment as a plain map, so that everything behind it can be tested without touching the process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;

/// Variables by name. A value that is not UTF-8 is kept apart: it may concern nobody, and is a fault only when asked
/// for.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment {
    variables: BTreeMap<String, Variable>,
}

/// One variable's value.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Variable {
    /// Ordinary text.
    Text(String),
    /// Bytes that are not UTF-8.
    NotText,
}

impl Environment {
    /// The environment of this process, read once. Nothing else in the program reads it.
    #[must_use]
    pub fn from_process() -> Self {
        Self::from_os(std::env::vars_os())
    }

    /// From pairs as the system hands them out. A name that is not UTF-8 cannot be named in a configuration, so it is
    /// left out.
    fn from_os(pairs: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let variables = pairs
            .filter_map(|(name, value)| {
                let value = value.into_string().map_or(Variable::NotText, Variable::Text);
                name.into_string().ok().map(|name| (name, value))
            })
            .collect();
        Self { variables }
    }

    /// Whether the variable is set, and to what.
    pub(super) fn get(&self, name: &str) -> Option<&Variable> {
        self.variables.get(name)
    }

    /// Every variable, sorted by name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Variable)> {
        self.variables.iter().map(|(name, value)| (name.as_str(), value))
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Environment {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let variables = pairs.into_iter().map(|(name, value)| (name.into(), Variable::Text(value.into()))).collect();
        Self { variables }
    }
}

/// Names only: values hold keys.
impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.variables.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_names_and_no_values() {
        let environment: Environment = [("GATEWAY_API_KEY", "sk-hidden")].into_iter().collect();
        assert_eq!(format!("{environment:?}"), r#"{"GATEWAY_API_KEY"}"#);
    }

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_utf8_is_kept_apart() {
        use std::os::unix::ffi::OsStringExt;
        let environment = Environment::from_os([("ODD".into(), OsString::from_vec(vec![0xff]))].into_iter());
        assert!(environment.get("ODD") == Some(&Variable::NotText));
    }
}
