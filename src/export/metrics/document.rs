//! The catalogue for people: as a table on a terminal, and as `docs/metrics.md`.

use std::fmt::Write as _;

use crate::export::metrics::catalogue::{self, Kind, Metric, Presence, Subject};

/// What stands above the documentation.
const HEAD: &str = "\
# Metrics

<!-- Made by `steadyload metrics --markdown`. Change the catalogue, not this file. -->

Everything that `/metrics` serves: protobuf with native histograms, OpenMetrics 1.0 or text 0.0.4, whichever the scraper
asks for. All numbers of a scrape belong to one instant, at most a second old.

Series of a load carry the labels `load`, `target` and `model_name`; the tables below name only the labels beside these.
Unless a metric says otherwise its series are there from the start, at 0, so that `increase()` sees the first event.

**Histograms have two forms**: classic buckets for every scraper and, in protobuf, native ones (schema 5, growth 1.022, at
most 300 buckets). A Prometheus that takes the native form (`scrape_native_histograms: true`, or 2.40 and later with
`--enable-feature=native-histograms`) has **no** `_bucket`, `_sum` and `_count` series of them, any other has nothing else.
The queries below ask for both, joined by `or`. For rates use the counters, which are there in either case.
";

/// An aligned table: name, type, unit, labels, meaning.
#[must_use]
pub fn table() -> String {
    let rows: Vec<[String; 5]> = catalogue::all()
        .map(|metric| {
            let labels: Vec<_> = metric.all_labels().collect();
            [
                metric.full_name().into_owned(),
                metric.kind.name().to_owned(),
                metric.unit.name().to_owned(),
                labels.join(","),
                meaning(metric),
            ]
        })
        .collect();
    let head = ["NAME", "TYPE", "UNIT", "LABELS", "MEANING"].map(str::to_owned);
    let mut text = String::new();
    let widths: [usize; 5] = std::array::from_fn(|column| {
        rows.iter().chain([&head]).filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    });
    for row in [&head].into_iter().chain(&rows) {
        let cells = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}"));
        let line: Vec<_> = cells.collect();
        writeln!(text, "{}", line.join("  ").trim_end()).ok();
    }
    text
}

/// `docs/metrics.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = HEAD.to_owned();
    for subject in Subject::ALL {
        let metrics: Vec<_> = catalogue::all().filter(|metric| metric.subject == subject).collect();
        write!(text, "\n## {}\n\n{}\n\n", subject.title(), subject.about()).ok();
        text.push_str("| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n");
        for metric in &metrics {
            let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            writeln!(
                text,
                "| `{}` | {} | {} | {} | {}. |",
                metric.full_name(),
                metric.kind.name(),
                metric.unit.name(),
                labels.join(" "),
                meaning(metric)
            )
            .ok();
        }
        queries(&mut text, &metrics);
    }
    text
}

fn queries(text: &mut String, metrics: &[&Metric]) {
    if metrics.iter().all(|metric| metric.queries().is_empty()) {
        return;
    }
    text.push_str("\n```promql\n");
    let mut first = true;
    for metric in metrics {
        for (question, query) in metric.queries() {
            let gap = if std::mem::take(&mut first) { "" } else { "\n" };
            // The name alone says what a P99 is of.
            let of = if metric.kind == Kind::Histogram { format!("{}: ", metric.name) } else { String::new() };
            writeln!(text, "{gap}# {of}{question}\n{query}").ok();
        }
    }
    text.push_str("```\n");
}

/// The help, and when the series are there.
fn meaning(metric: &Metric) -> String {
    match metric.presence {
        Presence::Always => metric.help.to_owned(),
        Presence::When(when) => format!("{}. There {when}", metric.help),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_is_what_the_catalogue_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/metrics.md");
        let written = std::fs::read_to_string(path).unwrap();
        assert!(written == markdown(), "run: cargo run -- metrics --markdown > docs/metrics.md");
    }

    #[test]
    fn the_table_has_a_line_for_every_metric_and_its_columns_are_aligned() {
        let table = table();
        let lines: Vec<_> = table.lines().collect();
        assert_eq!(lines.len(), catalogue::all().count() + 1);
        let column = lines[0].find("TYPE").unwrap();
        for (line, metric) in lines[1..].iter().zip(catalogue::all()) {
            assert!(line.starts_with(&*metric.full_name()), "{line}");
            assert_eq!(line.get(column..).unwrap().split_whitespace().next(), Some(metric.kind.name()), "{line}");
        }
    }
}
