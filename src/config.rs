//! Configuration: raw files, environment and flags in; checked sections out, with every fault at once.
//!
//! Files are read with the line of every value, merged by the `config` crate (defaults, files in their order,
//! environment, flags: the last one wins), and then checked strictly: the merged tree still has the types that were
//! written, so nothing is coerced, and each value knows its place, so every fault names it.
//!
//! A relative path in a file is seen from that file's folder, one in a variable or flag from the working folder.
//!
//! No key stands in a configuration, none is shown: what looks like one is refused without being echoed.

use std::path::PathBuf;

pub use self::effective::Effective;
pub use self::environment::Environment;
pub use self::fault::{Faults, Finding};
pub use self::plan::Plan;
pub use self::restart::restart_keys;

use self::origin::{FilePlace, Format, Origin};
use self::sections::Config;

mod check;
pub mod credential;
pub mod effective;
pub mod endpoint;
pub mod environment;
pub mod fault;
mod merge;
pub mod origin;
pub mod plan;
mod read;
mod redact;
mod restart;
pub mod secrets;
pub mod sections;

/// What to load.
#[derive(Clone, Default)]
pub struct LoadRequest {
    /// Files, later ones over earlier ones.
    pub files: Vec<PathBuf>,
    /// `--set dotted.key=value`, over everything else.
    pub overrides: Vec<(String, String)>,
}

/// A configuration without a fault.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The checked sections.
    pub config: Config,
    /// Every setting in force, and who made it.
    pub effective: Effective,
    /// What is allowed but worth a second look.
    pub warnings: Vec<Finding>,
}

/// Reads, merges and checks.
///
/// # Errors
/// Every fault of every file, variable and flag. When a file cannot be read or parsed, the others are still checked,
/// but nothing is called missing: it may be in that file.
pub fn load(request: &LoadRequest, environment: &Environment) -> Result<Loaded, Faults> {
    let mut notes = read::Notes::default();
    let mut layers = Vec::new();
    let mut complete = true;
    for (order, path) in request.files.iter().enumerate() {
        match read::read(order, path, &mut notes) {
            Some(tree) => layers.push(merge::of_file(tree, &mut notes)),
            None => complete = false,
        }
    }
    layers.extend(merge::of_environment(environment, &mut notes));
    layers.extend(merge::of_flags(&request.overrides, &mut notes));
    let tree = merge::merge(layers);
    let checked = check::check(&tree, &whole(request), environment, &mut notes);
    if !complete {
        notes.findings.retain(|finding| !finding.absence);
    }
    match (Faults::from_findings(notes.findings), checked.config) {
        (None, Some(config)) => Ok(Loaded { config, effective: checked.effective, warnings: checked.warnings }),
        (Some(faults), _) => Err(faults),
        // A section without a value reported why, so this is a bug of the strict pass; better said than started.
        (None, None) => Err(Faults::unexplained()),
    }
}

/// What is named when something is missing altogether: the first file.
fn whole(request: &LoadRequest) -> Origin {
    request.files.first().map_or(Origin::Default, |path| {
        let format = path.extension().and_then(|extension| extension.to_str()).and_then(Format::of_extension);
        let format = format.unwrap_or(Format::Toml);
        Origin::File(FilePlace { order: 0, path: path.display().to_string(), line: None, format })
    })
}

/// Keys only: a value may be one that should not have been there.
impl std::fmt::Debug for LoadRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let keys: Vec<_> = self.overrides.iter().map(|(key, _)| key).collect();
        f.debug_struct("LoadRequest").field("files", &self.files).field("overrides", &keys).finish()
    }
}

#[cfg(test)]
mod tests;
