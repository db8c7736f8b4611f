//! Rules for names and words.

use std::collections::BTreeSet;

use super::*;

#[test]
fn names_follow_the_rules_of_their_types() {
    for metric in all() {
        let name = metric.name;
        assert_eq!(name.ends_with("_total"), metric.kind == Kind::Counter, "{name}");
        assert_eq!(name.ends_with("_info"), metric.kind == Kind::Info, "{name}");
        assert!(!["_bucket", "_sum", "_count"].iter().any(|suffix| name.ends_with(suffix)), "{name}");
        let stem = name.trim_end_matches("_total");
        assert_eq!(stem.ends_with("_seconds"), metric.unit == Unit::Seconds, "{name}");
        assert_eq!(stem.ends_with("_bytes"), metric.unit == Unit::Bytes, "{name}");
        assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'), "{name}");
        assert_eq!(name.starts_with("process_"), metric.subject == Subject::Process, "{name}");
    }
}

#[test]
fn what_the_crate_adds_makes_the_name_whole_again() {
    for metric in all() {
        let (bare, unit) = metric.registered();
        let unit = unit.map_or(String::new(), |unit| format!("_{}", unit.as_str()));
        let suffix = match metric.kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        assert_eq!(format!("{bare}{unit}{suffix}"), metric.full_name());
    }
}

#[test]
fn every_name_is_there_once_and_every_subject_has_some() {
    let names: BTreeSet<_> = all().map(Metric::full_name).collect();
    assert_eq!(names.len(), all().count());
    assert_eq!(all().map(|metric| metric.subject).collect::<BTreeSet<_>>(), Subject::ALL.into());
}

#[test]
fn words_need_no_escaping_and_end_without_a_dot() {
    for metric in all() {
        let help = metric.help;
        assert!(help.len() > 5 && !help.ends_with('.') && !help.contains(['\\', '\n', '"', '|']), "{help}");
        assert!(!help.contains("  "), "{help}");
    }
}

#[test]
fn the_labels_are_the_bounded_ones_that_were_agreed_upon() {
    let labels: BTreeSet<_> = all().flat_map(|metric| metric.labels).copied().collect();
    let agreed =
        ["arch", "basis", "code", "metric", "os", "outcome", "phase", "q", "queue", "reason", "version", "window"];
    assert_eq!(labels, agreed.into());
}
