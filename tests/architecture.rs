//! The house rules: which part may use which, and which crate lives where.
//!
//! The table is the one of the conventions, with the parts that exist. A part or a crate that is not in it fails, so that
//! whoever adds one has to say where it belongs. Test code is left out: it may reach further.

#![expect(clippy::unwrap_used, clippy::string_slice, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Part, the parts it may use, the crates that it owns or shares.
const PARTS: [(&str, &[&str], &[&str]); 12] = [
    ("domain", &[], &[]),
    ("clock", &["domain"], &["rustix"]),
    ("config", &["domain"], &["config", "humantime", "serde", "serde_json", "strsim", "toml", "url", "yaml_rust2"]),
    ("store", &["domain", "clock"], &["crc32fast"]),
    // ring: SHA-256 only.
    ("tokens", &["domain"], &["minijinja", "minijinja_contrib", "ring", "serde", "serde_json", "tokenizers"]),
    (
        "load",
        &["domain", "clock", "config", "tokens"],
        &[
            "bytes",
            "flate2",
            "http_body_util",
            "httpdate",
            "hyper",
            "hyper_util",
            "libm",
            "memchr",
            "rand",
            "rand_distr",
            "ring",
            "rustls",
            "rustls_native_certs",
            "serde",
            "serde_json",
            "sonic_rs",
            "tokio_rustls",
            "url",
        ],
    ),
    ("measure", &["domain", "config"], &[]),
    // rustix: thread ids, limits and page size, to read what the system says of this process.
    ("watch", &["domain", "clock", "config"], &["reqwest", "rustix", "serde_json", "strsim", "url"]),
    (
        "export",
        &["domain", "config", "measure", "watch"],
        &["axum", "flate2", "hyper", "hyper_util", "prometheus_client", "serde", "serde_json", "subtle"],
    ),
    (
        "sim",
        // Not `load`: a misreading of SSE that client and gateway shared would cancel out.
        &["domain", "clock", "config"],
        &[
            "axum",
            "bytes",
            "flate2",
            "http_body_util",
            "httpdate",
            "hyper",
            "hyper_util",
            "rand",
            "rand_distr",
            "ring",
            "serde",
            "serde_json",
        ],
    ),
    (
        "app",
        &["domain", "clock", "config", "store", "load", "measure", "watch", "export", "sim"],
        &["anyhow", "sd_notify", "serde_json", "signal_hook", "url"],
    ),
    (
        "cli",
        &["app", "config", "export", "sim", "watch"],
        &["anyhow", "clap", "clap_complete", "clap_mangen", "tracing_appender", "tracing_subscriber", "url"],
    ),
];

/// Crates that are tools of the language rather than a decision of one part.
const EVERYWHERE: [&str; 3] = ["thiserror", "tokio", "tracing"];

struct Source {
    part: String,
    path: PathBuf,
    /// Without comments and without test code.
    code: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut folders = vec![root.clone()];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let below = path.strip_prefix(&root).unwrap();
                let part = below.iter().next().unwrap().to_string_lossy().trim_end_matches(".rs").to_owned();
                // `tests.rs` beside a module, and `tests/`, are test code.
                if !["main", "lib"].contains(&part.as_str())
                    && !below.iter().any(|name| name == "tests.rs" || name == "tests")
                {
                    sources.push(Source { part, code: code(&fs::read_to_string(&path).unwrap()), path });
                }
            }
        }
    }
    assert!(sources.len() > 30, "only {} files found", sources.len());
    sources
}

/// The text up to its tests, without comments.
fn code(text: &str) -> String {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
    let without = |line: &str| line.split("//").next().unwrap_or_default().to_owned();
    text.lines().map(without).collect::<Vec<_>>().join("\n")
}

/// Every `name::` that begins a path, and, after `prefix`, what follows it.
fn path_heads(code: &str) -> Vec<(String, Option<String>)> {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut heads = Vec::new();
    for (at, _) in code.match_indices("::") {
        let before = &code[..at];
        let name: String =
            before.chars().rev().take_while(|c| is_word(*c)).collect::<Vec<_>>().into_iter().rev().collect();
        let begins = !before[..before.len() - name.len()].ends_with("::");
        if begins && !name.is_empty() {
            let next: String = code[at + 2..].chars().take_while(|c| is_word(*c)).collect();
            heads.push((name, (!next.is_empty()).then_some(next)));
        }
    }
    heads
}

fn crates() -> BTreeSet<String> {
    let manifest = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")).unwrap();
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap().split("\n[").next().unwrap();
    dependencies
        .lines()
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name.trim().replace('-', "_"))
        .collect()
}

#[test]
fn no_part_uses_a_part_that_it_may_not() {
    let rules: BTreeMap<_, _> = PARTS.iter().map(|(part, may_use, _)| (*part, *may_use)).collect();
    let mut forbidden = Vec::new();
    for Source { part, path, code } in sources() {
        let Some(may_use) = rules.get(part.as_str()) else {
            forbidden.push(format!("{}: the part {part} has no row in this table", path.display()));
            continue;
        };
        for (_, used) in path_heads(&code).into_iter().filter(|(head, _)| head == "crate") {
            let used = used.unwrap_or_else(|| panic_on_group(&path));
            if used != part && !may_use.contains(&used.as_str()) {
                forbidden.push(format!("{}: {part} may not use {used}", path.display()));
            }
        }
    }
    assert!(forbidden.is_empty(), "{}", forbidden.join("\n"));
}

/// `use crate::{…}` would hide which parts are used.
#[expect(clippy::panic, reason = "a test fails by panicking")]
fn panic_on_group(path: &Path) -> String {
    panic!("{}: write one `use crate::part::…` for each part", path.display())
}

#[test]
fn every_crate_is_used_only_where_it_belongs() {
    let crates = crates();
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (part, _, owned) in PARTS {
        for name in owned {
            homes.entry(name).or_default().insert(part);
        }
    }
    let mut forbidden = Vec::new();
    for name in crates.iter().filter(|name| !EVERYWHERE.contains(&name.as_str())) {
        if !homes.contains_key(name.as_str()) {
            forbidden.push(format!("Cargo.toml: the crate {name} belongs to no part of this table"));
        }
    }
    for Source { part, path, code } in sources() {
        for (head, _) in path_heads(&code) {
            let own_module = head == "config" && part != "config";
            if own_module || !crates.contains(&head) || EVERYWHERE.contains(&head.as_str()) {
                continue;
            }
            if !homes.get(head.as_str()).is_some_and(|homes| homes.contains(part.as_str())) {
                forbidden.push(format!("{}: the crate {head} does not belong to {part}", path.display()));
            }
        }
    }
    assert!(forbidden.is_empty(), "{}", forbidden.join("\n"));
}

#[test]
fn the_scan_sees_what_it_is_there_to_see() {
    let text = "use crate::load::client;\n// crate::sim::x\nfn f() { hyper::Request::get(\"a\"); }\n#[cfg(test)]\nmod tests { use crate::app; }";
    let heads = path_heads(&code(text));
    let head = |name: &str, next: &str| (name.to_owned(), Some(next.to_owned()));
    assert!(heads.contains(&head("crate", "load")) && heads.contains(&head("hyper", "Request")));
    assert!(!heads.contains(&head("crate", "sim")) && !heads.contains(&head("crate", "app")));
}

#[test]
fn no_folder_is_named_after_nothing() {
    for Source { path, .. } in sources() {
        let named = path.iter().any(|name| {
            ["util", "utils", "common", "helpers", "types", "misc"]
                .contains(&name.to_string_lossy().trim_end_matches(".rs"))
        });
        assert!(!named && path.file_name().unwrap() != "mod.rs", "{}", path.display());
    }
}
