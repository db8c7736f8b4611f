//! A daemon in a process of its own, beside gateways in this one, and what it exports. For the tests that see it as users do.
//!
//! Each daemon listens on a free port and is killed when it goes out of scope. [`Daemon::scrape`] asserts the law of
//! conservation every time, so that no test can look at numbers that do not belong together.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use steadyload::clock;
use steadyload::sim::Gateway;
use steadyload::sim::settings::Settings;
use steadyload::sim::truth::TruthLog;

/// Longest wait for anything that should come at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A folder of its own, gone afterwards.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("steadyload-test-{}-{count}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// A simulated gateway on a thread of its own, on a free port or a given one, until it goes out of scope.
pub(crate) struct Beside {
    pub(crate) address: SocketAddr,
    pub(crate) truth: TruthLog,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Beside {
    pub(crate) fn start(settings: &[(&str, &str)]) -> Self {
        Self::at(([127, 0, 0, 1], 0).into(), settings)
    }

    pub(crate) fn at(address: SocketAddr, changes: &[(&str, &str)]) -> Self {
        let mut settings = Settings { model: "m".to_owned(), ..Settings::default() };
        for (key, value) in changes {
            settings.set(key, value).unwrap();
        }
        Self::with(address, settings)
    }

    pub(crate) fn with(address: SocketAddr, settings: Settings) -> Self {
        let (started, gateway) = std::sync::mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let gateway = Gateway::bind(settings, address).await.unwrap();
                started.send((gateway.local_addr(), gateway.truth())).unwrap();
                gateway.run(async { drop(stopped.await) }).await.unwrap();
            });
        });
        let (address, truth) = gateway.recv().unwrap();
        Self { address, truth, stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().map(thread::JoinHandle::join);
    }
}

/// A running `steadyload run`.
pub(crate) struct Daemon {
    pub(crate) address: SocketAddr,
    pub(crate) child: Child,
    log: Arc<Mutex<String>>,
}

impl Daemon {
    /// Runs it with this configuration; `server.listen` is a free port unless the arguments say otherwise. Returns when it
    /// serves metrics.
    pub(crate) fn start(config: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_steadyload"));
        command.arg("run").arg("-c").arg(config).args(["--set", "server.listen=127.0.0.1:0"]).args(arguments);
        Self::spawn(command)
    }

    pub(crate) fn spawn(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let log = Arc::new(Mutex::new(String::new()));
        let (found, address) = std::sync::mpsc::channel();
        let (stderr, kept) = (child.stderr.take().unwrap(), Arc::clone(&log));
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some((_, rest)) = line.split_once("metrics at http://") {
                    found.send(rest.split('/').next().unwrap().parse().unwrap()).ok();
                }
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let address = address.recv_timeout(PATIENCE);
        let address = address.unwrap_or_else(|_| panic!("it does not start:\n{}", log.lock().unwrap()));
        Self { address, child, log }
    }

    /// All that it has logged.
    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap().clone()
    }

    /// Sends a signal, by its name.
    pub(crate) fn signal(&self, name: &str) {
        let sent = Command::new("kill").arg(format!("-{name}")).arg(self.child.id().to_string()).status().unwrap();
        assert!(sent.success(), "kill -{name}");
    }

    /// Waits for its end.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("it ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Asks it to stop, and says with which code it did.
    pub(crate) fn stop(mut self) -> (Option<i32>, Option<i32>, String) {
        self.signal("TERM");
        let status = self.ended();
        (status.code(), status.signal(), self.log())
    }

    /// One HTTP request: status, head and body.
    pub(crate) fn ask(&self, method: &str, path: &str, headers: &str) -> (u16, String, String) {
        ask(self.address, method, path, headers)
    }

    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        let (status, _, body) = self.ask("GET", path, "");
        (status, body)
    }

    /// What it exports, as text; the law holds for every load.
    pub(crate) fn scrape(&self) -> Samples {
        let (status, text) = self.get("/metrics");
        assert_eq!(status, 200);
        let samples = Samples::parse(&text);
        samples.assert_law();
        samples
    }

    /// Scrapes until something holds.
    pub(crate) fn scrape_until(&self, what: &str, holds: impl Fn(&Samples) -> bool) -> Samples {
        let mut last = None;
        until(what, || {
            let samples = self.scrape();
            let so = holds(&samples);
            last = Some(samples);
            so
        });
        last.unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            println!("the daemon's log:\n{}", self.log());
        }
    }
}

/// Looks every 50 ms until something holds, for as long as [`PATIENCE`] lasts.
pub(crate) fn until(what: &str, holds: impl FnMut() -> bool) {
    until_within(PATIENCE, what, holds);
}

/// The same with another patience.
#[expect(clippy::disallowed_methods, reason = "it waits for another process")]
pub(crate) fn until_within(patience: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let begun = clock::now();
    while !holds() {
        assert!(clock::now() - begun < patience, "waited too long until {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

/// One HTTP request over a connection of its own.
pub(crate) fn ask(address: SocketAddr, method: &str, path: &str, headers: &str) -> (u16, String, String) {
    try_ask(address, method, path, headers).unwrap()
}

/// The same of a daemon that may be about to end.
pub(crate) fn try_ask(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &str,
) -> io::Result<(u16, String, String)> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let request =
        format!("{method} {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\ncontent-length: 0\r\n{headers}\r\n");
    stream.write_all(request.as_bytes())?;
    let mut response = Vec::new();
    stream.read_to_end(&mut response)?;
    let response = String::from_utf8_lossy(&response).into_owned();
    let (head, body) = response.split_once("\r\n\r\n").ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let body = if head.to_ascii_lowercase().contains("transfer-encoding: chunked") {
        dechunked(body)
    } else {
        body.to_owned()
    };
    Ok((status, head.to_owned(), body))
}

fn dechunked(body: &str) -> String {
    let (mut rest, mut text) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap();
        if size == 0 {
            break;
        }
        text.push_str(&after[..size]);
        rest = &after[size + 2..];
    }
    text
}

/// The samples of a scrape in the text format.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(pub(crate) Vec<Sample>);

#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub(crate) name: String,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: f64,
}

impl Samples {
    pub(crate) fn parse(text: &str) -> Self {
        Self(text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).map(Sample::parse).collect())
    }

    /// The samples with this name (without `steadyload_`) and these labels.
    pub(crate) fn all<'a>(
        &'a self,
        name: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |sample| {
            sample.name.strip_prefix("steadyload_").unwrap_or(&sample.name) == name
                && labels.iter().all(|(key, value)| sample.labels.get(*key).is_some_and(|is| is == value))
        })
    }

    /// Their sum; 0 when there are none.
    pub(crate) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.all(name, labels).map(|sample| sample.value).sum()
    }

    /// The only one, if it is there.
    pub(crate) fn get(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let mut found = self.all(name, labels);
        let value = found.next()?.value;
        assert!(found.next().is_none(), "{name} {labels:?} is not alone");
        Some(value)
    }

    /// `planned = shed + in_flight + sum(outcomes)`, load by load.
    #[expect(clippy::float_cmp, reason = "counts are whole")]
    pub(crate) fn assert_law(&self) {
        for planned in self.all("requests_planned_total", &[]) {
            let labels: Vec<_> = planned.labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
            let [shed, in_flight, ended] =
                ["requests_shed_total", "requests_in_flight", "requests_total"].map(|name| self.sum(name, &labels));
            assert_eq!(planned.value, shed + in_flight + ended, "{labels:?}: {shed} + {in_flight} + {ended}");
        }
    }
}

impl Sample {
    fn parse(line: &str) -> Self {
        let (series, value) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        // Test configurations have no quotes or commas in their names.
        let labels = labels.trim_end_matches('}').split(',').filter(|pair| !pair.is_empty());
        let labels = labels.map(|pair| pair.split_once('=').unwrap());
        let labels = labels.map(|(key, value)| (key.to_owned(), value.trim_matches('"').to_owned())).collect();
        Self { name: name.to_owned(), labels, value: value.parse().unwrap() }
    }
}
