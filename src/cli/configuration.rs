//! Which configuration is meant by the command line.

use std::path::{Path, PathBuf};

/// The file that is meant when a folder is named, in this order.
const DEFAULT_FILES: [&str; 4] = ["steadyload.toml", "steadyload.yaml", "steadyload.yml", "steadyload.json"];

/// `KEY=VALUE`.
pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("wants KEY=VALUE, such as loads.canary.rate=2")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// The file itself, or the one in a folder.
pub(super) fn file(path: &Path) -> PathBuf {
    if !path.is_dir() {
        return path.to_owned();
    }
    let candidates = DEFAULT_FILES.map(|name| path.join(name));
    let found = candidates.iter().find(|candidate| candidate.exists());
    found.cloned().unwrap_or_else(|| path.join(DEFAULT_FILES[0]))
}
