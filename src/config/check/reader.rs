//! Walking the tree: sections, their settings, what nobody knows, and what has been found so far.

use std::sync::LazyLock;

use config::{Map, Value, ValueKind};

use super::secret::ADMIN_TOKEN;
use super::suggest::did_you_mean;
use super::value::described;
use super::vocabulary::{self, Vocabulary};
use crate::config::effective::Effective;
use crate::config::environment::Environment;
use crate::config::fault::Finding;
use crate::config::origin::{KeyPath, Literal, Origin};
use crate::config::read::{Notes, REPORTED};
use crate::config::redact;

/// Longest name. It becomes a metric label and a part of a variable's name.
const MAX_NAME: usize = 63;

/// The table that is nowhere written.
static NO_SETTINGS: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);

/// One table of settings.
pub(super) struct Section<'t> {
    /// Where it is in the tree.
    pub(super) path: KeyPath,
    /// Where it was written first.
    pub(super) origin: Origin,
    /// Its settings.
    pub(super) table: &'t Map<String, Value>,
}

/// A section with a name of the user's.
pub(super) struct Named<'t> {
    /// Its name.
    pub(super) name: String,
    /// Whether the name is one that may be used, and shown.
    pub(super) sound: bool,
    /// What it holds.
    pub(super) section: Section<'t>,
}

/// One setting that is there.
pub(super) struct Entry<'t> {
    /// Where it is in the tree.
    pub(super) path: KeyPath,
    /// Where it was written.
    pub(super) origin: Origin,
    /// What it is.
    pub(super) value: &'t Value,
}

impl<'t> Entry<'t> {
    /// The text that it is, if it is one.
    pub(super) fn as_text(&self) -> Option<&'t str> {
        if let ValueKind::String(text) = &self.value.kind { Some(text) } else { None }
    }

    /// The table that it is, if it is one.
    pub(super) fn as_table(&self) -> Option<&'t Map<String, Value>> {
        if let ValueKind::Table(table) = &self.value.kind { Some(table) } else { None }
    }

    /// Whether a reader has refused and reported it already.
    pub(super) fn is_reported(&self) -> bool {
        self.value.origin() == Some(REPORTED)
    }

    /// How it would be set to this value where it was set.
    pub(super) fn written(&self, value: &Literal) -> String {
        self.origin.written(&self.path, value)
    }
}

/// The state of the strict pass.
pub(super) struct Checker<'a> {
    pub(super) environment: &'a Environment,
    notes: &'a mut Notes,
    warnings: Vec<Finding>,
    effective: Effective,
}

impl<'a> Checker<'a> {
    /// A pass that has found nothing.
    pub(super) fn new(environment: &'a Environment, notes: &'a mut Notes) -> Self {
        Self { environment, notes, warnings: Vec::new(), effective: Effective::default() }
    }

    /// What is in force and what is worth a look.
    pub(super) fn finish(self) -> (Effective, Vec<Finding>) {
        (self.effective, self.warnings)
    }

    /// Whether no fault has been found by anyone.
    pub(super) fn is_clean(&self) -> bool {
        self.notes.findings.is_empty()
    }

    /// The setting of this key, if it is there.
    pub(super) fn entry<'t>(&self, section: &Section<'t>, key: &str) -> Option<Entry<'t>> {
        let value = section.table.get(key)?;
        let path = section.path.child(key);
        let origin = self.notes.origins.find(&path, value.origin());
        Some(Entry { path, origin, value })
    }

    /// Reports what is wrong with a setting, and answers nothing.
    pub(super) fn wrong<T>(
        &mut self,
        entry: &Entry<'_>,
        what: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<T> {
        self.notes.findings.push(Finding::at(&entry.origin, &entry.path, what, help));
        None
    }

    /// Reports something that is not there.
    pub(super) fn absent(
        &mut self,
        section: &Section<'_>,
        path: &KeyPath,
        what: impl Into<String>,
        help: impl Into<String>,
    ) {
        let absence = true;
        self.notes.findings.push(Finding { absence, ..Finding::at(&section.origin, path, what, help) });
    }

    /// Reports a reference to something that is not there.
    pub(super) fn dangling(&mut self, entry: &Entry<'_>, what: impl Into<String>, help: impl Into<String>) {
        let absence = true;
        self.notes.findings.push(Finding { absence, ..Finding::at(&entry.origin, &entry.path, what, help) });
    }

    /// Adds a warning.
    pub(super) fn warn(&mut self, finding: Finding) {
        self.warnings.push(finding);
    }

    /// Notes a setting in force.
    pub(super) fn keep(&mut self, entry: &Entry<'_>, shown: String) {
        self.effective.push(&entry.path, shown, &entry.origin);
    }

    /// Notes a default in force.
    pub(super) fn keep_default(&mut self, section: &Section<'_>, key: &str, shown: String) {
        self.effective.push(&section.path.child(key), shown, &Origin::Default);
    }

    /// Reports a value of the wrong type, with `example` as what would be right.
    pub(super) fn wrong_type<T>(&mut self, entry: &Entry<'_>, wants: &str, example: &Literal) -> Option<T> {
        if entry.is_reported() {
            return None;
        }
        if entry.as_text().is_some_and(redact::is_key) {
            return self.key_written(entry);
        }
        let what = format!("is {}, wants {wants}", described(&entry.value.kind));
        let help = format!("write `{}`", entry.written(example));
        self.wrong(entry, what, help)
    }

    /// Reports a key that stands where settings stand. It is not shown.
    pub(super) fn key_written<T>(&mut self, entry: &Entry<'_>) -> Option<T> {
        let what = match entry.origin {
            Origin::File(_) | Origin::Default => "a key written in the file (not shown here)",
            Origin::Environment(_) => "a key in a variable that is for settings (not shown here)",
            Origin::Flag(_) => "a key on the command line (not shown here)",
        };
        let help = match entry.path.keys() {
            [targets, _, headers, ..] if targets == "targets" && headers == "headers" => {
                let table = Literal::table("env", Literal::text("GATEWAY_TOKEN"));
                format!("put it in a variable and write `{}`", entry.written(&table))
            }
            [targets, name, ..] if targets == "targets" => {
                let path = KeyPath::of(["targets", name, "api_key_env"]);
                let name = Literal::text("GATEWAY_API_KEY");
                format!(
                    "put it in a variable or a file of its own and write `{}`, or api_key_file; replace the key if \
                     others could read it here",
                    entry.origin.written(&path, &name)
                )
            }
            [server, ..] if server == "server" => {
                let path = KeyPath::of(["server", ADMIN_TOKEN.env]);
                let written = entry.origin.written(&path, &Literal::text(ADMIN_TOKEN.variable));
                format!(
                    "put it in a variable or a file of its own and write `{written}`, or {}; replace it if others could \
                     read it here",
                    ADMIN_TOKEN.file
                )
            }
            _ => "put it in a variable and name that in the target's api_key_env".to_owned(),
        };
        self.wrong(entry, what, help)
    }

    /// A table. `example` is what one looks like.
    pub(super) fn table<'t>(&mut self, entry: &Entry<'t>, example: &Literal) -> Option<Section<'t>> {
        if let Some(table) = entry.as_table() {
            return Some(Section { path: entry.path.clone(), origin: entry.origin.clone(), table });
        }
        if entry.is_reported() {
            return None;
        }
        if entry.origin.is_text() {
            let spelled = entry.origin.named(&entry.path.child("KEY"));
            return self.wrong(entry, "is a text, wants a table", format!("set its keys one by one: {spelled}"));
        }
        let help = format!("write `{}`", entry.written(example));
        self.wrong(entry, format!("is {}, wants a table", described(&entry.value.kind)), help)
    }

    /// The table of this key, or one without any setting when the key is not there. `example` is what one looks like.
    pub(super) fn inner<'t>(&mut self, section: &Section<'t>, key: &str, example: &Literal) -> Option<Section<'t>> {
        match self.entry(section, key) {
            Some(entry) => self.table(&entry, example),
            None => {
                Some(Section { path: section.path.child(key), origin: section.origin.clone(), table: &NO_SETTINGS })
            }
        }
    }

    /// The names of the sections of a kind, with or without faults inside. A key pasted as a name is none: these are
    /// suggested to people.
    pub(super) fn section_names(&self, root: &Section<'_>, kind: &str) -> Vec<String> {
        let mut names = self.names(root, kind);
        let all = self.entry(root, kind).and_then(|entry| entry.as_table());
        names.retain(|name| {
            let value = all.and_then(|table| table.get(name));
            let section = |value: &Value| matches!(value.kind, ValueKind::Table(_)) || value.origin() == Some(REPORTED);
            !redact::must_hide(name) && value.is_some_and(section)
        });
        names
    }

    /// Everything that stands where sections of a kind do.
    fn names(&self, root: &Section<'_>, kind: &str) -> Vec<String> {
        let table = self.entry(root, kind).and_then(|entry| entry.as_table());
        let mut names: Vec<_> = table.into_iter().flat_map(|table| table.keys().cloned()).collect();
        names.sort();
        names
    }

    /// The sections of a kind, and whether there is nothing else among them.
    pub(super) fn named<'t>(&mut self, root: &Section<'t>, kind: &'static str) -> (Vec<Named<'t>>, bool) {
        let Some(entry) = self.entry(root, kind) else { return (Vec::new(), true) };
        let one = kind.strip_suffix('s').unwrap_or(kind);
        let Some(table) = entry.as_table() else {
            if !entry.is_reported() {
                let what = format!("is {}, wants a table of named {kind}", described(&entry.value.kind));
                self.wrong::<()>(&entry, what, format!("name each {one}: [{kind}.NAME]"));
            }
            return (Vec::new(), false);
        };
        let section = Section { path: entry.path.clone(), origin: entry.origin.clone(), table };
        let (mut sections, mut whole) = (Vec::new(), true);
        for name in self.names(root, kind) {
            let Some(entry) = self.entry(&section, &name) else { continue };
            let sound = self.name(&entry, &name, one).is_some();
            if let Some(table) = entry.as_table() {
                let section = Section { path: entry.path, origin: entry.origin, table };
                sections.push(Named { name, sound, section });
                continue;
            }
            whole = false;
            if !entry.is_reported() {
                let what = format!("is {}, wants a table: a {one} of this name", described(&entry.value.kind));
                let help = if entry.origin.is_text() {
                    format!("name a setting of it: {}", entry.origin.named(&entry.path.child("SETTING")))
                } else {
                    format!("put the setting below [{kind}.NAME], NAME being a name of yours")
                };
                self.wrong::<()>(&entry, what, help);
            }
        }
        (sections, whole)
    }

    /// Whether a name can be a metric label and be reached from the environment.
    fn name(&mut self, entry: &Entry<'_>, name: &str, one: &str) -> Option<()> {
        let odd = name.chars().find(|c| !(c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_' || *c == '-'));
        let reason = if redact::must_hide(name) {
            "looks like a key".to_owned()
        } else if name.is_empty() {
            "is empty".to_owned()
        } else if let Some(odd) = odd {
            format!("holds {odd:?}")
        } else if name.len() > MAX_NAME {
            format!("has {} characters, more than {MAX_NAME}", name.len())
        } else if name.contains("__") || name.ends_with('_') {
            "has __ inside or _ at its end, where variables separate names".to_owned()
        } else {
            return Some(());
        };
        let what = format!("the {one}'s name {reason}");
        self.wrong(entry, what, "use a-z, 0-9, - and single _ inside, so that STEADYLOAD__… variables can reach it")
    }

    /// Whether an unknown key of the section is this one misspelt. Then it is not missing as well.
    pub(super) fn is_misspelt(&self, section: &Section<'_>, vocabulary: &Vocabulary, key: &str) -> bool {
        let unknown = section.table.keys().filter(|other| !vocabulary.known.contains(&other.as_str()));
        unknown
            .filter(|other| !vocabulary.later.contains(&other.as_str()))
            .filter(|other| !vocabulary.elsewhere.iter().any(|(elsewhere, _)| elsewhere == other))
            .any(|other| meant(other, vocabulary) == Some(key))
    }

    /// Reports every key that nobody knows.
    pub(super) fn close(&mut self, section: &Section<'_>, vocabulary: &Vocabulary) {
        let mut unknown: Vec<_> =
            section.table.keys().filter(|key| !vocabulary.known.contains(&key.as_str())).collect();
        unknown.sort();
        for key in unknown {
            let Some(entry) = self.entry(section, key) else { continue };
            if vocabulary.later.contains(&key.as_str()) {
                let help = format!("remove it; {} has {}", vocabulary.what, vocabulary.known.join(", "));
                self.wrong::<()>(&entry, "is not in this version", help);
                continue;
            }
            if let Some((_, place)) = vocabulary.elsewhere.iter().find(|(other, _)| other == key) {
                self.wrong::<()>(&entry, format!("is no setting of {}", vocabulary.what), *place);
                continue;
            }
            let names_a_place = ["api_key_", "admin_token_"].iter().any(|start| key.starts_with(start));
            if entry.as_text().is_some() && redact::names_a_secret(key) && !names_a_place {
                self.key_written::<()>(&entry);
                continue;
            }
            let help = match meant(key, vocabulary) {
                Some(meant) => {
                    let named = entry.origin.named(&section.path.child(meant));
                    // A variable sets something inside of it.
                    let inside = entry.as_table().is_some() && entry.origin.is_text();
                    format!("did you mean `{named}{}`?", if inside { "…" } else { "" })
                }
                None => format!("{} has {}", vocabulary.what, vocabulary.known.join(", ")),
            };
            self.wrong::<()>(&entry, "unknown key", help);
        }
    }
}

/// The known key that an unknown one stands for.
fn meant(key: &str, vocabulary: &Vocabulary) -> Option<&'static str> {
    vocabulary::other_word(key, vocabulary.known).or_else(|| did_you_mean(key, vocabulary.known.iter().copied()))
}
