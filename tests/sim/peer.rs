//! A client that writes requests by hand and keeps what it reads, with the instant of each read.

use std::net::SocketAddr;
use std::time::Duration;

use steadyload::clock;
use steadyload::sim::settings::Settings;
use steadyload::sim::{Gateway, Simulator};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Everything that was read, until the end or until nothing came any more.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) sent_at: Instant,
    pub(crate) reads: Vec<(Instant, Vec<u8>)>,
    pub(crate) end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection was closed in order.
    Fin,
    /// It was reset.
    Rst,
    /// It stayed open, and nothing came.
    Open,
    /// It went on for ever, or for more than was to be read.
    Endless,
}

pub(crate) struct Limits {
    /// Quiet for so long is [`End::Open`].
    pub(crate) quiet: Duration,
    /// More bytes than this is [`End::Endless`].
    pub(crate) bytes: usize,
}

/// Under a paused clock an hour costs nothing.
pub(crate) const PATIENT: Limits = Limits { quiet: Duration::from_secs(3600), bytes: 1 << 20 };

/// Over TCP time is real: a gateway that is quiet for so long is broken.
pub(crate) const LOOPBACK: Limits = Limits { quiet: Duration::from_secs(5), bytes: 1 << 20 };

pub(crate) fn settings(pairs: &[(&str, &str)]) -> Settings {
    let mut settings = Settings::default();
    for (key, value) in pairs {
        settings.set(key, value).unwrap();
    }
    settings
}

/// A request by hand. `headers` are whole lines.
pub(crate) fn post(path: &str, headers: &[&str], body: &str) -> String {
    let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
    format!("POST {path} HTTP/1.1\r\nhost: sim\r\n{headers}content-length: {}\r\n\r\n{body}", body.len())
}

pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: sim\r\nconnection: close\r\n\r\n")
}

/// A chat request for a stream of five tokens with usage, whose fields `rest` completes.
pub(crate) fn chat_body(rest: &str) -> String {
    format!(
        r#"{{"model":"sim-model","messages":[{{"role":"user","content":"hello"}}],"stream":true,"max_tokens":5,"ignore_eos":true,"stream_options":{{"include_usage":true}}{rest}}}"#
    )
}

pub(crate) fn chat(headers: &[&str]) -> String {
    post("/v1/chat/completions", headers, &chat_body(""))
}

pub(crate) async fn listen<S: AsyncRead + Unpin>(peer: &mut S, limits: &Limits) -> Heard {
    let mut heard = Heard { sent_at: clock::now(), reads: Vec::new(), end: End::Open };
    let mut total = 0;
    let mut buffer = vec![0; 65_536];
    loop {
        match timeout(limits.quiet, peer.read(&mut buffer)).await {
            Err(_) => return heard,
            Ok(Ok(0)) => {
                heard.end = End::Fin;
                return heard;
            }
            Ok(Err(error)) => {
                assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
                heard.end = End::Rst;
                return heard;
            }
            Ok(Ok(count)) => {
                heard.reads.push((clock::now(), buffer[..count].to_vec()));
                total += count;
            }
        }
        if total > limits.bytes {
            heard.end = End::Endless;
            return heard;
        }
    }
}

pub(crate) async fn say<S: AsyncRead + AsyncWrite + Unpin>(peer: &mut S, request: &str, limits: &Limits) -> Heard {
    let sent_at = clock::now();
    peer.write_all(request.as_bytes()).await.unwrap();
    Heard { sent_at, ..listen(peer, limits).await }
}

/// One request over an in-memory connection to `simulator`.
pub(crate) async fn ask(simulator: &Simulator, request: &str) -> Heard {
    ask_within(simulator, request, &PATIENT).await
}

pub(crate) async fn ask_within(simulator: &Simulator, request: &str, limits: &Limits) -> Heard {
    let (mut near, far) = tokio::io::duplex(1 << 20);
    let simulator = simulator.clone();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { simulator.serve_stream(far).await });
    let heard = say(&mut near, request, limits).await;
    drop(near);
    // The task ends because the client is gone; a panic in it would be an error here.
    tasks.join_next().await.unwrap().unwrap();
    heard
}

/// A gateway on loopback that stops when this is dropped.
pub(crate) struct Running {
    pub(crate) addr: SocketAddr,
    pub(crate) truth: steadyload::sim::truth::TruthLog,
    stop: Option<oneshot::Sender<()>>,
    tasks: JoinSet<std::io::Result<()>>,
}

impl Running {
    pub(crate) async fn start(settings: Settings) -> Self {
        Self::run(Gateway::bind(settings, "127.0.0.1:0".parse().unwrap()).await.unwrap())
    }

    pub(crate) fn run(gateway: Gateway) -> Self {
        let (addr, truth) = (gateway.local_addr(), gateway.truth());
        let (stop, stopped) = oneshot::channel::<()>();
        let mut tasks = JoinSet::new();
        tasks.spawn(gateway.run(stopped));
        Self { addr, truth, stop: Some(stop), tasks }
    }

    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.tasks.join_next().await.unwrap().unwrap().unwrap();
    }
}

impl Heard {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.reads.iter().flat_map(|(_, bytes)| bytes.iter().copied()).collect()
    }

    fn split(&self) -> (String, Vec<u8>) {
        let bytes = self.bytes();
        let at = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("no head") + 4;
        (String::from_utf8(bytes[..at].to_vec()).unwrap(), bytes[at..].to_vec())
    }

    pub(crate) fn head(&self) -> String {
        self.split().0
    }

    pub(crate) fn status(&self) -> u16 {
        self.head().split(' ').nth(1).unwrap().parse().unwrap()
    }

    /// The body as it came, chunk sizes and all.
    pub(crate) fn raw_body(&self) -> Vec<u8> {
        self.split().1
    }

    /// The chunks of the body, and whether the last one was there.
    pub(crate) fn chunks(&self) -> (Vec<Vec<u8>>, bool) {
        assert!(self.head().contains("transfer-encoding: chunked\r\n"), "{}", self.head());
        let (mut rest, mut chunks) = (self.raw_body(), Vec::new());
        loop {
            let Some(at) = rest.windows(2).position(|two| two == b"\r\n") else { return (chunks, false) };
            let size = usize::from_str_radix(std::str::from_utf8(&rest[..at]).unwrap(), 16).unwrap();
            if size == 0 {
                assert_eq!(&rest[at..], b"\r\n\r\n");
                return (chunks, true);
            }
            let have = size.min(rest.len() - at - 2);
            chunks.push(rest[at + 2..at + 2 + have].to_vec());
            if have < size {
                return (chunks, false);
            }
            assert_eq!(&rest[at + 2 + size..at + 4 + size], b"\r\n");
            rest.drain(..at + 4 + size);
        }
    }

    /// The body without chunk sizes and with its one field that depends on the wall clock set to zero.
    pub(crate) fn body(&self) -> String {
        let bytes = if self.head().contains("chunked") { self.chunks().0.concat() } else { self.raw_body() };
        timeless(&String::from_utf8(bytes).unwrap())
    }

    /// The data of each event.
    pub(crate) fn events(&self) -> Vec<String> {
        self.body().split("\n\n").filter_map(|event| event.strip_prefix("data: ").map(str::to_owned)).collect()
    }

    /// The events that are JSON.
    pub(crate) fn json(&self) -> Vec<serde_json::Value> {
        self.events().iter().filter_map(|event| serde_json::from_str(event).ok()).collect()
    }

    /// The answer's text.
    pub(crate) fn text(&self) -> String {
        self.json()
            .iter()
            .filter_map(|event| event["choices"][0]["delta"]["content"].as_str().map(str::to_owned))
            .collect()
    }
}

/// `"created":1796104584` becomes `"created":0`.
pub(crate) fn timeless(text: &str) -> String {
    let mut parts = text.split(r#""created":"#);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| {
        format!(r#"{all}"created":0{}"#, part.trim_start_matches(|c: char| c.is_ascii_digit()))
    })
}
