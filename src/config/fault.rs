//! What is wrong with a configuration, as text for the person who has to mend it.
//!
//! ```text
//! steadyload.toml:7: loads.canary.rate: is the text "2", wants a number
//!     write `rate = 2`
//! ```
//!
//! The first line is `file:line: key: what`, which editors and `grep` understand; the indented one says what would be
//! right. Lower case, no full stop, and never a value that may be a key.

use std::fmt;

use crate::config::origin::{KeyPath, Origin};

/// Says that the strict pass is at fault, not the configuration.
const UNEXPLAINED: &str = "refused without a reason, which is a bug in steadyload";

/// One thing that is wrong, or worth a second look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Where it was set. [`Origin::Default`] when it was set nowhere and no file is to blame.
    pub origin: Origin,
    /// Column, for syntax errors.
    pub column: Option<usize>,
    /// Dotted key; `None` when the file as a whole is meant.
    pub key: Option<String>,
    /// What is wrong.
    pub what: String,
    /// What would be right.
    pub help: Option<String>,
    /// Something is *missing*. Such a finding is dropped when a file could not be read: it may be in that file.
    pub(super) absence: bool,
}

/// Everything that is wrong, at once. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults {
    findings: Vec<Finding>,
}

impl Finding {
    /// A fault of a setting.
    pub(super) fn at(origin: &Origin, path: &KeyPath, what: impl Into<String>, help: impl Into<String>) -> Self {
        Self {
            origin: origin.clone(),
            column: None,
            key: Some(path.to_string()).filter(|key| !key.is_empty()),
            what: what.into(),
            help: Some(help.into()).filter(|help| !help.is_empty()),
            absence: false,
        }
    }

    /// A fault of a whole file, or of its syntax.
    pub(super) fn of_file(origin: Origin, column: Option<usize>, what: impl Into<String>) -> Self {
        Self { origin, column, key: None, what: what.into(), help: None, absence: false }
    }

    /// The same with a correction.
    pub(super) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl Faults {
    /// Sorts what was found. `None` when nothing was.
    pub(super) fn from_findings(mut findings: Vec<Finding>) -> Option<Self> {
        findings.sort_by(|a, b| (&a.origin, a.column, &a.key).cmp(&(&b.origin, b.column, &b.key)));
        findings.dedup();
        (!findings.is_empty()).then_some(Self { findings })
    }

    /// The answer to a configuration that was refused without a reason. A test feeds thousands of mutilated files to
    /// see that it is never given.
    pub(super) fn unexplained() -> Self {
        let finding = Finding::of_file(Origin::Default, None, UNEXPLAINED);
        Self { findings: vec![finding] }
    }

    /// Each fault, sorted by file and line, then variables, then flags.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.origin, &self.key) {
            (Origin::Default, _) => f.write_str("configuration")?,
            (origin, Some(_)) => f.write_str(&origin.beside_key())?,
            (origin, None) => write!(f, "{origin}")?,
        }
        if let Some(column) = self.column {
            write!(f, ":{column}")?;
        }
        if let Some(key) = &self.key {
            write!(f, ": {key}")?;
        }
        write!(f, ": {}", self.what)?;
        match &self.help {
            Some(help) => write!(f, "\n    {help}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{finding}")?;
        }
        match self.findings.len() {
            1 => f.write_str("1 fault"),
            count => write!(f, "{count} faults"),
        }
    }
}

impl std::error::Error for Faults {}
