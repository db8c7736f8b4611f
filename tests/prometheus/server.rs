//! A real Prometheus, which reads daemons once a second, and what it then knows of them.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

use serde_json::Value;

use crate::scene::count;
use crate::support::{Folder, PATIENCE, ask, until};

/// The job that the daemons are.
pub(crate) const JOB: &str = "steadyload";

/// What a Prometheus makes of histograms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Asks for OpenMetrics text: buckets, sums and counts.
    Classic,
    /// Asks for protobuf: native histograms only.
    Native,
}

/// A series of an answer, and its value now. That of a native histogram has none.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) value: Option<f64>,
}

/// A running Prometheus; killed when it goes out of scope.
pub(crate) struct Prometheus {
    pub(crate) form: Form,
    address: SocketAddr,
    child: Child,
    log: Arc<Mutex<String>>,
    /// Its data, gone with it.
    _folder: Folder,
}

/// What it is told: as short as the one that operators write, and quicker.
pub(crate) fn config(targets: &[SocketAddr]) -> String {
    let targets: Vec<_> = targets.iter().map(|target| format!("\"{target}\"")).collect();
    format!(
        "global:\n  scrape_interval: 1s\nscrape_configs:\n- job_name: {JOB}\n  static_configs:\n  - targets: [{}]\n",
        targets.join(", ")
    )
}

impl Prometheus {
    /// Starts one on a free port.
    pub(crate) fn start(form: Form, targets: &[SocketAddr]) -> Self {
        let folder = Folder::new();
        let config = folder.write("prometheus.yml", &config(targets));
        let mut command = Command::new("prometheus");
        command.arg("--config.file").arg(config).arg("--storage.tsdb.path").arg(folder.0.join("data"));
        command.args(["--web.listen-address=127.0.0.1:0", "--storage.tsdb.retention.time=1h"]);
        if form == Form::Native {
            command.arg("--enable-feature=native-histograms");
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("prometheus is missing: tests/run installs it, with the package prometheus");
        let (found, address) = mpsc::channel();
        let (stderr, log) = (child.stderr.take().unwrap(), Arc::new(Mutex::new(String::new())));
        let kept = Arc::clone(&log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if let Some((_, address)) = line.split_once("msg=\"Listening on\" address=") {
                    found.send(address.trim().parse().unwrap()).ok();
                }
                kept.lock().unwrap().push_str(&(line + "\n"));
            }
        });
        let mut prometheus = Self { form, address: ([0, 0, 0, 0], 0).into(), child, log, _folder: folder };
        prometheus.address = address.recv_timeout(PATIENCE).expect("prometheus listens");
        prometheus
    }

    /// Waits until it has read so many targets once. It takes five seconds to begin.
    pub(crate) fn has_begun(&self, targets: usize) {
        until("prometheus is ready", || ask(self.address, "GET", "/-/ready", "").0 == 200);
        let up = format!("count(up{{job=\"{JOB}\"}} == 1)");
        until("prometheus has read all targets", || self.number(&up) == Some(count(targets)));
    }

    /// What its API answers.
    fn api(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(parameters);
        let path = format!("/api/v1/{path}?{}", query.finish());
        let (status, _, body) = ask(self.address, "GET", &path, "");
        assert_eq!(status, 200, "{parameters:?}: {body}");
        let mut answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer["status"], "success", "{parameters:?}: {body}");
        answer["data"].take()
    }

    /// The answer to a query, now.
    pub(crate) fn query(&self, query: &str) -> Vec<Series> {
        let mut data = self.api("query", &[("query", query)]);
        assert_eq!(data["resultType"], "vector", "{query}");
        let Value::Array(found) = data["result"].take() else { panic!("no list: {query}") };
        let series = |found: Value| Series { labels: labels(&found), value: found["value"].get(1).map(number) };
        found.into_iter().map(series).collect()
    }

    /// The value of the only series that a query finds, if it finds one.
    pub(crate) fn number(&self, query: &str) -> Option<f64> {
        let found = self.query(query);
        assert!(found.len() <= 1, "{query} finds {found:?}");
        found.first().map(|series| series.value.unwrap())
    }

    /// Everything that a query answered since some time, second by second.
    pub(crate) fn since(&self, start: f64, query: &str) -> Vec<(BTreeMap<String, String>, Vec<f64>)> {
        let now = self.number("vector(time())").unwrap();
        let (start, end) = (start.to_string(), now.to_string());
        let parameters = [("query", query), ("start", &start), ("end", &end), ("step", "1")];
        let data = self.api("query_range", &parameters);
        let series = data["result"].as_array().unwrap().iter();
        let values = |series: &Value| series["values"].as_array().unwrap().iter().map(|at| number(&at[1])).collect();
        series.map(|series| (labels(series), values(series))).collect()
    }

    /// Every name that there ever was.
    pub(crate) fn names(&self) -> Vec<String> {
        let data = self.api("label/__name__/values", &[]);
        data.as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
        if thread::panicking() {
            println!("what prometheus logged:\n{}", self.log.lock().unwrap());
        }
    }
}

fn labels(series: &Value) -> BTreeMap<String, String> {
    let labels = series["metric"].as_object().unwrap().iter();
    labels.map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect()
}

/// Values are texts in this API.
fn number(value: &Value) -> f64 {
    value.as_str().unwrap().parse().unwrap()
}
