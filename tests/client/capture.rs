//! Reading captures: the reads as they were recorded, and what was found in them by other means.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::read::GzDecoder;
use serde_json::Value;
use steadyload::domain::api::Api;

/// One recorded response.
#[derive(Clone)]
pub(crate) struct Capture {
    pub(crate) name: String,
    pub(crate) sent_ns: u64,
    pub(crate) reads: Vec<(u64, Vec<u8>)>,
}

/// One line of `expected.json`.
pub(crate) struct Expected(Value);

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/captures")
}

/// Every capture that `expected.json` judges, with its line.
pub(crate) fn all() -> Vec<(Capture, Expected)> {
    let text = fs::read_to_string(folder().join("expected.json")).unwrap();
    let lines: Vec<Value> = serde_json::from_str(&text).unwrap();
    let pairs: Vec<_> = lines.into_iter().map(|line| (Capture::load(&line), Expected(line))).collect();
    assert!(pairs.len() >= 187, "only {} captures: some are missing", pairs.len());
    pairs
}

impl Capture {
    fn load(line: &Value) -> Self {
        let name = format!("{}/{}", line["server"].as_str().unwrap(), line["name"].as_str().unwrap());
        let file = File::open(folder().join(format!("{name}.jsonl.gz"))).unwrap();
        let mut lines = BufReader::new(GzDecoder::new(file))
            .lines()
            .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
        let meta = lines.next().unwrap();
        let reads = lines
            .map(|read| (read["t_ns"].as_u64().unwrap(), STANDARD.decode(read["b64"].as_str().unwrap()).unwrap()))
            .collect();
        let sent_ns = meta["t_sent_ns"].as_u64().unwrap();
        Self { name, sent_ns, reads }
    }

    /// The body without its framing: each byte with the time of its read, and the time at which the body was complete.
    ///
    /// Reads the framing by plain searching, so that nothing of the client is needed to test the client.
    pub(crate) fn body(&self) -> Body {
        let wire: Vec<(u8, u64)> =
            self.reads.iter().flat_map(|(at, bytes)| bytes.iter().map(|byte| (*byte, *at))).collect();
        let bytes: Vec<u8> = wire.iter().map(|(byte, _)| *byte).collect();
        let Some(head_end) = find(&bytes, b"\r\n\r\n", 0) else { return Body::default() };
        let head = String::from_utf8_lossy(&bytes[..head_end]).to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut at = head_end + 4;
        let mut kept = Vec::new();
        let mut closed = None;
        if head.contains("transfer-encoding: chunked") {
            while let Some(end) = find(&bytes, b"\r\n", at) {
                let size = usize::from_str_radix(String::from_utf8_lossy(&bytes[at..end]).trim(), 16).unwrap();
                at = end + 2;
                if size == 0 {
                    closed = find(&bytes, b"\r\n", at).map(|end| wire[end + 1].1);
                    break;
                }
                kept.extend_from_slice(&wire[at..bytes.len().min(at + size)]);
                at = bytes.len().min(at + size + 2);
            }
        } else {
            kept.extend_from_slice(&wire[at..]);
            closed = wire.last().map(|(_, at)| *at);
        }
        Body { status, bytes: kept, complete_at: closed, last_at: wire.last().map_or(0, |(_, at)| *at) }
    }
}

/// A body without its framing.
#[derive(Default)]
pub(crate) struct Body {
    pub(crate) status: u16,
    pub(crate) bytes: Vec<(u8, u64)>,
    pub(crate) complete_at: Option<u64>,
    pub(crate) last_at: u64,
}

fn find(bytes: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    bytes.get(from..)?.windows(needle.len()).position(|window| window == needle).map(|at| from + at)
}

impl Expected {
    pub(crate) fn text(&self, field: &str) -> &str {
        self.0[field].as_str().unwrap_or_else(|| panic!("{field} in {}", self.0))
    }

    pub(crate) fn number(&self, field: &str) -> Option<u64> {
        self.0[field].as_u64()
    }

    pub(crate) fn float(&self, field: &str) -> Option<f64> {
        self.0[field].as_f64()
    }

    pub(crate) fn flag(&self, field: &str) -> bool {
        self.0[field].as_bool().unwrap()
    }

    pub(crate) fn word(&self, field: &str) -> Option<&str> {
        self.0[field].as_str()
    }

    pub(crate) fn token_counts(&self) -> Option<Vec<u32>> {
        let counts = self.0["token_counts"].as_array()?;
        Some(counts.iter().map(|count| u32::try_from(count.as_u64().unwrap()).unwrap()).collect())
    }

    pub(crate) fn api(&self) -> Api {
        Api::from_name(self.text("api")).unwrap()
    }

    /// Tokens asked for, if the server was told not to stop before them.
    pub(crate) fn fixed_length(&self) -> Option<u32> {
        self.number("asked").filter(|_| self.flag("ignore_eos")).map(|asked| u32::try_from(asked).unwrap())
    }

    /// How many captures have each outcome, for a look at what is covered.
    pub(crate) fn tally<'a>(all: impl Iterator<Item = &'a Self>) -> BTreeMap<String, u32> {
        all.fold(BTreeMap::new(), |mut tally, expected| {
            *tally.entry(expected.text("outcome").to_owned()).or_default() += 1;
            tally
        })
    }
}
