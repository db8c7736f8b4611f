//! Two daemons that share every load.

use std::collections::BTreeSet;

use crate::exact::of_load;
use crate::scene::{alone, both, config, count, has_read, pause};
use crate::server::Prometheus;
use crate::support::{Beside, Daemon, Folder, until};

const LOADS: [&str; 2] = ["open", "closed"];
const RATE: f64 = 40.0;
const WORKERS: f64 = 5.0;

/// Requests of the open load that are sent while both are read: those of twelve seconds, for a rate over ten.
const ENOUGH: usize = 12 * 40;

/// A constant rate, so that a rate over ten seconds is known to a request.
const PACES: &str = r#"
[loads.open]
target = "t"
workload = "w"
rate = 40
arrival = "constant"
[loads.closed]
target = "t"
workload = "w"
concurrency = 5
"#;

fn shard(folder: &Folder, gateway: &Beside, index: usize) -> Daemon {
    let path = folder.write("c.toml", &config(folder, gateway, PACES));
    Daemon::start(&path, &["--set", &format!("shard.index={index}"), "--set", "shard.count=2"])
}

#[test]
fn two_shards_add_up_to_the_whole_load() {
    let _alone = alone();
    let gateway = Beside::start(&[("ttft", "30ms"), ("gap", "3ms")]);
    // Each has a state of its own.
    let folders = [Folder::new(), Folder::new()];
    let daemons = [0, 1].map(|index| shard(&folders[index], &gateway, index));
    let addresses = daemons.each_ref().map(|daemon| daemon.address);
    let readers = both(&addresses);
    let sent = || of_load(&gateway.truth, "open").len();
    let before = sent();
    until("there is enough to take a rate of", || sent() - before > ENOUGH);
    readers.iter().for_each(while_they_run);
    pause(&daemons.each_ref(), &LOADS, &gateway, 0);
    for reader in &readers {
        daemons.iter().for_each(|daemon| has_read(reader, daemon));
        afterwards(reader, &gateway);
    }
}

fn while_they_run(reader: &Prometheus) {
    let number = |query: &str| reader.number(query).unwrap();
    assert_eq!(number("sum(steadyload_target_requests_per_second{load=\"open\"})"), RATE);
    assert_eq!(number("sum(steadyload_target_concurrency{load=\"closed\"})"), WORKERS);
    let flying = number("sum(max_over_time(steadyload_requests_in_flight{load=\"closed\"}[10s]))");
    assert_eq!(flying, WORKERS);
    let rate = number("sum(rate(steadyload_requests_planned_total{load=\"open\"}[10s]))");
    println!("{:?}: {rate:.2}/s planned, {flying} in flight", reader.form);
    assert!((rate / RATE - 1.0).abs() < 0.05, "{rate} for {RATE}");
}

fn afterwards(reader: &Prometheus, gateway: &Beside) {
    for load in LOADS {
        let sum = |what: &str| reader.number(&format!("sum({what})").replace("LOAD", &format!("load=\"{load}\"")));
        let sent = gateway.truth.all().into_iter().filter_map(|truth| truth.request_id);
        let sent: Vec<_> = sent.filter(|id| id.starts_with(&format!("{load}-"))).collect();
        assert_eq!(sum("steadyload_requests_total{LOAD,outcome=\"ok\"}"), Some(count(sent.len())), "{load}");
        assert_eq!(sum("steadyload_requests_total{LOAD}"), Some(count(sent.len())), "{load}");
        assert_eq!(sum("steadyload_requests_shed_total{LOAD,reason!=\"paused\"}"), Some(0.0), "{load}");
        let shares = reader.query(&format!("sum by (instance) (steadyload_requests_total{{load=\"{load}\"}})"));
        let shares: Vec<_> = shares.into_iter().map(|share| share.value.unwrap() / count(sent.len())).collect();
        assert!(shares.len() == 2 && shares.iter().all(|share| *share > 0.3), "{load}: {shares:?}");
        // A prompt is a function of its index, so these are its prompts.
        let index = |id: &String| id.split('-').nth(1).unwrap().parse::<u64>().unwrap();
        let ids: BTreeSet<_> = sent.iter().collect();
        let indices: BTreeSet<_> = sent.iter().map(index).collect();
        assert_eq!((ids.len(), indices.len()), (sent.len(), sent.len()), "{load}: a request came twice");
        let parities = [0, 1].map(|parity| indices.iter().filter(|index| **index % 2 == parity).count());
        assert!(parities.iter().all(|n| *n > sent.len() / 3), "{load}: {parities:?} of even and odd indices");
    }
}
