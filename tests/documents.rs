//! What the documents say holds: names exist, examples load, queries are PromQL.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use steadyload::config::{self, Environment, LoadRequest, Loaded};
use steadyload::domain::outcome::Outcome;
use steadyload::domain::shed::ShedReason;
use steadyload::measure::window::{Length, Metric};
use steadyload::watch::client_health::TaintReason;

use self::promtool::promtool;

#[path = "support/promtool.rs"]
mod promtool;

const README: &str = "README.md";
const SEMANTICS: &str = "docs/semantics.md";
const METRICS: &str = "docs/metrics.md";

fn read(document: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap()
}

/// What stands in fences of this language.
fn fenced(text: &str, language: &str) -> Vec<String> {
    let opening = format!("```{language}\n");
    let blocks = text.split(&opening).skip(1);
    blocks.map(|rest| rest.split("\n```").next().unwrap().to_owned()).collect()
}

/// Every name that begins as our metrics do, without what Prometheus adds to the name of a histogram.
fn metric_names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'));
    let names = words.filter(|word| word.starts_with("steadyload_") || word.starts_with("process_"));
    let bare = |name: &str| {
        let suffix = ["_bucket", "_sum", "_count"].into_iter().find_map(|suffix| name.strip_suffix(suffix));
        suffix.unwrap_or(name).to_owned()
    };
    names.map(bare).collect()
}

#[test]
fn every_metric_that_is_named_exists() {
    let known = read(METRICS);
    for document in [README, SEMANTICS] {
        let named = metric_names(&read(document));
        assert!(named.len() > 5, "{document} names {named:?}");
        let unknown: Vec<_> = named.iter().filter(|name| !known.contains(&format!("| `{name}` |"))).collect();
        assert!(unknown.is_empty(), "{document} names {unknown:?}, of which {METRICS} knows nothing");
    }
}

#[test]
fn every_latency_that_is_exported_is_explained() {
    let known = metric_names(&read(METRICS));
    let explained = metric_names(&read(SEMANTICS));
    let of_the_program = ["build_info", "phase", "config_", "state_", "dropped_", "last_success_", "process_"];
    let unexplained: Vec<_> = known
        .difference(&explained)
        .filter(|name| !of_the_program.iter().any(|of| name.trim_start_matches("steadyload_").starts_with(of)))
        .collect();
    assert!(unexplained.is_empty(), "{SEMANTICS} does not explain {unexplained:?}");
}

#[test]
fn every_outcome_and_reason_has_its_row() {
    let text = read(SEMANTICS);
    for outcome in Outcome::ALL {
        let fault = outcome.fault().map_or("–", |fault| fault.name());
        let row = text.lines().find(|line| line.starts_with(&format!("| `{}` |", outcome.name())));
        let row = row.unwrap_or_else(|| panic!("{SEMANTICS} has no row for the outcome {outcome}"));
        assert!(row.contains(&format!("| {fault} |")), "{outcome} is the fault of {fault}: {row}");
    }
    let reasons = ShedReason::ALL.map(ShedReason::name).into_iter().chain(TaintReason::ALL.map(TaintReason::name));
    for reason in reasons {
        assert!(text.contains(&format!("\n| `{reason}` |")), "{SEMANTICS} has no row for the reason {reason}");
    }
    for shown in Metric::SHOWN {
        assert!(text.contains(&format!("`{}`", shown.name())), "{SEMANTICS} does not name the window metric");
    }
    assert_eq!(Length::ALL.map(Length::name), ["5m", "30m", "1h", "24h"], "{SEMANTICS} names these in words");
}

/// The configuration of the README that is whole: the one with a load.
fn first_configuration() -> String {
    let whole: Vec<_> = fenced(&read(README), "toml").into_iter().filter(|block| block.contains("[loads.")).collect();
    assert_eq!(whole.len(), 1, "{README} has one configuration that is whole");
    whole.concat()
}

fn load(text: &str) -> Result<Loaded, String> {
    let path: PathBuf = std::env::temp_dir().join(format!("steadyload-readme-{}.toml", std::process::id()));
    fs::write(&path, text).unwrap();
    let request = LoadRequest { files: vec![path.clone()], overrides: Vec::new() };
    let environment: Environment = [("GATEWAY_API_KEY", "sk-any")].into_iter().collect();
    let loaded = config::load(&request, &environment).map_err(|faults| faults.to_string());
    fs::remove_file(path).unwrap();
    loaded
}

#[test]
fn the_first_configuration_is_valid_and_has_nothing_to_warn_of() {
    let text = first_configuration();
    let loaded = load(&text).expect("the configuration of the README");
    assert!(loaded.warnings.is_empty());
    let faults = load(&text.replace("model =", "modle =")).expect_err("a slip in it");
    assert!(faults.contains("did you mean `model`?"), "{faults}");
}

#[test]
fn every_query_is_promql() {
    let check = |queries: &[String]| {
        let mut rules = "groups:\n- name: g\n  rules:\n".to_owned();
        for (at, query) in queries.iter().enumerate() {
            let lines = query.lines().filter(|line| !line.starts_with('#'));
            let expr: Vec<_> = lines.map(|line| format!("      {line}")).collect();
            rules += &format!("  - record: r:{at}\n    expr: |\n{}\n", expr.join("\n"));
        }
        let path = std::env::temp_dir().join(format!("steadyload-rules-{}.yml", std::process::id()));
        fs::write(&path, rules).unwrap();
        let said = promtool(&["check", "rules", path.to_str().unwrap()], "");
        fs::remove_file(path).unwrap();
        said
    };
    let mut queries = fenced(&read(SEMANTICS), "promql");
    queries.extend(fenced(&read(README), "promql"));
    assert!(queries.len() >= 6, "{queries:?}");
    let (code, said) = check(&queries);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(check(&["sum by (load) (rate(x[5m])".to_owned()]).0, Some(1), "it does look");
}
