//! Strict readers of the three forms, which share nothing with the crate that writes them but the protobuf's types.

use std::collections::BTreeMap;

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{self as model, MetricFamily};

use super::super::*;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Sample {
    pub(super) fn is(&self, suffix: &str) -> bool {
        self.name.ends_with(suffix)
    }
}

/// One scrape. Kinds are those of text 0.0.4, by whole family name.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    pub(super) kinds: BTreeMap<String, String>,
    /// Name and labels, and the value.
    pub(super) samples: BTreeMap<(String, BTreeMap<String, String>), f64>,
}

impl Scrape {
    /// The samples of a family.
    pub(super) fn of(&self, family: &str) -> impl Iterator<Item = Sample> {
        let histogram = self.kinds.get(family).is_some_and(|kind| kind == "histogram");
        let names = if histogram { vec!["_bucket", "_sum", "_count"] } else { vec![""] };
        let names: Vec<String> = names.iter().map(|suffix| format!("{family}{suffix}")).collect();
        let samples = self.samples.iter().filter(move |((name, _), _)| names.contains(name));
        samples.map(|((name, labels), value)| Sample { name: name.clone(), labels: labels.clone(), value: *value })
    }

    fn put(&mut self, sample: Sample) {
        let before = self.samples.insert((sample.name.clone(), sample.labels.clone()), sample.value);
        assert_eq!(before, None, "{sample:?} twice");
    }
}

pub(super) fn text(exposition: &str) -> Scrape {
    let mut scrape = Scrape::default();
    for line in exposition.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            assert_eq!(scrape.kinds.insert(name.to_owned(), kind.to_owned()), None, "{name} declared twice");
        } else if !line.starts_with('#') {
            scrape.put(sample(line));
        }
    }
    scrape
}

/// With its names and types turned into those of text 0.0.4.
pub(super) fn open_metrics(exposition: &str) -> Scrape {
    let mut scrape = Scrape::default();
    let lines = exposition.strip_suffix("# EOF\n").unwrap();
    assert!(!lines.lines().any(|line| line.starts_with("# EOF")));
    let mut family = String::new();
    for line in lines.lines() {
        if let Some(declared) = line.strip_prefix("# TYPE ") {
            let (name, kind) = declared.split_once(' ').unwrap();
            family = name.to_owned();
            let (name, kind) = match kind {
                "counter" => (format!("{name}_total"), "counter"),
                "info" => (format!("{name}_info"), "gauge"),
                kind => (name.to_owned(), kind),
            };
            assert_eq!(scrape.kinds.insert(name.clone(), kind.to_owned()), None, "{name} declared twice");
        } else if let Some(declared) = line.strip_prefix("# UNIT ") {
            let (name, unit) = declared.split_once(' ').unwrap();
            assert!(name == family && name.ends_with(&format!("_{unit}")), "{line}");
        } else if !line.starts_with('#') {
            let sample = sample(line);
            assert!(sample.name.starts_with(&family), "{line} is not of {family}");
            scrape.put(sample);
        }
    }
    scrape
}

pub(super) fn families(view: &View, coarse: bool) -> Vec<MetricFamily> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Picture { view: Arc::new(view.clone()), coarse }));
    prometheus_protobuf::encode(&registry).unwrap()
}

pub(super) fn protobuf(families: &[MetricFamily]) -> Scrape {
    let mut scrape = Scrape::default();
    for family in families {
        let kind = match family.r#type() {
            model::MetricType::Counter => "counter",
            model::MetricType::Gauge => "gauge",
            model::MetricType::Histogram => "histogram",
            model::MetricType::Summary | model::MetricType::Untyped | model::MetricType::GaugeHistogram => "unexpected",
        };
        assert_eq!(scrape.kinds.insert(family.name.clone(), kind.to_owned()), None);
        for point in &family.metric {
            let labels: BTreeMap<_, _> =
                point.label.iter().map(|pair| (pair.name.clone(), pair.value.clone())).collect();
            let mut put = |suffix: &str, le: Option<f64>, value: f64| {
                let le = le.map(|le| ("le".to_owned(), bound(le)));
                let labels = labels.clone().into_iter().chain(le).collect();
                scrape.put(Sample { name: format!("{}{suffix}", family.name), labels, value });
            };
            if let Some(counter) = &point.counter {
                put("", None, counter.value);
            } else if let Some(gauge) = &point.gauge {
                put("", None, gauge.value);
            } else if let Some(histogram) = &point.histogram {
                for bucket in &histogram.bucket {
                    put("_bucket", Some(bucket.upper_bound), whole(bucket.cumulative_count));
                }
                put("_sum", None, histogram.sample_sum);
                put("_count", None, whole(histogram.sample_count));
            }
        }
    }
    scrape
}

#[expect(clippy::cast_precision_loss, reason = "tests count to thousands")]
fn whole(n: u64) -> f64 {
    n as f64
}

/// `name{label="value",…} number`, with the bound of a bucket written in one way.
fn sample(line: &str) -> Sample {
    let at = line.find(['{', ' ']).unwrap();
    let (name, mut rest) = line.split_at(at);
    let mut labels = BTreeMap::new();
    while let Some(label) = rest.strip_prefix(['{', ',']) {
        let (key, value) = label.split_once("=\"").unwrap();
        let (value, after) = quoted(value);
        let value = if key == "le" { bound(value.parse().unwrap()) } else { value };
        assert_eq!(labels.insert(key.to_owned(), value), None, "{line}");
        rest = after;
    }
    let value = rest.strip_prefix('}').unwrap_or(rest).strip_prefix(' ').unwrap();
    Sample { name: name.to_owned(), labels, value: value.parse().unwrap() }
}

fn bound(le: f64) -> String {
    format!("{le:e}")
}

/// The text up to the quote that ends it, and what follows.
fn quoted(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (value, text.get(at + 1..).unwrap()),
            '\\' => value.push(match chars.next().unwrap().1 {
                'n' => '\n',
                c @ ('\\' | '"') => c,
                other => unreachable!("\\{other} is no escape"),
            }),
            c => value.push(c),
        }
    }
    unreachable!("no end of {text}")
}
