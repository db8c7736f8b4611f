//! Files into one tree of values, each with the line on which it stands.
//!
//! The three readers build `config::Value`s themselves instead of leaving it to the `config` crate: its own readers
//! forget lines, take the last of two equal JSON keys, turn a date into text and follow YAML aliases without end. What
//! a reader refuses is reported at once and stands in the tree as a nothing with the origin [`REPORTED`], so that the
//! strict pass does not call it missing as well.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use config::{Map, Value, ValueKind};

use crate::config::fault::Finding;
use crate::config::origin::{FilePlace, Format, KeyPath, Origin, Origins};
use crate::config::redact;

mod json;
mod toml;
mod yaml;

/// Longest file. A configuration with a thousand loads has 200 kB; more is the wrong file, or an attack.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Deepest nesting. Settings need four levels and request bodies a few more; beyond this, code that walks the tree
/// could exhaust the stack.
const MAX_DEPTH: usize = 32;

/// Origin of a value that a reader has refused and reported.
pub(super) const REPORTED: &str = "reported";

/// What reading shares: where things stand and what is wrong with them.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// Every place seen.
    pub(super) origins: Origins,
    /// Every fault found.
    pub(super) findings: Vec<Finding>,
}

/// One file while it is read.
struct Reading<'a> {
    place: FilePlace,
    notes: &'a mut Notes,
}

/// The file cannot be used: its faults are in the notes.
struct Unusable;

/// Reads one file. `None` when it could not be used at all: what it holds is then unknown, not absent.
pub(super) fn read(order: usize, path: &Path, notes: &mut Notes) -> Option<Map<String, Value>> {
    let shown = path.display().to_string();
    let format = path.extension().and_then(|extension| extension.to_str()).and_then(Format::of_extension);
    let place = FilePlace { order, path: shown, line: None, format: format.unwrap_or(Format::Toml) };
    let whole = Origin::File(place.clone());
    if format.is_none() {
        let finding = if path.exists() {
            let finding = Finding::of_file(whole, None, "the extension tells no format");
            finding.with_help("name the file .toml, .yaml, .yml or .json")
        } else {
            Finding::of_file(whole, None, "there is no such file").with_help("name a .toml, .yaml, .yml or .json file")
        };
        notes.findings.push(finding);
        return None;
    }
    match read_text(path) {
        Err(finding) => {
            let (what, help) = *finding;
            let mut finding = Finding::of_file(whole, None, what);
            finding.help = help;
            notes.findings.push(finding);
            None
        }
        Ok(text) => {
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            let format = place.format;
            let mut reading = Reading { place, notes };
            let tree = match format {
                Format::Toml => toml::read(text, &mut reading),
                Format::Yaml => yaml::read(text, &mut reading),
                Format::Json => json::read(text, &mut reading),
            };
            tree.ok()
        }
    }
}

/// The text of the file, or what is wrong and what would be right.
fn read_text(path: &Path) -> Result<String, Box<(String, Option<String>)>> {
    let fault = |what: &str, help: &str| Box::new((what.to_owned(), Some(help.to_owned()).filter(|h| !h.is_empty())));
    if path.is_dir() {
        return Err(fault("is a directory, wants a file", "name the file in it"));
    }
    // Opening a pipe that nobody writes to would wait for ever, and a daemon's reload with it.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Err(fault("is a pipe or a device, wants a file", "write it to a file first"));
    }
    let mut bytes = Vec::new();
    // One byte more than allowed tells too long from just fitting, and a device cannot fill the memory.
    File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)).map_err(|error| {
        if error.kind() == io::ErrorKind::NotFound {
            fault("there is no such file", &there_instead(path))
        } else {
            fault(&format!("cannot be read: {error}"), "")
        }
    })?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(fault("is longer than 1 MiB, which no configuration is", "is it the right file?"));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes().iter().take(error.utf8_error().valid_up_to()).filter(|b| **b == b'\n').count();
        fault(&format!("is not UTF-8 text: line {line} holds other bytes"), "save the file as UTF-8")
    })
}

/// A relative path that is not there is most often meant from another folder: says from which it was looked for.
fn there_instead(path: &Path) -> String {
    if path.is_absolute() {
        return String::new();
    }
    std::env::current_dir().map_or_else(|_| String::new(), |folder| format!("looked for in {}", folder.display()))
}

impl Reading<'_> {
    /// The place of a line.
    fn at(&self, line: usize) -> Origin {
        Origin::File(self.place.at(line))
    }

    /// A value with its place.
    fn value(&mut self, path: &KeyPath, line: usize, kind: impl Into<ValueKind>) -> Value {
        let origin = self.at(line);
        Value::new(Some(&self.notes.origins.note(path, &origin)), kind)
    }

    /// Reports a value that cannot be used, and gives what stands for it.
    fn refused(&mut self, path: &KeyPath, line: usize, what: &str, help: &str) -> Value {
        let origin = self.at(line);
        self.notes.origins.note(path, &origin);
        self.notes.findings.push(Finding::at(&origin, path, what, help));
        Value::new(Some(&REPORTED.to_owned()), ValueKind::Nil)
    }

    /// Reports a key that stands twice. The first one is kept.
    fn twice(&mut self, path: &KeyPath, line: usize) {
        let first = self.notes.origins.find(path, None);
        let what = match first {
            Origin::File(place) if place.order == self.place.order => {
                format!("stands twice, first on line {}", place.line.unwrap_or_default())
            }
            Origin::File(_) | Origin::Default | Origin::Environment(_) | Origin::Flag(_) => "stands twice".to_owned(),
        };
        let origin = self.at(line);
        self.notes.findings.push(Finding::at(&origin, path, what, "keep one of the two"));
    }

    /// Reports a key that a parser has refused because it stands twice.
    fn parser_found_twice(&mut self, line: usize, column: usize) {
        let finding = Finding::of_file(self.at(line), Some(column), "this key or section stands twice");
        self.notes.findings.push(finding.with_help("keep one of the two"));
    }

    /// Reports what the parser says, and gives up on the file.
    fn syntax(&mut self, line: usize, column: usize, says: &str) -> Unusable {
        let origin = self.at(line);
        let says = redact::name(says);
        self.notes.findings.push(Finding::of_file(origin, Some(column), format!("syntax: {says}")));
        Unusable
    }

    /// Gives up on a file that nests too deeply.
    fn too_deep(&mut self, line: usize, column: usize) -> Unusable {
        let says = format!("nested more than {MAX_DEPTH} levels deep");
        self.syntax(line, column, &says)
    }
}

/// A path of a file, seen from the folder of the file that names it: a configuration and its keys can be moved
/// together, and the daemon's working folder does not matter. From a variable or a flag it is seen from the working
/// folder, as the shell does.
pub(super) fn resolved(named: &str, origin: &Origin) -> PathBuf {
    match origin {
        Origin::File(place) => Path::new(&place.path).parent().unwrap_or(Path::new("")).join(named),
        Origin::Default | Origin::Environment(_) | Origin::Flag(_) => PathBuf::from(named),
    }
}
