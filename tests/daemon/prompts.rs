//! What is sent: the same bytes in every run, and nothing that an engine could answer from its prefix cache.

use std::collections::BTreeMap;

use steadyload::sim::settings::Settings;

use crate::rig::{answered, base, goes_on, load, quick};
use crate::support::{Beside, Daemon, Folder, Samples};

/// The SHA-256 of the body of each request that the gateway has seen, by load and index.
fn bodies(gateway: &Beside) -> BTreeMap<String, [u8; 32]> {
    let sent = gateway.truth.all().into_iter().map(|truth| {
        let id = truth.request_id.unwrap();
        (id.rsplit_once('-').unwrap().0.to_owned(), truth.body_sha256)
    });
    sent.collect()
}

/// What one life of a daemon sends.
fn sent(change: &str) -> BTreeMap<String, [u8; 32]> {
    let (gateway, folder) = (quick(), Folder::new());
    let loads = load("a", "rate = 50\nwarmup_requests = 3") + &load("b", "concurrency = 2");
    let config = folder.write("c.toml", &(base(gateway.address, "") + &loads));
    let daemon = Daemon::start(&config, &["--set", change]);
    goes_on(&daemon, "a", 15.0);
    goes_on(&daemon, "b", 15.0);
    assert_eq!(daemon.stop().0, Some(0));
    bodies(&gateway)
}

#[test]
fn two_runs_of_one_configuration_send_the_same_bytes_and_another_seed_sends_others() {
    let [one, two, other] = ["seed=1", "seed=1", "seed=2"].map(|seed| sent(&format!("workloads.w.{seed}")));
    let of_both: Vec<_> = one.keys().filter(|key| two.contains_key(*key)).collect();
    assert!(of_both.len() >= 30, "{} of {} and {}", of_both.len(), one.len(), two.len());
    assert!(of_both.iter().all(|key| one[*key] == two[*key]));
    assert!(one.keys().filter(|key| other.contains_key(*key)).all(|key| one[key] != other[key]));
    let distinct: std::collections::BTreeSet<_> = one.values().collect();
    assert_eq!(distinct.len(), one.len(), "two requests of one run are alike");
}

/// A gateway with an engine that has a prefix cache.
fn engine() -> Beside {
    let mut settings = Settings::default();
    settings.use_preset("7b-rtx4090").unwrap();
    settings.set("jitter", "0").unwrap();
    Beside::with(([127, 0, 0, 1], 0).into(), settings)
}

#[test]
fn repeated_prompts_are_fast_because_they_are_cached_and_the_export_says_so() {
    let (fresh, cached, folder) = (engine(), engine(), Folder::new());
    let part = |name: &str, gateway: &Beside, cache: &str| {
        format!(
            "[targets.{name}]\nbase_url = \"http://{}\"\nmodel = \"sim-7b\"\n\
             [workloads.{name}]\ninput_tokens = 1500\noutput_tokens = 3\ncache = \"{cache}\"\n\
             [loads.{name}]\ntarget = \"{name}\"\nworkload = \"{name}\"\nconcurrency = 1\n",
            gateway.address
        )
    };
    let config = folder.write("c.toml", &(part("unique", &fresh, "unique") + &part("repeat", &cached, "repeat")));
    let daemon = Daemon::start(&config, &[]);
    let samples =
        daemon.scrape_until("both have answers", |s| answered(s, "unique") >= 8.0 && answered(s, "repeat") >= 8.0);
    let share = |load: &str| {
        let sum = |name: &str| samples.sum(name, &[("load", load)]);
        sum("cached_prompt_tokens_total") / sum("prompt_tokens_total")
    };
    let (unique, repeat) = (mean_ttft(&samples, "unique"), mean_ttft(&samples, "repeat"));
    println!("TTFT {unique:.3} s and {repeat:.3} s, cached {:.3} and {:.3}", share("unique"), share("repeat"));
    assert!(repeat < unique / 2.0, "{repeat} s repeated, {unique} s unique");
    // The first of them found nothing.
    assert!(share("repeat") > 0.8, "{}", share("repeat"));
    assert!(share("unique") < 0.01, "{}", share("unique"));
    samples.assert_law();
    assert_eq!(daemon.stop().0, Some(0));
}

fn mean_ttft(samples: &Samples, load: &str) -> f64 {
    let of = |part: &str| samples.sum(&format!("time_to_first_token_seconds_{part}"), &[("load", load)]);
    of("sum") / of("count")
}
