//! A machine that stands still: nothing is caught up with, and the time is told as what it was.

use std::time::Duration;

use crate::rig::{answered, base, goes_on, let_pass, load, quick};
use crate::support::{Daemon, Folder, Samples};

#[test]
fn after_a_standstill_there_is_no_burst_and_the_gap_is_counted_as_late() {
    let (gateway, folder) = (quick(), Folder::new());
    let closed = quick();
    let open = "rate = 50\narrival = \"constant\"";
    let second = format!("[targets.u]\nbase_url = \"http://{}\"\nmodel = \"m\"\n", closed.address);
    let text = base(gateway.address, "") + &second + &load("open", open);
    let text = text + "[loads.closed]\ntarget = \"u\"\nworkload = \"w\"\nconcurrency = 4\n";
    let daemon = Daemon::start(&folder.write("c.toml", &text), &[]);
    let before = daemon.scrape_until("it runs", |samples| answered(samples, "open") > 50.0);
    let late = |samples: &Samples| samples.sum("requests_shed_total", &[("load", "open"), ("reason", "late")]);

    daemon.signal("STOP");
    let_pass(Duration::from_secs(3));
    daemon.signal("CONT");
    // 3 s less the 0.1 s within which a request may still leave.
    let after = daemon.scrape_until("the gap is counted", |samples| late(samples) - late(&before) >= 140.0);
    let gap = late(&after) - late(&before);
    assert!(gap < 500.0, "{gap}");
    for reason in ["late", "event_loop_delay"] {
        let seconds = |samples: &Samples| samples.get("client_taint_seconds_total", &[("reason", reason)]).unwrap();
        assert!(seconds(&after) > seconds(&before), "{reason}");
    }
    goes_on(&daemon, "open", 75.0);
    goes_on(&daemon, "closed", 75.0);

    let mut instants: Vec<_> = gateway.truth.all().iter().map(|truth| truth.received_at).collect();
    instants.sort();
    let within = |at: usize, time| instants[at..].iter().take_while(|later| **later - instants[at] < time).count();
    let most = (0..instants.len()).map(|at| within(at, Duration::from_secs(1))).max().unwrap();
    assert!(most <= 65, "{most} requests within a second");
    let (code, _, log) = daemon.stop();
    assert_eq!(code, Some(0), "{log}");
    assert!(log.contains("too late to be sent"), "{log}");
}
