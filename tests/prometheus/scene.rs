//! Daemons that can be told to pause, and what a whole test does with them.

use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use steadyload::sim::truth::End;

use crate::server::{Form, JOB, Prometheus};
use crate::support::{Beside, Daemon, Folder, until};

const TOKEN: &str = "authorization: Bearer a-token-for-tests\r\n";

/// How many requests of a load, the first ones of each life, enter no latency. They cover what is sent before a pause is obeyed.
pub(crate) const WARMUPS: usize = 50;

/// Tests with load on the machine take turns: they compare times.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both kinds of Prometheus over the same daemons, each of which they have read once.
pub(crate) fn both(targets: &[SocketAddr]) -> [Prometheus; 2] {
    let readers = [Form::Classic, Form::Native].map(|form| Prometheus::start(form, targets));
    readers.iter().for_each(|reader| reader.has_begun(targets.len()));
    readers
}

/// A configuration with these loads on a gateway, state, and a token.
pub(crate) fn config(folder: &Folder, gateway: &Beside, loads: &str) -> String {
    folder.write("token", "a-token-for-tests");
    let (address, state) = (gateway.address, folder.0.join("state"));
    format!(
        r#"
state.dir = "{}"
server.admin_token_file = "token"
[targets.t]
base_url = "http://{address}"
model = "m"
[workloads.w]
input_tokens = 8
output_tokens = 10
{loads}
"#,
        state.display()
    )
}

/// Asks for a change; it has been made when this returns.
pub(crate) fn change(daemon: &Daemon, path: &str) {
    let (status, _, body) = daemon.ask("POST", path, TOKEN);
    assert_eq!(status, 200, "{path}: {body}");
}

pub(crate) fn set_all(daemon: &Daemon, loads: &[&str], what: &str) {
    loads.iter().for_each(|load| change(daemon, &format!("/api/v1/loads/{load}/{what}")));
}

/// Pauses all loads, and waits until the daemons show that every request has ended that their gateway got since it had `before`.
///
/// None of the loads may be idle when it is called: a picture from before the pause has requests in flight, and so is told
/// from one after it.
pub(crate) fn pause(daemons: &[&Daemon], loads: &[&str], gateway: &Beside, before: usize) {
    daemons.iter().for_each(|daemon| set_all(daemon, loads, "pause"));
    until("every request has ended", || {
        let shown: Vec<_> = daemons.iter().map(|daemon| daemon.scrape()).collect();
        let sum = |name: &str| shown.iter().map(|samples| samples.sum(name, &[])).sum::<f64>();
        let got = gateway.truth.all();
        let open = got.iter().filter(|truth| truth.end == End::Open).count();
        open == 0 && sum("requests_in_flight") == 0.0 && sum("requests_total") == count(got.len() - before)
    });
}

/// Waits until a Prometheus has read what a paused daemon shows: all of it belongs to one instant.
pub(crate) fn has_read(prometheus: &Prometheus, daemon: &Daemon) {
    let of = format!("{{job=\"{JOB}\",instance=\"{}\"}}", daemon.address);
    let sum = |name: &str| prometheus.number(&format!("sum(steadyload_{name}{of})"));
    let ended = daemon.scrape().sum("requests_total", &[]);
    until("prometheus has read the last picture", || {
        sum("requests_total") == Some(ended) && sum("requests_in_flight") == Some(0.0)
    });
}

#[expect(clippy::cast_precision_loss, reason = "tests do not count beyond 2^53")]
pub(crate) fn count(n: usize) -> f64 {
    n as f64
}
