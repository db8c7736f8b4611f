//! Start, work, end.

use crate::support::{Beside, Daemon, Folder};

/// One open and one closed load on a gateway.
pub(crate) fn two_loads(gateway: &Beside) -> String {
    let address = gateway.address;
    format!(
        r#"
[targets.t]
base_url = "http://{address}"
model = "m"
[workloads.w]
input_tokens = 8
output_tokens = 10
[loads.open]
target = "t"
workload = "w"
rate = 50
grace = "5s"
[loads.closed]
target = "t"
workload = "w"
concurrency = 4
"#
    )
}

#[test]
fn it_keeps_its_loads_counts_as_the_gateway_does_and_ends_with_0() {
    let gateway = Beside::start(&[("ttft", "20ms"), ("gap", "2ms")]);
    let folder = Folder::new();
    let daemon = Daemon::start(&folder.write("c.toml", &two_loads(&gateway)), &[]);
    daemon.scrape_until("both loads have answers", |samples| {
        ["open", "closed"].iter().all(|load| samples.sum("requests_total", &[("load", load), ("outcome", "ok")]) > 20.0)
    });
    assert_eq!(daemon.get("/-/ready").0, 200);
    let (code, signal, log) = daemon.stop();
    assert_eq!((code, signal), (Some(0), None), "{log}");
    assert!(log.contains("stopped") && !log.contains("ERROR") && !log.contains("WARN"), "{log}");
}
