//! One daemon over its whole life: traffic, a reload, a pause, a restart. Every claim is made of both kinds of Prometheus.

use std::collections::{BTreeMap, BTreeSet};

use steadyload::export::metrics::catalogue::{self, Kind, Metric};
use steadyload::sim::fault::rule::FaultRule;
use steadyload::sim::settings::Settings;
use steadyload::sim::truth::{End, Truth};

use crate::exact::{Exact, Quantity, of_load};
use crate::scene::{WARMUPS, alone, both, change, config, count, has_read, pause, set_all};
use crate::server::{Form, JOB, Prometheus};
use crate::support::{Beside, Daemon, Folder, until};

const LOADS: [&str; 2] = ["open", "closed"];
const PERCENTS: [(usize, &str); 2] = [(50, "0.5"), (99, "0.99")];

/// Requests of the open load before the restart, warm-ups included: half a minute.
const ENOUGH: usize = 1100;

/// Families that may have no series here, each with its reason. All others must have come by the end.
const MAY_BE_ABSENT: [&str; 1] = [
    // There once something was saved: when a minute ends in one of the lives, which none need be long enough for.
    "state_last_save_timestamp_seconds",
];

/// What Prometheus says of a scrape itself.
const OF_SCRAPES: [&str; 5] = [
    "up",
    "scrape_duration_seconds",
    "scrape_samples_scraped",
    "scrape_samples_post_metric_relabeling",
    "scrape_series_added",
];

/// A daemon, its gateway, and two Prometheuses that have seen it without traffic.
struct Scene {
    gateway: Beside,
    folder: Folder,
    readers: [Prometheus; 2],
    began: f64,
}

fn loads(rate: u32) -> String {
    format!(
        r#"
[loads.open]
target = "t"
workload = "w"
rate = {rate}
warmup_requests = {WARMUPS}
[loads.closed]
target = "t"
workload = "w"
concurrency = 4
warmup_requests = {WARMUPS}
"#
    )
}

impl Scene {
    /// The loads are paused while they are still warming up, so that the first scrape finds every histogram empty and
    /// `rate` has all of each.
    fn start() -> (Self, Daemon) {
        let mut settings = Settings { model: "m".to_owned(), ..Settings::default() };
        for (key, value) in [("ttft", "lognormal:40ms,0.3"), ("gap", "lognormal:6ms,0.3")] {
            settings.set(key, value).unwrap();
        }
        settings.faults.push(FaultRule::parse("status=503,share=0.05").unwrap());
        let gateway = Beside::with(([127, 0, 0, 1], 0).into(), settings);
        let folder = Folder::new();
        let daemon = Daemon::start(&folder.write("c.toml", &config(&folder, &gateway, &loads(50))), &[]);
        hold(&daemon, &gateway, 0);
        let readers = both(&[daemon.address]);
        let began = readers[0].number("vector(time())").unwrap();
        (Self { gateway, folder, readers, began }, daemon)
    }
}

/// Pauses both loads once each has sent something.
fn hold(daemon: &Daemon, gateway: &Beside, before: usize) {
    until("both loads have begun", || {
        let log = gateway.truth.all();
        let has_sent = |load: &str| {
            log[before..].iter().any(|truth| truth.request_id.as_deref().is_some_and(|id| id.starts_with(load)))
        };
        LOADS.into_iter().all(has_sent)
    });
    pause(&[daemon], &LOADS, gateway, before);
}

/// The requests of a load that enter latencies.
fn measured(gateway: &Beside, load: &str) -> Vec<Truth> {
    let sent = of_load(&gateway.truth, load).into_iter().skip(WARMUPS);
    sent.filter(|truth| truth.end == End::Whole && truth.status == 200).collect()
}

#[test]
fn a_daemon_is_read_alike_with_native_histograms_and_without() {
    let _alone = alone();
    let (scene, daemon) = Scene::start();
    let Scene { gateway, folder, readers, began } = &scene;
    set_all(&daemon, &LOADS, "resume");
    until("half of it is sent", || of_load(&gateway.truth, "open").len() > ENOUGH / 2);
    reload_keeps_all_series(&daemon, folder, readers);
    until("all of it is sent", || of_load(&gateway.truth, "open").len() > ENOUGH);
    pause(&[&daemon], &LOADS, gateway, 0);
    let estimates = readers.each_ref().map(|reader| {
        has_read(reader, &daemon);
        counts_are_the_gateways(reader, gateway);
        every_documented_query_is_answered(reader);
        quantiles_are_the_gateways(reader, gateway)
    });
    let exact = LOADS.map(|load| Exact::of(&measured(gateway, load)));
    let (address, first) = (daemon.address, gateway.truth.all().len());
    assert_eq!(daemon.stop().0, Some(0));
    let listen = format!("server.listen={address}");
    let daemon = Daemon::start(&folder.0.join("c.toml"), &["--set", &listen]);
    hold(&daemon, gateway, first);
    for (reader, estimates) in readers.iter().zip(&estimates) {
        has_read(reader, &daemon);
        windows_outlive_a_restart(reader, &daemon, &exact, estimates);
    }
    set_all(&daemon, &LOADS, "resume");
    until("there is more", || gateway.truth.all().len() > first + 200);
    pause(&[&daemon], &LOADS, gateway, first);
    for reader in readers {
        has_read(reader, &daemon);
        counters_begin_anew(reader, gateway);
        nothing_is_ever_nowhere(reader, *began);
        names_and_labels_are_the_catalogues(reader);
    }
}

/// Every series that there is now, but for those that come when a minute ends.
fn series(reader: &Prometheus) -> BTreeSet<BTreeMap<String, String>> {
    let of_minutes = "steadyload_window_.*|steadyload_state_last_save_.*";
    let all = reader.query(&format!("{{job=\"{JOB}\",__name__!~\"{of_minutes}\"}}"));
    all.into_iter().map(|series| series.labels).collect()
}

fn reload_keeps_all_series(daemon: &Daemon, folder: &Folder, readers: &[Prometheus; 2]) {
    let before = readers.each_ref().map(series);
    let text = std::fs::read_to_string(folder.0.join("c.toml")).unwrap();
    folder.write("c.toml", &text.replace("rate = 50", "rate = 60\nslo = { ttft = \"50ms\" }"));
    let at = "config_last_reload_success_timestamp_seconds";
    change(daemon, "/-/reload");
    let reloaded =
        daemon.scrape_until("it has reloaded", |samples| samples.get("target_requests_per_second", &[]) == Some(60.0));
    let reloaded = reloaded.get(at, &[]).unwrap();
    for (reader, before) in readers.iter().zip(before) {
        until("prometheus has seen the reload", || reader.number(&format!("steadyload_{at}")) == Some(reloaded));
        let after = series(reader);
        let lost: Vec<_> = before.difference(&after).collect();
        let new: Vec<_> = after.difference(&before).collect();
        println!("{:?}: {} series before and after a reload", reader.form, after.len());
        assert!(lost.is_empty() && new.is_empty(), "{:?}: lost {lost:?}, new {new:?}", reader.form);
    }
}

fn counts_are_the_gateways(reader: &Prometheus, gateway: &Beside) {
    for load in LOADS {
        let sent = of_load(&gateway.truth, load);
        let failed = sent.iter().filter(|truth| truth.status == 503).count();
        let whole = sent.iter().filter(|truth| truth.status == 200 && truth.end == End::Whole).count();
        assert!(failed > 0 && failed + whole == sent.len(), "{load}: {failed} + {whole} of {}", sent.len());
        let by_outcome = reader.query(&format!("steadyload_requests_total{{load=\"{load}\"}} > 0"));
        let by_outcome: BTreeMap<_, _> =
            by_outcome.iter().map(|series| (series.labels["outcome"].as_str(), series.value.unwrap())).collect();
        assert_eq!(by_outcome, [("ok", count(whole)), ("http_5xx", count(failed))].into(), "{load}");
        let number = |what: &str| reader.number(&what.replace("LOAD", &format!("load=\"{load}\""))).unwrap();
        assert_eq!(number("steadyload_responses_total{LOAD,code=\"200\"}"), count(whole), "{load}");
        assert_eq!(number("steadyload_responses_total{LOAD,code=\"503\"}"), count(failed), "{load}");
        assert_eq!(number("steadyload_warmup_requests_total{LOAD}"), count(WARMUPS), "{load}");
        let measured = measured(gateway, load);
        let tokens = measured.iter().map(|truth| usize::try_from(truth.n).unwrap()).sum();
        assert_eq!(number("steadyload_generation_tokens_total{LOAD}"), count(tokens), "{load}");
        let ttft = match reader.form {
            Form::Classic => "steadyload_time_to_first_token_seconds_count{LOAD}",
            Form::Native => "histogram_count(steadyload_time_to_first_token_seconds{LOAD})",
        };
        assert_eq!(number(ttft), count(measured.len()), "{load}");
    }
}

/// The query of the documentation, for a quantity of a load and another quantile.
fn documented(quantity: Quantity, load: &str, q: &str) -> String {
    let name = match quantity {
        Quantity::Ttft => "time_to_first_token_seconds",
        Quantity::Tpot => "request_time_per_output_token_seconds",
        Quantity::Itl => "inter_token_latency_seconds",
        Quantity::E2el => "e2e_request_latency_seconds",
    };
    let metric = catalogue::all().find(|metric| metric.name == name).unwrap();
    let query = metric.queries()[0].1.replace("0.99", q);
    let of_load = |text: &str| text.replace("[5m]", &format!("{{load=\"{load}\"}}[5m]"));
    assert!(query.contains("_bucket[5m]") && query.contains(" or "), "{query}");
    of_load(&query)
}

/// A quantile of a load, by its percentage, as Prometheus works it out.
type Estimates = Vec<(&'static str, Quantity, usize, f64)>;

/// Within a bucket of the truth and what the client may be off by on a machine that does other things too: 1 % or 0.2 ms at P50,
/// 1 ms at P99. `tests/agreement.rs` is stricter about the client, and `windows_outlive_a_restart` about the buckets.
fn quantiles_are_the_gateways(reader: &Prometheus, gateway: &Beside) -> Estimates {
    let mut estimates = Vec::new();
    for load in LOADS {
        let exact = Exact::of(&measured(gateway, load));
        for quantity in Quantity::ALL {
            for (percent, q) in PERCENTS {
                let is = reader.number(&documented(quantity, load, q)).unwrap();
                let truth = exact.quantile(quantity, percent).as_secs_f64();
                let slack = if percent == 50 { 0.000_2_f64.max(truth / 100.0) } else { 0.001 };
                let beyond = ((is - truth).abs() - slack).max(0.0);
                let buckets = buckets(reader.form, truth + beyond, truth);
                let (form, metric, n) = (reader.form, quantity.metric(), exact.count(quantity));
                println!(
                    "{form:?}: {load} {metric} {q} of {n}: {is:.5} for {truth:.5}, {buckets:.2} buckets and slack"
                );
                assert!(buckets <= 1.0, "{form:?}: {load} {metric} {q}: {is} for {truth}, {buckets:.2} buckets");
                estimates.push((load, quantity, percent, is));
            }
        }
    }
    estimates
}

/// How many buckets apart two values are: there are so many in a doubling.
fn buckets(form: Form, one: f64, other: f64) -> f64 {
    let per_doubling = if form == Form::Classic { 8.0 } else { 32.0 };
    (one / other).log2().abs() * per_doubling
}

fn every_documented_query_is_answered(reader: &Prometheus) {
    for metric in catalogue::all() {
        for (question, query) in metric.queries() {
            let found = reader.query(&query);
            let is_quantile = metric.kind == Kind::Histogram && query.contains("histogram_quantile");
            let loads: BTreeSet<_> = found.iter().filter_map(|series| series.labels.get("load")).collect();
            assert!(!is_quantile || loads.len() == 2, "{:?}: {question}: {query} finds {found:?}", reader.form);
        }
    }
}

/// What the daemon shows of the life before is what Prometheus has, and holds as many values as the gateway gave. These quantiles
/// are exact, so the estimates from buckets are held to them: a bucket, and a tenth for what an HDR bucket is wide.
fn windows_outlive_a_restart(reader: &Prometheus, daemon: &Daemon, exact: &[Exact; 2], estimates: &Estimates) {
    let shown = daemon.scrape();
    for (load, quantity, percent, estimate) in estimates {
        let (metric, q) = (quantity.metric(), PERCENTS.iter().find(|(known, _)| known == percent).unwrap().1);
        let exact = &exact[usize::from(*load == LOADS[1])];
        let of = format!("load=\"{load}\",metric=\"{metric}\",window=\"5m\"");
        let samples = reader.number(&format!("steadyload_window_samples{{{of}}}"));
        assert_eq!(samples, Some(count(exact.count(*quantity))), "{load} {metric}");
        let is = reader.number(&format!("steadyload_window_latency_seconds{{{of},q=\"{q}\"}}"));
        let labels = [("load", *load), ("metric", metric), ("window", "5m"), ("q", q)];
        assert_eq!(is, shown.get("window_latency_seconds", &labels), "{load} {metric} {q}");
        let (is, truth) = (is.unwrap(), exact.quantile(*quantity, *percent).as_secs_f64());
        let off = buckets(reader.form, *estimate, is);
        let form = reader.form;
        println!("{form:?}: {load} {metric} {q}: {is:.5}, {:+.1} us; buckets {off:.2} off", (is - truth) * 1e6);
        assert!(off <= 1.1, "{form:?}: {load} {metric} {q}: {estimate} for {is}, {off:.2} buckets");
    }
}

fn counters_begin_anew(reader: &Prometheus, gateway: &Beside) {
    for load in LOADS {
        let of = format!("{{load=\"{load}\",outcome=\"ok\"}}[5m]");
        assert_eq!(reader.number(&format!("resets(steadyload_requests_total{of})")), Some(1.0), "{load}");
        let query = format!("sum(increase(steadyload_requests_total{{load=\"{load}\"}}[5m]))");
        let increase = reader.number(&query).unwrap();
        let sent = count(of_load(&gateway.truth, load).len());
        println!("{:?}: {load}: increase {increase:.1} for {sent}", reader.form);
        assert!((increase / sent - 1.0).abs() < 0.05, "{load}: {increase} for {sent}");
    }
}

fn nothing_is_ever_nowhere(reader: &Prometheus, began: f64) {
    let planned = catalogue::all().find(|metric| metric.name == "requests_planned_total").unwrap();
    let queries = planned.queries();
    let law = queries.iter().find(|(question, _)| question.contains("nowhere")).unwrap();
    let found = reader.since(began, &law.1);
    assert_eq!(found.len(), LOADS.len(), "{found:?}");
    for (labels, values) in found {
        println!("{:?}: {} seconds of {labels:?}", reader.form, values.len());
        assert!(values.len() > 20 && values.iter().all(|value| *value == 0.0), "{labels:?}: {values:?}");
    }
}

fn names_and_labels_are_the_catalogues(reader: &Prometheus) {
    let mut expected: BTreeSet<_> = OF_SCRAPES.map(str::to_owned).into();
    let mut got: BTreeSet<_> = reader.names().into_iter().collect();
    for metric in catalogue::all() {
        let names = names(metric, reader.form);
        if MAY_BE_ABSENT.contains(&metric.name) {
            got.extend(names.clone());
        }
        expected.extend(names);
    }
    let (missing, surplus): (Vec<_>, Vec<_>) =
        (expected.difference(&got).collect(), got.difference(&expected).collect());
    assert!(missing.is_empty() && surplus.is_empty(), "{:?}: not {missing:?}, but {surplus:?}", reader.form);
    for metric in catalogue::all() {
        for name in names(metric, reader.form) {
            for series in reader.query(&name) {
                let mut labels: BTreeSet<_> = ["__name__", "job", "instance"].into();
                labels.extend(metric.all_labels());
                labels.extend(name.ends_with("_bucket").then_some("le"));
                assert_eq!(series.labels.keys().map(String::as_str).collect::<BTreeSet<_>>(), labels, "{name}");
            }
        }
    }
    assert_eq!(reader.number(&format!("min_over_time(up{{job=\"{JOB}\"}}[5s])")), Some(1.0));
}

/// Under which names the samples of a family arrive.
fn names(metric: &Metric, form: Form) -> Vec<String> {
    let name = metric.full_name();
    if metric.kind == Kind::Histogram && form == Form::Classic {
        return ["bucket", "sum", "count"].map(|suffix| format!("{name}_{suffix}")).into();
    }
    vec![name.into_owned()]
}
