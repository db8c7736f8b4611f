//! What is read, by parsers of its own: names, values and absences in all three forms.

use std::collections::BTreeSet;

use prometheus_client::encoding::prometheus_protobuf::prometheus_data_model::{Metric as Point, MetricFamily};

use super::*;
use crate::config::sections::Pace;
use crate::domain::outcome::Outcome;
use crate::domain::sample::ItlBasis;
use crate::domain::shed::ShedReason;
use crate::export::view::{Phase, StateView};
use crate::measure::totals::Quantity;
use catalogue::Kind;

mod promtool;
mod read;
mod views;

use read::{Sample, Scrape, families, open_metrics, protobuf, text};
pub(crate) use views::{TAKEN, odd_names, quiet, traffic};

fn written(view: &View, coarse: bool, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&Arc::new(view.clone()), coarse, format, &mut bytes).unwrap();
    bytes
}

fn written_text(view: &View, format: Format) -> String {
    String::from_utf8(written(view, false, format)).unwrap()
}

fn read_all(view: &View) -> [Scrape; 3] {
    [
        protobuf(&families(view, false)),
        open_metrics(&written_text(view, Format::OpenMetrics)),
        text(&written_text(view, Format::Text)),
    ]
}

fn read_text(view: &View) -> Scrape {
    text(&written_text(view, Format::Text))
}

#[test]
fn every_metric_of_the_catalogue_is_in_every_form_and_nothing_else_is() {
    let view = traffic(2);
    let names: BTreeSet<String> = catalogue::all().map(|metric| metric.full_name().into_owned()).collect();
    for scrape in read_all(&view) {
        assert_eq!(scrape.kinds.keys().cloned().collect::<BTreeSet<_>>(), names);
        for metric in catalogue::all() {
            let name = metric.full_name();
            let kind = if metric.kind == Kind::Info { Kind::Gauge } else { metric.kind };
            assert_eq!(scrape.kinds[&*name], kind.name(), "{name}");
            let labels: BTreeSet<_> = metric.all_labels().map(str::to_owned).collect();
            for sample in scrape.of(&name) {
                let own: BTreeSet<_> = sample.labels.keys().filter(|label| *label != "le").cloned().collect();
                assert_eq!(own, labels, "{sample:?}");
            }
        }
    }
}

#[test]
fn the_three_forms_say_the_same() {
    for view in [traffic(2), quiet(2)] {
        let [protobuf, open_metrics, text] = read_all(&view);
        assert!(text.samples.len() > 1500, "{}", text.samples.len());
        assert_eq!(protobuf.samples, text.samples);
        assert_eq!(open_metrics.samples, text.samples);
    }
}

#[test]
fn no_series_is_written_twice_and_families_are_in_one_piece() {
    let written = written_text(&traffic(3), Format::Text);
    let scrape = text(&written);
    assert_eq!(scrape.samples.len(), written.lines().filter(|line| !line.starts_with('#')).count());
    assert_eq!(scrape.kinds.len(), written.lines().filter(|line| line.starts_with("# TYPE ")).count());
}

#[test]
fn the_law_of_conservation_holds_in_what_is_read() {
    let view = traffic(3);
    for scrape in read_all(&view) {
        for load in &view.loads {
            let sum = |name: &str| -> f64 {
                let of = scrape.of(name).filter(|sample| sample.labels["load"] == load.name);
                of.map(|sample| sample.value).sum()
            };
            let [planned, shed, in_flight, ended] =
                ["requests_planned_total", "requests_shed_total", "requests_in_flight", "requests_total"]
                    .map(|name| sum(&format!("steadyload_{name}")));
            assert!(planned > 0.0 && shed > 0.0 && in_flight > 0.0 && ended > 0.0);
            assert!((planned - shed - in_flight - ended).abs() < 0.5, "{planned} {shed} {in_flight} {ended}");
        }
    }
}

#[test]
fn classic_buckets_rise_to_the_count_and_native_ones_add_up_to_it() {
    let view = traffic(1);
    let mut histograms = 0;
    for family in families(&view, false) {
        for Point { histogram, .. } in &family.metric {
            let Some(histogram) = histogram else { continue };
            histograms += 1;
            let rising: Vec<u64> = histogram.bucket.iter().map(|bucket| bucket.cumulative_count).collect();
            assert!(rising.is_sorted(), "{}", family.name);
            assert!(histogram.bucket.iter().map(|bucket| bucket.upper_bound).is_sorted_by(|a, b| a < b));
            assert_eq!(rising.last(), Some(&histogram.sample_count), "+Inf of {}", family.name);
            let mut own = 0;
            let native: i64 = histogram
                .positive_delta
                .iter()
                .map(|delta| {
                    own += delta;
                    own
                })
                .sum();
            assert_eq!(
                u64::try_from(native).unwrap() + histogram.zero_count,
                histogram.sample_count,
                "{}",
                family.name
            );
            let spanned: u32 = histogram.positive_span.iter().map(|span| span.length).sum();
            assert_eq!(usize::try_from(spanned).unwrap(), histogram.positive_delta.len());
            assert_eq!(histogram.schema, 5, "{}", family.name);
            assert!(histogram.zero_threshold > 0.0, "what tells an empty native histogram from a classic one");
            assert!(histogram.positive_delta.len() <= 300);
        }
    }
    assert_eq!(histograms, 17 - 1, "every quantity, the inter-token latency on one basis");
}

#[test]
fn a_histogram_that_fills_more_than_300_buckets_is_exported_coarser() {
    let mut view = traffic(1);
    views::spread(&mut view);
    let families = families(&view, false);
    let ttft = families.iter().find(|family| family.name == "steadyload_time_to_first_token_seconds").unwrap();
    let histogram = ttft.metric[0].histogram.as_ref().unwrap();
    assert!(histogram.schema < 5 && histogram.positive_delta.len() <= 300, "{}", histogram.schema);
}

#[test]
fn coarse_buckets_are_fewer_and_count_the_same() {
    let view = traffic(1);
    let buckets = |coarse: bool| {
        let scrape = text(&String::from_utf8(written(&view, coarse, Format::Text)).unwrap());
        let of: Vec<Sample> =
            scrape.of("steadyload_time_to_first_token_seconds").filter(|sample| sample.is("_bucket")).collect();
        (of.len(), of.iter().map(|sample| sample.value).fold(0.0, f64::max))
    };
    let ((fine, count), (coarse, same)) = (buckets(false), buckets(true));
    assert!(fine > 95 && coarse < 20, "{fine} {coarse}");
    assert!((count - same).abs() < 0.5 && count > 0.0);
}

#[test]
fn every_label_set_is_there_before_anything_has_happened() {
    let scrape = read_text(&quiet(1));
    let counted = |name: &str| {
        let samples: Vec<_> = scrape.of(&format!("steadyload_{name}")).collect();
        assert!(samples.iter().all(|sample| sample.value.abs() < f64::EPSILON), "{samples:?}");
        samples.len()
    };
    assert_eq!(counted("requests_total"), Outcome::ALL.len());
    assert_eq!(counted("requests_shed_total"), ShedReason::ALL.len());
    assert_eq!(counted("client_taint_seconds_total"), 8);
    assert_eq!(counted("load_paused"), 1);
    assert_eq!(counted("window_samples"), 8 * 4);
    assert_eq!((counted("window_covered_seconds"), counted("window_tainted_seconds")), (4, 4));
    // The histograms of all quantities, with every bucket; of the inter-token latency the basis that is expected.
    let bases: BTreeSet<_> =
        scrape.of("steadyload_inter_token_latency_seconds").map(|sample| sample.labels["basis"].clone()).collect();
    assert_eq!(bases, BTreeSet::from(["token".to_owned()]));
    let phases: BTreeSet<_> =
        scrape.of("steadyload_connect_seconds").map(|sample| sample.labels["phase"].clone()).collect();
    assert_eq!(phases.len(), 3);
    assert!(counted("time_to_first_token_seconds") > 100);
    let phases: Vec<_> =
        scrape.of("steadyload_phase").map(|sample| (sample.labels["phase"].clone(), sample.value)).collect();
    assert_eq!(
        phases.iter().filter(|(phase, value)| (phase == "starting") == (*value > 0.5)).count(),
        Phase::ALL.len()
    );
}

#[test]
fn what_does_not_exist_is_absent() {
    for scrape in read_all(&quiet(1)) {
        let absent = |name: &str| assert!(!scrape.kinds.contains_key(name), "{name}");
        for name in [
            "last_success_timestamp_seconds",
            "window_latency_seconds",
            "window_latency_ci_lower_seconds",
            "window_latency_ci_upper_seconds",
            "responses_total",
            "state_saved",
            "state_last_save_timestamp_seconds",
            "dropped_total",
            "target_concurrency",
        ] {
            absent(&format!("steadyload_{name}"));
        }
        assert!(scrape.kinds.keys().all(|name| !name.starts_with("process_")));
    }
    let mut view = quiet(1);
    view.state = Some(StateView::default());
    let scrape = read_text(&view);
    assert_eq!(scrape.of("steadyload_state_saved").count(), 1);
    assert_eq!(scrape.of("steadyload_state_last_save_timestamp_seconds").count(), 0);
}

#[test]
fn a_load_without_a_share_of_its_concurrency_has_a_target_of_0() {
    let mut view = quiet(1);
    view.loads[0].pace = None;
    let scrape = read_text(&view);
    let targets: Vec<_> = scrape.of("steadyload_target_concurrency").map(|sample| sample.value).collect();
    assert_eq!(targets, [0.0]);
    assert_eq!(scrape.of("steadyload_target_requests_per_second").count(), 0);
    view.loads[0].pace = Some(Pace::Concurrency(8.try_into().unwrap()));
    let targets: Vec<_> = read_text(&view).of("steadyload_target_concurrency").map(|sample| sample.value).collect();
    assert_eq!(targets, [8.0]);
}

#[test]
fn names_may_hold_anything() {
    let mut view = traffic(2);
    let names = odd_names(&mut view);
    for scrape in read_all(&view) {
        let seen: BTreeSet<_> = scrape
            .of("steadyload_requests_in_flight")
            .map(|sample| ["load", "target", "model_name"].map(|label| sample.labels[label].clone()))
            .collect();
        assert_eq!(seen, names);
    }
}

#[test]
fn an_inter_token_latency_stands_for_what_was_seen_and_before_that_for_what_is_expected() {
    let bases = |view: &View| -> Vec<String> {
        let scrape = read_text(view);
        let counts = scrape.of("steadyload_inter_token_latency_seconds").filter(|sample| sample.is("_count"));
        counts.map(|sample| sample.labels["basis"].clone()).collect()
    };
    let mut view = quiet(1);
    assert_eq!(bases(&view), ["token"]);
    view.loads[0].itl_basis = ItlBasis::Chunk;
    assert_eq!(bases(&view), ["chunk"]);
    let mut view = traffic(1);
    assert!(view.snapshot.loads[0].totals.histogram(Quantity::ItlToken).count() > 0);
    view.loads[0].itl_basis = ItlBasis::Chunk;
    assert_eq!(bases(&view), ["token"], "what was seen");
}

#[test]
fn codes_that_a_gateway_invents_are_counted_together() {
    let mut view = traffic(1);
    views::invented_codes(&mut view);
    let scrape = read_text(&view);
    let codes: Vec<_> = scrape.of("steadyload_responses_total").collect();
    assert!(codes.iter().any(|sample| sample.labels["code"] == "other" && sample.value > 0.5));
    assert_eq!(codes.len(), 33);
}

#[test]
fn a_writer_that_fails_is_told_of() {
    struct Full;
    impl Write for Full {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::StorageFull.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    for format in Format::ALL {
        let failed = write(&Arc::new(quiet(1)), false, format, &mut Full).unwrap_err();
        assert_eq!(failed.kind(), io::ErrorKind::StorageFull);
    }
}

#[test]
fn the_protobuf_payload_is_one_frame_a_family() {
    let view = traffic(1);
    let payload = written(&view, false, Format::Protobuf);
    let mut rest = &payload[..];
    let mut frames = 0;
    while !rest.is_empty() {
        let varint = rest.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        let length = rest[..varint].iter().rev().fold(0, |sum, byte| sum << 7 | usize::from(byte & 0x7f));
        rest = &rest[varint + length..];
        frames += 1;
    }
    let families: Vec<MetricFamily> = families(&view, false);
    assert_eq!(frames, families.len());
}
