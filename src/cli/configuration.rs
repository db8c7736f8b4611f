//! Which configuration is meant by the command line, and what it says.

use std::path::{Path, PathBuf};

use crate::cli::complain;
use crate::config::{self, Environment, LoadRequest, Loaded};

/// The file that is meant when a folder is named, in this order.
const DEFAULT_FILES: [&str; 4] = ["steadyload.toml", "steadyload.yaml", "steadyload.yml", "steadyload.json"];

/// Where a command reads its configuration from.
#[derive(Debug, clap::Args)]
pub(super) struct Sources {
    /// Configuration file (TOML, JSON or YAML), or a folder with a steadyload.toml; later ones win over earlier ones.
    #[arg(short, long, required = true, value_name = "FILE")]
    config: Vec<PathBuf>,
    /// A setting over everything else, such as loads.canary.rate=2.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    overrides: Vec<(String, String)>,
}

impl Sources {
    /// What to load, now and again.
    pub(super) fn request(&self) -> LoadRequest {
        let files = self.config.iter().map(|path| file(path)).collect();
        LoadRequest { files, overrides: self.overrides.clone() }
    }
}

/// Loads it, or prints every fault that it has.
pub(super) fn load(request: &LoadRequest, environment: &Environment) -> Option<Loaded> {
    config::load(request, environment).map_err(|faults| complain(faults.to_string().trim_end())).ok()
}

/// `KEY=VALUE`.
fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("wants KEY=VALUE, such as loads.canary.rate=2")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// The file itself, or the one in a folder.
fn file(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_owned();
    }
    let candidates = DEFAULT_FILES.map(|name| path.join(name));
    let found = candidates.iter().find(|candidate| candidate.exists());
    found.cloned().unwrap_or_else(|| path.join(DEFAULT_FILES[0]))
}
